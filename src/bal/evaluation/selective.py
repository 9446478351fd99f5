"""Selective classification: how the errors among accepted rows go down as fewer rows are accepted.

Geifman & El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017; AURC is the area under this curve.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bal.errors import DataError
from bal.evaluation.metrics import Scores, checked_scores


@dataclass(frozen=True)
class RiskCoverage:
    """A point for each distinct threshold, from the strictest to accepting all.

    ``coverage``: share of the rows accepted there; ``risk``: share of those that are wrong; ``aurc``: the mean risk over rows.
    """

    coverage: Scores
    risk: Scores
    aurc: float


def risk_coverage(scores: ArrayLike, wrong: ArrayLike) -> RiskCoverage:
    r"""Accept rows from the highest score down, and watch how many of them are wrong.

    .. math:: r(t) = \frac{\#\{i : s_i \ge t, \text{wrong}\}}{\#\{i : s_i \ge t\}}, \quad
        \mathrm{AURC} = \frac{1}{n} \sum_i r(s_i)

    Rows of one score are accepted together, so the order of the rows does not matter.

    >>> risk_coverage([3.0, 2.0, 1.0], [False, True, False]).risk.round(3)
    array([0.   , 0.5  , 0.333])
    """
    known, errors = checked_scores(scores, "scores"), np.asarray(wrong, bool)
    if errors.shape != known.shape:
        raise DataError(f"{len(known)} scores came with answers of shape {errors.shape}; say for each row whether it is wrong")
    order = np.argsort(known)[::-1]
    falling, mistakes = known[order], np.cumsum(errors[order])
    last = np.append(falling[1:] != falling[:-1], True)  # of the rows of one score, (N,)
    accepted = np.flatnonzero(last) + 1
    risk = mistakes[last] / accepted
    rows = np.diff(accepted, prepend=0)  # that come in at each threshold
    return RiskCoverage(accepted / len(known), risk, float((risk * rows).sum() / len(known)))


def best_aurc(rows: int, wrong: int) -> float:
    """AURC of an order that has every wrong row last: no score can do better.

    >>> best_aurc(4, 1)
    0.0625
    """
    accepted = np.arange(1, rows + 1)
    return float(np.mean(np.maximum(accepted - (rows - wrong), 0) / accepted))


def risk_at(curve: RiskCoverage, coverage: float) -> float:
    """The risk where at least this share of the rows is accepted, and no more rows than that takes.

    >>> risk_at(risk_coverage([3.0, 2.0, 1.0], [False, True, False]), 0.5)
    0.5
    """
    place = int(np.searchsorted(curve.coverage, coverage - 1e-12))
    return float(curve.risk[min(place, len(curve.risk) - 1)])


def thinned(curve: RiskCoverage, points: int = 300) -> tuple[Scores, Scores]:
    """Some points of the curve, the first and the last among them: enough to draw it."""
    chosen = np.unique(np.linspace(0, len(curve.coverage) - 1, points).astype(int))
    return curve.coverage[chosen], curve.risk[chosen]
