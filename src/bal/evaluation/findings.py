"""What a detector does with test data, in numbers: what it accepts by class and OOD set, promises kept, errors avoided."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from bal.calibration import Calibration, false_alarm_counts, rate_interval
from bal.data import Data
from bal.data.files import Loaded
from bal.detectors import Detector, detector_name
from bal.evaluation.metrics import Metrics
from bal.evaluation.observation import Observed, Rows, observe
from bal.evaluation.protocol import evaluate
from bal.evaluation.selective import RiskCoverage, best_aurc, risk_at, risk_coverage
from bal.features import Features

CONFIDENCE = 0.95
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.5)


@dataclass(frozen=True)
class Counts:
    """Rows of a group: each is accepted, rejected or not valid. What is not known is None.

    ``rejected_share`` is that of the valid rows, between ``low`` and ``high`` with 95 % confidence; ``accuracy`` is the
    classifier's on all rows, ``accepted_accuracy`` on those accepted.
    """

    rows: int
    accepted: int
    rejected: int
    invalid: int
    rejected_share: float | None
    low: float
    high: float
    accuracy: float | None = None
    accepted_accuracy: float | None = None

    @classmethod
    def of(cls, rows: int, accepted: int, invalid: int = 0, right: int | None = None, right_accepted: int | None = None) -> Self:
        """From counts; ``right`` of all rows and ``right_accepted`` of the accepted ones get their label."""
        valid = rows - invalid
        return cls(
            rows,
            accepted,
            valid - accepted,
            invalid,
            share(valid - accepted, valid),
            *rate_interval(valid - accepted, valid, CONFIDENCE),
            None if right is None else share(right, rows),
            None if right_accepted is None else share(right_accepted, accepted),
        )


@dataclass(frozen=True)
class Alarm:
    """One threshold's promise and how the test rows kept it: rejections expected between ``fewest`` and ``most`` of them."""

    name: str
    threshold: float
    calibration_rows: int
    low: float  # of the rate of this very calibration
    high: float
    rows: int
    rejected: int
    fewest: int
    most: int


@dataclass(frozen=True)
class Selective:
    """How well a score finds the classifier's errors: AURC, and the error rate where only some rows are accepted."""

    aurc: float
    error_at_coverage: dict[float, float]


@dataclass(frozen=True)
class OODFindings:
    """An OOD set: what is accepted of it, and the metrics against the ID data, with equal counts."""

    counts: Counts
    metrics: Metrics


@dataclass(frozen=True)
class Findings:
    """All numbers of one evaluation; ``thresholds`` and ``alarms`` have one entry, or one for each predicted class.

    ``left_out`` counts files that could not be read, by data set. ``selective`` and ``by_class`` need labels.
    """

    detector: str
    classes: tuple[str, ...]
    thresholds: tuple[float, ...]
    false_alarm: float | None
    alarms: tuple[Alarm, ...]
    known: Counts
    by_predicted: dict[str, Counts]
    by_class: dict[str, Counts] | None = None
    oods: dict[str, OODFindings] = field(default_factory=dict)
    selective: dict[str, Selective] | None = None
    best_aurc: float | None = None
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Examination:
    """A detector with what it saw, and the numbers of that."""

    detector: Detector
    known: Observed
    unknown: dict[str, Observed]
    found: Findings


def examine(
    detector: Detector,
    test: Data | Features | Loaded,
    oods: Iterable[tuple[str, Data | Features | Loaded]],
    *,
    show_progress: bool = True,
) -> Examination:
    """Look at ID test data and at OOD sets by name, one after the other, in one pass of each."""
    known = observe(detector, test, known=True, name="test data", show_progress=show_progress)
    unknown = {name: observe(detector, data, known=False, name=name, show_progress=show_progress) for name, data in oods}
    return Examination(detector, known, unknown, find(detector, known, unknown))


