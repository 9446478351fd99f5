"""What to do next, in words: plain rules on the numbers of an evaluation. Each names its number and a way out."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from bal.calibration import false_alarm_band, rate_interval
from bal.evaluation.findings import CONFIDENCE, Alarm, Counts, Findings
from bal.report.page import Advice

FEW_TEST_ROWS = 100
TOO_WIDE = 1.5  # a calibration may have this many times the rate it promises before more rows are advised
FAR_MORE = 2.0  # a class is rejected this many times as often as the rest before it is named
MOSTLY = 0.5
NAMED = 5


@dataclass(frozen=True)
class Commands:
    """How commands are typed for this detector."""

    detector: str = "DETECTOR"
    classifier: str = "MODULE:FUNCTION"
    test: str = "TEST"

    def of(self, command: str, *more: str) -> str:
        """A command with the detector and its classifier; what is in capitals is for the user to fill in."""
        return shlex.join(["bal", command, self.detector, "--classifier", self.classifier, *more])

    def calibrate(self, false_alarm: float, *more: str) -> str:
        """`bal calibrate` at that rate."""
        return self.of("calibrate", "--data", "HELD-OUT", "--false-alarm", f"{false_alarm:g}", *more)

    def fit(self, detector: str, out: str) -> str:
        """`bal fit` of a detector by name."""
        options = {"--classifier": self.classifier, "--train": "TRAIN", "--detector": detector, "--out": out}
        return shlex.join(["bal", "fit", *chain.from_iterable(options.items())])

    def compare(self, ood: str) -> str:
        """`bal compare` on the test data and one OOD set."""
        options = {"--classifier": self.classifier, "--train": "TRAIN", "--test": self.test, "--ood": ood}
        return shlex.join(["bal", "compare", *chain.from_iterable(options.items())])


Rule: TypeAlias = Callable[[Findings, Commands], Advice | None]


def advise(found: Findings, commands: Commands) -> list[Advice]:
    """What every rule has to say, the most urgent first; one sentence of comfort where none has anything."""
    said = [advice for rule in RULES if (advice := rule(found, commands)) is not None]
    return said or [Advice("Nothing to mend.", "No rule found anything wrong in these numbers.")]


def not_calibrated(found: Findings, commands: Commands) -> Advice | None:
    """The default threshold promises nothing."""
    if found.false_alarm is not None:
        return None
    return Advice(
        "Not calibrated.",
        f"The threshold {found.thresholds[0]:g} keeps 95 % of the training rows, which the classifier has seen; "
        f"it rejects {percent(found.known.rejected_share)} of the test rows. Choose it by held-out ID data:",
        commands.calibrate(0.05),
    )


def too_many_alarms(found: Findings, commands: Commands) -> Advice | None:
    """More ID rows are rejected than chance explains: the data has changed since the calibration."""
    broken = [alarm for alarm in found.alarms if alarm.rejected > alarm.most]
    if not broken or found.false_alarm is None:
        return None
    return Advice(
        "More false alarms than promised.",
        f"{found.false_alarm:.1%} was promised, but {sentence(broken)}. The test data is not like the calibration data: it has "
        "shifted, or the fit or the classifier had seen the calibration rows. Calibrate on ID data of today:",
        commands.calibrate(found.false_alarm, *per_class(found)),
    )


def too_few_alarms(found: Findings, commands: Commands) -> Advice | None:
    """Fewer are rejected than chance explains: the promise holds, but the threshold is lower than it could be."""
    quiet = [alarm for alarm in found.alarms if alarm.rejected < alarm.fewest]
    if not quiet or found.false_alarm is None:
        return None
    return Advice(
        "Fewer false alarms than promised.",
        f"{found.false_alarm:.1%} was allowed, but {sentence(quiet)}. The test data is easier than the calibration data: was it "
        "part of the training, or were the calibration rows harder than usual? If ID data now looks like this, calibrating on it "
        "rejects more OOD:",
        commands.calibrate(found.false_alarm, *per_class(found)),
    )


def few_calibration_rows(found: Findings, commands: Commands) -> Advice | None:
    """With few rows the rate of one calibration may be far from its average."""
    if found.false_alarm is None:
        return None
    wide = [alarm for alarm in found.alarms if alarm.high > TOO_WIDE * found.false_alarm]
    if not wide:
        return None
    worst = max(wide, key=lambda alarm: alarm.high)
    where = f" for {worst.name}" if per_class(found) else ""
    each = " for each class" if per_class(found) else ""
    return Advice(
        "Few calibration rows.",
        f"{worst.calibration_rows} rows{where} promise {found.false_alarm:.1%} on average, but this very calibration may reject "
        f"up to {worst.high:.1%}. About {rows_for(found.false_alarm):,} rows{each} bring that to "
        f"{TOO_WIDE * found.false_alarm:.1%}:",
        commands.calibrate(found.false_alarm, *per_class(found)),
    )


def uneven_class(found: Findings, commands: Commands) -> Advice | None:
    """A class that is rejected far more often than the rest, beyond chance."""
    groups, kind = (found.by_predicted, "predicted") if found.by_class is None else (found.by_class, "true")
    confidence = 1 - (1 - CONFIDENCE) / max(len(groups), 1)
    hit = [name for name, own in groups.items() if far_more(own, rest_of(found.known, own), confidence)]
    if not hit:
        return None
    hit.sort(key=lambda name: -(groups[name].rejected_share or 0))
    worst, rest = groups[hit[0]], rest_of(found.known, groups[hit[0]])
    others = f"; also {listed(hit[1:])}" if hit[1:] else ""
    words = (
        f"{percent(worst.rejected_share)} of the {worst.rows - worst.invalid:,} rows of {kind} class {hit[0]} are rejected, "
        f"against {percent(rest.rejected_share)} of the rest{others}."
    )
    title = "A class is rejected far more often than the rest."
    if len(found.thresholds) > 1:
        more = "Each class has its own threshold already: look at the pictures, and train on more examples of it. Then fit again:"
        return Advice(title, f"{words} {more}", commands.fit(found.detector, commands.detector))
    return Advice(
        title, f"{words} Give each class a threshold of its own:", commands.calibrate(found.false_alarm or 0.05, "--per-class")
    )


def ood_accepted(found: Findings, commands: Commands) -> Advice | None:
    """An OOD set that mostly passes."""
    passing = {name: ood.counts for name, ood in found.oods.items() if ood.counts.accepted > MOSTLY * ood.counts.rows}
    if not passing:
        return None
    name, worst = max(passing.items(), key=lambda item: item[1].accepted / item[1].rows)
    others = [other for other in passing if other != name]
    more = f"; also mostly accepted: {listed(others)}" if others else ""
    return Advice(
        "An OOD set is mostly accepted.",
        f"{worst.accepted / worst.rows:.1%} of {worst.rows:,} rows of {name} pass, with an AUROC of "
        f"{found.oods[name].metrics.auroc:.1%}{more}. Allow more false alarms (bal calibrate --false-alarm), or see whether "
        "another detector tells them apart:",
        commands.compare(f"{name}=DATA"),
    )


def no_safer(found: Findings, commands: Commands) -> Advice | None:
    """What is accepted is no more accurate than everything."""
    known = found.known
    if known.accuracy is None or known.accepted_accuracy is None or not known.rejected or found.selective is None:
        return None
    overall = known.accuracy * known.rows / (known.rows - known.invalid)  # of valid rows
    if known.accepted_accuracy > overall:
        return None
    ours, softmax = found.selective[found.detector].aurc, found.selective["max-softmax"].aurc
    verdict = "finds the errors better" if softmax < ours else "finds them no better"
    return Advice(
        "Accepted rows are no more accurate than all rows.",
        f"{known.accepted_accuracy:.2%} of the accepted rows are right, {overall:.2%} of all valid ones: what {found.detector} "
        f"rejects here is not what the classifier gets wrong. max-softmax {verdict} (AURC {softmax:.4f} against {ours:.4f}, "
        "lower is better). To catch errors of the classifier rather than unknown data, fit a detector for that:",
        commands.fit("max-softmax", "OTHER"),
    )


def invalid_rows(found: Findings, commands: Commands) -> Advice | None:
    """Rows that are not finite, and files that could not be read."""
    sets = {"the test data": found.known, **{name: ood.counts for name, ood in found.oods.items()}}
    bad = [f"{some.invalid:,} of {some.rows:,} rows of {name} are not finite" for name, some in sets.items() if some.invalid]
    bad += [f"files of {name} that could not be read: {number:,}" for name, number in found.left_out.items() if number]
    if not bad:
        return None
    return Advice(
        "Some rows are not valid.",
        f"{'; '.join(bad)}. They are never accepted, and are no false alarms. The columns valid and error of "
        "this command name them:",
        commands.of("score", "--data", commands.test, "--out", "SCORES"),
    )


def few_test_rows(found: Findings, commands: Commands) -> Advice | None:
    """Rates of a handful of rows say little."""
    valid = found.known.rows - found.known.invalid
    if valid >= FEW_TEST_ROWS:
        return None
    return Advice(
        "Few test rows.",
        f"{valid} valid ID rows tell the rejected share only to within {found.known.low:.1%} and {found.known.high:.1%}. "
        f"Give {FEW_TEST_ROWS} or more:",
        commands.of("report", "--test", "MORE"),
    )


def no_ood(found: Findings, commands: Commands) -> Advice | None:
    """Without OOD data nothing is known of misses."""
    if found.oods:
        return None
    return Advice(
        "Nothing is known of misses.",
        "No OOD data was given, so this page can't say how much of it passes. Give sets like those you fear, or any of "
        "`bal data list`:",
        commands.of("report", "--test", commands.test, "--ood", "NAME=DATA"),
    )


RULES: tuple[Rule, ...] = (
    not_calibrated,
    too_many_alarms,
    ood_accepted,
    uneven_class,
    invalid_rows,
    few_calibration_rows,
    no_safer,
    too_few_alarms,
    few_test_rows,
    no_ood,
)


def percent(value: float | None) -> str:
    """A share for people."""
    return "none" if value is None else f"{value:.1%}"


def listed(names: list[str]) -> str:
    """Some names in a row."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def sentence(alarms: list[Alarm]) -> str:
    """What came beside what was expected, for the threshold that is furthest off."""
    worst = max(alarms, key=lambda alarm: max(alarm.rejected - alarm.most, alarm.fewest - alarm.rejected))
    others = f" (and so for {len(alarms) - 1} more)" if len(alarms) > 1 else ""
    return (
        f"{worst.rejected:,} of {worst.rows:,} rows ({worst.rejected / worst.rows:.1%}) of {worst.name} are rejected, where "
        f"{worst.fewest:,} to {worst.most:,} were to be expected{others}"
    )


def per_class(found: Findings) -> list[str]:
    """The option that keeps thresholds for each class."""
    return ["--per-class"] if len(found.alarms) > 1 else []


def rows_for(false_alarm: float) -> int:
    """Calibration rows that keep the upper end of the band below what is too wide, to two figures."""
    rows = round(1 / false_alarm)
    while false_alarm_band(rows, false_alarm, CONFIDENCE)[1] > TOO_WIDE * false_alarm:
        rows = max(rows + 1, round(rows * 1.1))
    return int(float(f"{rows:.2g}"))


def rest_of(whole: Counts, part: Counts) -> Counts:
    """All rows but those of a group."""
    return Counts.of(whole.rows - part.rows, whole.accepted - part.accepted, whole.invalid - part.invalid)


def far_more(own: Counts, rest: Counts, confidence: float) -> bool:
    """Whether a group is rejected far more often than the rest, with intervals of this confidence that do not meet."""
    low, _ = rate_interval(own.rejected, own.rows - own.invalid, confidence)
    _, high = rate_interval(rest.rejected, rest.rows - rest.invalid, confidence)
    return low > high and (own.rejected_share or 0) >= FAR_MORE * (rest.rejected_share or 0)
