"""One fitted detector on ID and OOD data: how well it ranks them, and what its threshold accepts."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bal.data import Data
from bal.detectors import Detector, Prediction, detector_name
from bal.errors import DataError
from bal.evaluation.metrics import Metrics
from bal.evaluation.protocol import evaluate
from bal.features import Features


@dataclass(frozen=True)
class OODSet:
    """Rows of an OOD set, the share of them that is accepted, and the metrics against the ID data."""

    rows: int
    accepted: float
    metrics: Metrics


@dataclass(frozen=True)
class Assessment:
    """``rejected`` is the share of the ID rows called OOD; ``accuracy`` is that of the classifier on all of them, if known."""

    detector: str
    rows: int
    rejected: float
    accuracy: float | None
    oods: dict[str, OODSet] = field(default_factory=dict)


def assess(
    detector: Detector, test: Data | Features, labels: ArrayLike | None, oods: Iterable[tuple[str, Data | Features]]
) -> Assessment:
    """Measure a detector on ID data and OOD sets by name, in one pass of each; metrics are those of :func:`evaluate`."""
    known = detector.predict(test, threshold=-np.inf)  # the class of every valid row
    _, classes = detector.sizes_ or (0, 0)
    accuracy = None if labels is None else accuracy_of(known, np.asarray(labels), classes)
    rejected = float(1 - accepted(detector, known).mean())
    found = Assessment(detector_name(detector), len(known), rejected, accuracy)
    for name, data in oods:
        unknown = detector.predict(data, threshold=-np.inf)
        share = float(accepted(detector, unknown).mean())
        found.oods[name] = OODSet(len(unknown), share, evaluate(known.score, unknown.score))
    return found


def accuracy_of(answer: Prediction, labels: NDArray[np.int64], classes: int) -> float:
    """Share of the rows that got their label."""
    if labels.shape != answer.label.shape:
        raise DataError(f"{len(answer)} rows came with labels of shape {labels.shape}; give one label for each row")
    return float((answer.label == checked_labels(labels, classes)).mean())


def checked_labels(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Labels that are outputs of the classifier."""
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        raise DataError(
            f"labels of the test data must be 0 to {classes - 1}, the classifier's outputs, got {labels.min()} to "
            f"{labels.max()}; data of other classes is OOD, and unlabelled data is given without labels"
        )
    return labels


def accepted(detector: Detector, answer: Prediction) -> NDArray[np.bool_]:
    """Which rows of an answer without a threshold pass the detector's own."""
    threshold = detector.threshold_.numpy()
    return np.asarray(answer.valid & (answer.score >= (threshold[answer.label] if threshold.ndim else threshold)))