def find(detector: Detector, seen: Observed, unknown: Mapping[str, Observed]) -> Findings:
    """All numbers of a detector on known data and on OOD sets by name."""
    known, names = seen.rows, class_names(detector)
    curves = selective_curves(detector, known)
    calibration = detector.calibration_
    return Findings(
        detector=detector_name(detector),
        classes=names,
        thresholds=tuple(detector.threshold_.reshape(-1).tolist()),
        false_alarm=None if calibration is None else calibration.false_alarm,
        alarms=() if calibration is None else alarms(calibration, known, names),
        known=count(known),
        by_predicted=by_class(known, known.predicted, names),
        by_class=None if known.labels is None else by_class(known, known.labels, names),
        oods={name: OODFindings(count(ood.rows), evaluate(known.score, ood.rows.score)) for name, ood in unknown.items()},
        selective={name: selective(curve) for name, curve in curves.items()} if curves else None,
        best_aurc=best_aurc(int(known.valid.sum()), int(errors(known, known.predicted).sum())) if curves else None,
        left_out={"the test data": seen.left_out, **{name: ood.left_out for name, ood in unknown.items()}},
    )


def share(part: int, whole: int) -> float | None:
    """A share, unless there is nothing to share."""
    return part / whole if whole else None


def class_names(detector: Detector) -> tuple[str, ...]:
    """What the classes of a detector are called, each differently."""
    _, classes = detector.sizes_ or (0, 0)
    return told_apart(detector.class_names_, classes)


def told_apart(names: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    """Names of classes, each different: by their folders, or by number.

    >>> told_apart(["cat", "dog", "cat"], 3), told_apart(None, 2)
    (('cat (0)', 'dog', 'cat (2)'), ('class 0', 'class 1'))
    """
    names = names or [f"class {c}" for c in range(classes)]
    return tuple(f"{name} ({c})" if names.count(name) > 1 else name for c, name in enumerate(names))


def count(rows: Rows, which: NDArray[np.bool_] | None = None) -> Counts:
    """The counts of all rows, or of some."""
    chosen = np.ones(len(rows), bool) if which is None else which
    taken = chosen & rows.accepted
    right = None if rows.labels is None else chosen & (rows.predicted == rows.labels)
    return Counts.of(
        int(chosen.sum()),
        int(taken.sum()),
        int((chosen & ~rows.valid).sum()),
        None if right is None else int(right.sum()),
        None if right is None else int((right & taken).sum()),
    )


def by_class(rows: Rows, classes: NDArray[np.int64], names: Sequence[str]) -> dict[str, Counts]:
    """The counts of every class that occurs."""
    return {names[c]: count(rows, classes == c) for c in range(len(names)) if (classes == c).any()}


def alarms(calibration: Calibration, rows: Rows, names: Sequence[str]) -> tuple[Alarm, ...]:
    """Each threshold's promise beside what came; the expected counts hold for all thresholds together with 95 % confidence."""
    found = []
    thresholds = calibration.threshold().reshape(-1).tolist()
    confidence = 1 - (1 - CONFIDENCE) / len(thresholds)
    for c, (threshold, told) in enumerate(zip(thresholds, calibration.false_alarms(CONFIDENCE), strict=True)):
        mine = rows.valid & (rows.predicted == c) if calibration.per_class else rows.valid
        tested, rejected = int(mine.sum()), int((mine & ~rows.accepted).sum())
        expected = false_alarm_counts(told.rows, calibration.false_alarm, tested, confidence)
        name = names[c] if calibration.per_class else "all classes"
        found.append(Alarm(name, threshold, told.rows, told.low, told.high, tested, rejected, *expected))
    return tuple(found)


def errors(rows: Rows, predicted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which valid rows get a wrong label, (valid rows,)."""
    return np.asarray((predicted != rows.labels)[rows.valid])


def selective_curves(detector: Detector, rows: Rows) -> dict[str, RiskCoverage]:
    """Coverage against risk on valid rows, by the detector and by the classifier's own confidence; none without labels."""
    if rows.labels is None or not rows.valid.any():
        return {}
    scores = {
        detector_name(detector): (rows.score, rows.predicted),
        "max-softmax": (rows.log_p1, rows.taken_for),
    }
    return {name: risk_coverage(score[rows.valid], errors(rows, predicted)) for name, (score, predicted) in scores.items()}


def selective(curve: RiskCoverage) -> Selective:
    """The numbers of a curve."""
    return Selective(curve.aurc, {coverage: risk_at(curve, coverage) for coverage in COVERAGES})
