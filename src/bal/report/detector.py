"""The page of `bal report`: what one detector accepts and rejects, what that is worth, and what to do about it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bal.detectors import Detector
from bal.evaluation.findings import COVERAGES, Counts, Examination, Findings, selective_curves
from bal.evaluation.metrics import Scores
from bal.evaluation.observation import Example, Rows, shows_pictures
from bal.report import figures
from bal.report.advice import Commands, advise, percent
from bal.report.comparison import HEADINGS, settings_text
from bal.report.page import Page, Picture, Section, Table, write_page

SHOWN_CLASSES = 40
SHOWN_SETS = 3  # that the first lines name
KINDS = {
    "rejected": ("ID rejected", "False alarms, those that the classifier is most confident of first."),
    "wrong": ("ID accepted, but wrongly classified", "Errors that the detector does not catch, the highest score first."),
}


def write_detector_report(
    examined: Examination, path: Path, *, commands: Commands | None = None, settings: Mapping[str, Any] | None = None
) -> None:
    """Write the page; ``commands`` are those of the advice, ``settings`` what else to tell, such as the command of this page."""
    found, commands = examined.found, commands or Commands()
    own = {"name": found.detector, **asdict(examined.detector)}  # type: ignore[call-overload]
    sections = [
        Section("In short", facts=facts(found, commands)),
        Section("What to do", advice=advise(found, commands)),
        accepted_section(found),
        *class_sections(found),
        *ood_sections(examined),
        *selective_sections(examined),
        *picture_sections(examined),
        Section("Exact settings", code=settings_text({**(settings or {}), "detector": own})),
    ]
    write_page(Page(f"bal report: {found.detector} on {commands.test}", lead(found), sections), path)


def lead(found: Findings) -> str:
    """The outcome in a few sentences."""
    known = found.known
    words = [f"{found.detector} accepts {known.accepted:,} of {known.rows:,} ID rows and rejects {known.rejected:,}."]
    if known.accuracy is not None and known.accepted_accuracy is not None:
        words.append(f"{known.accepted_accuracy:.1%} of the accepted ones are classified right, {known.accuracy:.1%} of all.")
    for name, ood in islice(found.oods.items(), SHOWN_SETS):
        words.append(f"Of {name} it accepts {ood.counts.accepted / ood.counts.rows:.1%}.")
    return " ".join(words)


def facts(found: Findings, commands: Commands) -> list[tuple[str, str]]:
    """The headline, as names and values."""
    known = found.known
    accuracy = f"{percent(known.accuracy)} of all ID rows, {percent(known.accepted_accuracy)} of the accepted ones"
    return [
        ("detector", f"{found.detector} ({commands.detector})"),
        ("classifier", commands.classifier),
        ("threshold", threshold_words(found)),
        ("false alarms", alarm_words(found)),
        ("accuracy", "not known, the test data has no labels" if known.accuracy is None else accuracy),
        ("invalid rows", invalid_words(found)),
    ]


def threshold_words(found: Findings) -> str:
    """The threshold, or between which they lie."""
    if found.false_alarm is None:
        return f"{found.thresholds[0]:g}, not calibrated: it keeps 95 % of the training rows"
    rows = sum(alarm.calibration_rows for alarm in found.alarms)
    if len(found.thresholds) == 1:
        return f"{found.thresholds[0]:g}, calibrated by {rows:,} rows"
    low, high = min(found.thresholds), max(found.thresholds)
    return f"one for each predicted class, {low:g} to {high:g}, calibrated by {rows:,} rows"


def alarm_words(found: Findings) -> str:
    """What was promised, what was to be expected of these rows, and what came."""
    known = found.known
    came = (
        f"{percent(known.rejected_share)} of the valid ID rows rejected, {known.low:.1%} to {known.high:.1%} with 95 % confidence"
    )
    if found.false_alarm is None:
        return f"none promised; {came}"
    promised = f"at most {found.false_alarm:.1%} promised"
    if len(found.alarms) == 1 and found.alarms[0].rows:
        alarm = found.alarms[0]
        promised += f" ({alarm.fewest / alarm.rows:.1%} to {alarm.most / alarm.rows:.1%} of so many rows if it is kept)"
    return f"{promised}; {came}"


def invalid_words(found: Findings) -> str:
    """Rows that are not finite and files that could not be read, in all data sets."""
    rows = found.known.invalid + sum(ood.counts.invalid for ood in found.oods.values())
    files = sum(found.left_out.values())
    return f"{rows:,} not finite, {files:,} files not readable" if rows or files else "none"


def counts_table(groups: Mapping[str, Counts], heading: str, *, labelled: bool) -> Table:
    """Accepted, rejected and invalid rows of each group, and where labels are known their accuracy."""
    header = [heading, "rejected, %", "95 % interval", *(["accuracy, %", "accepted accuracy, %"] if labelled else [])]
    header += ["rows", "accepted", "rejected", "invalid"]
    rows = []
    for name, c in groups.items():
        cells = [name, hundredth(c.rejected_share), f"{100 * c.low:.1f} to {100 * c.high:.1f}"]
        cells += [hundredth(c.accuracy), hundredth(c.accepted_accuracy)] if labelled else []
        rows.append(cells + [f"{n:,}" for n in (c.rows, c.accepted, c.rejected, c.invalid)])
    return Table(header, rows)


def hundredth(value: float | None) -> str:
    """A share in per cent, or a dash."""
    return "-" if value is None else f"{100 * value:.2f}"


def accepted_section(found: Findings) -> Section:
    """All data sets at the threshold."""
    groups = {"ID test data": found.known, **{f"OOD: {name}": ood.counts for name, ood in found.oods.items()}}
    words = "Of ID data few should be rejected, of OOD data many. Shares are of valid rows; invalid ones are never accepted."
    return Section(
        "Accepted and rejected", [words], table=counts_table(groups, "data", labelled=found.known.accuracy is not None)
    )


def class_sections(found: Findings) -> Iterator[Section]:
    """The ID rows by predicted and by true class, the most rejected first."""
    for title, groups, words in (
        ("ID rows by predicted class", found.by_predicted, "What the classifier takes them for; --per-class calibrates by this."),
        ("ID rows by true class", found.by_class, "What they are: whose inputs are turned away."),
    ):
        if groups:
            ordered = sorted(groups.items(), key=lambda item: -(item[1].rejected_share or 0))[:SHOWN_CLASSES]
            more = len(groups) - len(ordered)
            rest = f" The {SHOWN_CLASSES} most rejected; {more} more in --json." if more else ""
            yield Section(title, [words + rest], table=counts_table(dict(ordered), "class", labelled=found.by_class is not None))
    if len(found.alarms) > 1:
        words = "Rejections expected of a promise that is kept, for all classes together with 95 % confidence; others are marked."
        yield Section("Promises by predicted class", [words], table=alarm_table(found))


def alarm_table(found: Findings) -> Table:
    """Each threshold with its promise, and what came; those that chance does not explain are marked, and stand first."""
    shown = sorted(found.alarms, key=lambda alarm: alarm.most - alarm.rejected)[:SHOWN_CLASSES]
    rows = [
        [a.name, f"{a.threshold:g}", f"{a.calibration_rows:,}", f"{a.rows:,}", f"{a.rejected:,}", f"{a.fewest:,} to {a.most:,}"]
        for a in shown
    ]
    off = frozenset((r, 4) for r, a in enumerate(shown) if not a.fewest <= a.rejected <= a.most)
    return Table(["class", "threshold", "calibration rows", "test rows", "rejected", "expected"], rows, off)


def ood_sections(examined: Examination) -> Iterator[Section]:
    """How well OOD sets are told from ID data, by numbers and by histograms."""
    if not examined.unknown:
        return
    rows = [
        [name, hundredth(ood.counts.accepted / ood.counts.rows), *(hundredth(value) for value in asdict(ood.metrics).values())]
        for name, ood in examined.found.oods.items()
    ]
    words = (
        "In per cent. All but the first column are the same for any threshold; ID is the positive class, and as many OOD as ID "
        "rows are taken, as `bal evaluate` does."
    )
    table = Table(["OOD set", "accepted ↓", *HEADINGS.values()], rows)
    yield Section("How well OOD is told from ID", [words], table=table)
    words = (
        "Each ID bar holds about as many ID rows, so the ID histogram is flat; an OOD row far to the left is easy to reject. "
        "What stands right of the dashed line is accepted. Log scale."
    )
    margins = {name: margin(examined.detector, seen.rows) for name, seen in examined.unknown.items()}
    yield Section("Scores", [words], svg=histograms(margin(examined.detector, examined.known.rows), margins))


def margin(detector: Detector, rows: Rows) -> Scores:
    """How far each score lies above the threshold of its class; -inf for rows that are not valid."""
    threshold = detector.threshold_.numpy()
    return np.where(rows.valid, rows.score - (threshold[rows.predicted] if threshold.ndim else threshold), -np.inf)


def histograms(known: Scores, unknown: Mapping[str, Scores]) -> str:
    """A figure for each OOD set, by how far scores lie above the threshold."""
    cut = float(np.mean(known < 0))
    panels = ({name: (known, scores)} for name, scores in unknown.items())
    return "".join(figures.score_histograms(panel, cut=cut, words="threshold") for panel in panels)


def selective_sections(examined: Examination) -> Iterator[Section]:
    """Coverage against risk."""
    found, known = examined.found, examined.found.known
    if found.selective is None or found.best_aurc is None:
        return
    everything = next(iter(found.selective.values())).error_at_coverage[1.0]
    words = [
        "Accept the rows of the highest scores only: how many of them does the classifier get wrong? A useful score has a line "
        f"that rises to the right. AURC is the mean of the line, lower is better: {found.best_aurc:.4f} if every error came "
        f"last, about {everything:.4f} for a score that knows nothing."
    ]
    if len(found.thresholds) > 1:
        words.append("The dot may lie beside the line, since each class has a threshold of its own.")
    rows = [[name, f"{own.aurc:.4f}", *map(hundredth, own.error_at_coverage.values())] for name, own in found.selective.items()]
    table = Table(["score", "AURC ↓", *(f"wrong at {coverage:.0%}" for coverage in COVERAGES)], rows)
    accuracy, valid = known.accepted_accuracy, known.rows - known.invalid
    chosen = None if accuracy is None else (known.accepted / valid, 1 - accuracy)
    svg = figures.risk_coverage_curves(selective_curves(examined.detector, examined.known.rows), chosen)
    yield Section("Coverage against risk", words, table=table, svg=svg)


def picture_sections(examined: Examination) -> Iterator[Section]:
    """Pictures of what went wrong, and of what was rejected with most reason."""
    spec = examined.detector.spec_
    if not shows_pictures(examined.detector):
        came = "features" if spec is None else f"of the shape {spec.shape}"
        yield Section("Pictures", [f"There are none: the inputs are {came}, not images of 1 or 3 channels."])
        return
    groups = [(*KINDS[kind], examples) for kind, examples in examined.known.examples.items()]
    for name, seen in examined.unknown.items():
        groups += [
            (f"{name} accepted", "Misses, the highest score first.", seen.examples.get("accepted", [])),
            (f"{name} rejected", "The lowest score first.", seen.examples.get("rejected", [])),
        ]
    for title, words, examples in groups:
        if examples:
            yield Section(title, [words], gallery=[captioned(example, examined.found.classes) for example in examples])


def captioned(example: Example, classes: Sequence[str]) -> Picture:
    """A picture with what it is, if known, what it is taken for, and how sure the detector is."""
    lines = [] if example.label is None else [f"is {classes[example.label]}"]
    lines += [f"taken for {classes[example.predicted]}", f"confidence {example.confidence:.2g}"]
    if np.isfinite(example.p_value):
        lines.append(f"p-value {example.p_value:.2g}")
    if example.p1 is not None:
        lines += [f"p1 {example.p1:.2g}", f"p2 {example.p2:.2g}"]
    return Picture(figures.picture(example.image), lines)
