"""The paper's metrics (Sec. 5.2) on sorted arrays: exact with ties and infinities, ID is the positive class.

Every function takes ``(id_scores, ood_scores)``, higher = more ID, so that no sign can slip.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bal.errors import DataError

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Metrics:
    """The five detection metrics of the paper, as shares in [0, 1]."""

    fpr95: float
    detection_error: float
    auroc: float
    aupr_in: float
    aupr_out: float


def detection_metrics(id_scores: ArrayLike, ood_scores: ArrayLike, *, tpr: float = 0.95) -> Metrics:
    """All five at once, with one sort of each array.

    >>> detection_metrics([3.0, 2.0], [1.0, 0.0])
    Metrics(fpr95=0.0, detection_error=0.0, auroc=1.0, aupr_in=1.0, aupr_out=1.0)
    """
    known, unknown = sorted_scores(id_scores, "id_scores"), sorted_scores(ood_scores, "ood_scores")
    below = np.searchsorted(unknown, known, "left")  # OOD scores below each ID score, (N,)
    at_or_below = np.searchsorted(unknown, known, "right")
    gamma = lowest_kept(known, tpr)
    fpr = (len(unknown) - np.searchsorted(unknown, gamma, "left")) / len(unknown)
    achieved = (len(known) - np.searchsorted(known, gamma, "left")) / len(known)
    return Metrics(
        fpr95=float(fpr),
        detection_error=float(0.5 * (1 - achieved) + 0.5 * fpr),
        auroc=float((below.sum() + at_or_below.sum()) / (2 * len(known) * len(unknown))),
        aupr_in=average_precision(len(known) - first_of_ties(known), len(unknown) - below),
        aupr_out=average_precision(end_of_ties(unknown), np.searchsorted(known, unknown, "right")),
    )


def fpr_at_tpr(id_scores: ArrayLike, ood_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    r"""Share of OOD accepted at the highest threshold that accepts at least ``tpr`` of ID; FPR95 of the paper.

    .. math:: \mathrm{FPR} = P(S(x_{out}) \ge \gamma), \qquad \gamma = \max\{t : P(S(x_{in}) \ge t) \ge 0.95\}
    """
    gamma = threshold_at_tpr(id_scores, tpr=tpr)
    return float(np.mean(checked_scores(ood_scores, "ood_scores") >= gamma))


def fpr_at_tpr_ood_positive(id_scores: ArrayLike, ood_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """The other convention, that of OpenOOD and pytorch-ood: share of ID rejected where ``tpr`` of OOD is caught.

    Another number than FPR95 of the paper: 42 against 90 may be the same scores.
    """
    return fpr_at_tpr(-checked_scores(ood_scores, "ood_scores"), -checked_scores(id_scores, "id_scores"), tpr=tpr)


def threshold_at_tpr(id_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """The highest score gamma with at least ``tpr`` of the ID scores at or above it.

    >>> threshold_at_tpr([3.0, 1.0, 2.0, 4.0], tpr=0.75)
    2.0
    """
    return lowest_kept(sorted_scores(id_scores, "id_scores"), tpr)


def lowest_kept(known: Scores, tpr: float) -> float:
    """The same for scores that are sorted already."""
    if not 0 < tpr <= 1:
        raise DataError(f"the true positive rate must be in (0, 1], got {tpr}")
    n = len(known)
    kept = min(n, int(np.ceil(tpr * n)))
    if (kept - 1) / n >= tpr:  # tpr * n may round up past a whole number
        kept -= 1
    return float(known[n - max(kept, 1)])


def average_precision(true: NDArray[np.int64], false: NDArray[np.int64]) -> float:
    """AUPR as average precision: the mean over positives of TP / (TP + FP) at that positive's own threshold.

    ``true`` and ``false`` count the positives and negatives accepted there, ties included.
    """
    return float(np.mean(true / (true + false)))


def first_of_ties(values: Scores) -> NDArray[np.int64]:
    """For each sorted value, the index of the first one equal to it.

    >>> first_of_ties(np.array([1.0, 2.0, 2.0, 3.0]))
    array([0, 1, 1, 3])
    """
    index = np.arange(len(values))
    index[1:][values[1:] == values[:-1]] = 0
    return np.maximum.accumulate(index)


def end_of_ties(values: Scores) -> NDArray[np.int64]:
    """For each sorted value, how many are equal to it or before it.

    >>> end_of_ties(np.array([1.0, 2.0, 2.0, 3.0]))
    array([1, 3, 3, 4])
    """
    return len(values) - first_of_ties(-values[::-1])[::-1]


def checked_scores(scores: ArrayLike, name: str) -> Scores:
    """Scores as float64 (N,); anything else, NaN and emptiness are refused."""
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a row of numbers, got {type(scores).__name__} ({error})") from error
    if values.ndim != 1:
        raise DataError(f"{name} must be (N,), one score for each input, got {values.shape}")
    if not len(values):
        raise DataError(f"{name} is empty; a metric needs at least one score on each side")
    if np.isnan(values).any():
        rows = np.flatnonzero(np.isnan(values))
        raise DataError(f"{name} has {len(rows)} NaN, first at rows {rows[:5].tolist()}; give invalid rows -inf to reject them")
    return values


def sorted_scores(scores: ArrayLike, name: str) -> Scores:
    """The same, sorted."""
    return np.sort(checked_scores(scores, name))
