"""A threshold with a promise: split-conformal calibration on held-out ID scores.

What is promised: if the calibration rows and a new ID row are exchangeable (drawn alike, in no particular order), the new row is
rejected with a probability of at most alpha, for any detector, any classifier and any number n of calibration rows (Vovk,
Gammerman & Shafer, "Algorithmic Learning in a Random World", 2005). The probability runs over the draw of the calibration rows
too; given them, the rate is a random number, and :func:`false_alarm_band` tells its spread. Nothing is promised about OOD rows,
nor about ID rows that have drifted since.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self

from bal.errors import CalibrationError, SettingsError
from bal.settings import check_number

ROWS_SHOWN = 10
BISECTIONS = 60  # halves [0, 1] to below the spacing of float64 near the middle


class FalseAlarm(NamedTuple):
    """The false-alarm rate of one threshold: chosen on ``rows`` rows, ``rate`` on average, between ``low`` and ``high``."""

    rows: int
    rate: float
    low: float
    high: float


def exact(alpha: float) -> Fraction:
    """The decimal number that was typed: 0.29 is 29/100, though 0.29 * 100 is 28.999999999999996."""
    return Fraction(str(float(alpha)))


def rejected_rank(n: int, alpha: float) -> int:
    """Rank of the threshold, k = floor(alpha (n + 1)).

    >>> rejected_rank(99, 0.29)
    29
    """
    return math.floor(exact(alpha) * (n + 1))


def rows_needed(alpha: float) -> int:
    """The smallest n with k >= 1: n >= 1 / alpha - 1.

    >>> rows_needed(0.05), rows_needed(0.3)
    (19, 3)
    """
    return math.ceil(1 / exact(alpha)) - 1


def usable_rank(n: int, alpha: float) -> int:
    """The rank, which must be at least 1."""
    check_alpha(alpha)
    if n < rows_needed(alpha):
        raise CalibrationError(
            f"a false-alarm rate of {alpha:g} needs at least {rows_needed(alpha)} calibration rows, got {n}; "
            "give more ID rows or allow a higher rate"
        )
    return rejected_rank(n, alpha)


def conformal_threshold(scores: ArrayLike, alpha: float) -> NDArray[np.float64]:
    r"""The largest calibration score that new ID rows fall below with a probability of at most alpha.

    .. math:: t = s_{(k)}, \quad k = \lfloor \alpha (n + 1) \rfloor, \quad P(s_{n+1} < t) \le k / (n + 1) \le \alpha

    The probability is exactly k / (n + 1) where scores have no ties, and no larger where they have, since a row on the
    threshold is accepted. Scores (..., n) give thresholds (...).

    >>> conformal_threshold(range(1, 40), 0.05).item()
    2.0
    """
    scores = checked_scores(scores)
    k = usable_rank(scores.shape[-1], alpha)
    return np.asarray(np.partition(scores, k - 1, -1)[..., k - 1])


def p_values(calibration: ArrayLike, scores: ArrayLike) -> NDArray[np.float64]:
    r"""How often ID scores as low as this: the chance of an ID row to score no higher, at most.

    .. math:: p(x) = \frac{1 + \#\{i : s_i \le s(x)\}}{n + 1} \in (0, 1]

    For ID rows P(p <= alpha) <= alpha, and p <= alpha just where s(x) < :func:`conformal_threshold`.

    >>> p_values([1.0, 2.0, 3.0], [0.0, 2.0, 9.0])
    array([0.25, 0.75, 1.  ])
    """
    scores = np.asarray(scores, np.float64)
    if np.isnan(scores).any():
        raise CalibrationError(f"scores must be numbers, got NaN in rows {some(np.isnan(scores))}; leave them out")
    return p_among(np.sort(checked_scores(calibration)), scores)


def p_among(calibration: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for calibration scores that are sorted already."""
    return np.asarray((1 + np.searchsorted(calibration, scores, side="right")) / (len(calibration) + 1))


def false_alarm_band(n: int, alpha: float, confidence: float = 0.95) -> tuple[float, float]:
    r"""Between which rates the false alarms lie, given the n calibration rows, with this confidence.

    .. math:: P(s_{n+1} < t \mid s_1, \dots, s_n) \sim \mathrm{Beta}(k, n + 1 - k)

    for scores without ties, and no larger with them (Vovk, 2012, "Conditional validity of inductive conformal predictors").

    >>> [round(rate, 4) for rate in false_alarm_band(1000, 0.05)]
    [0.0373, 0.0643]
    """
    check_number("confidence", confidence, low=0, high=1)
    k = usable_rank(n, alpha)
    return beta_quantile(k, n, (1 - confidence) / 2), beta_quantile(k, n, (1 + confidence) / 2)


def beta_quantile(k: int, n: int, probability: float) -> float:
    """The quantile of Beta(k, n + 1 - k), by bisection: its distribution function at x is P(Binomial(n, x) >= k)."""
    j = np.arange(1, k)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log((n - j + 1) / j))])  # log C(n, j) for j = 0 .. k - 1
    j = np.arange(k)
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        x = (low + high) / 2
        fewer = np.exp(log_choose + j * np.log(x) + (n - j) * np.log1p(-x)).sum()  # P(Binomial(n, x) < k)
        low, high = (x, high) if 1 - fewer < probability else (low, x)
    return (low + high) / 2


def rate_interval(count: int, rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """Between which rates the one behind ``count`` of ``rows`` lies, with this confidence at least (Clopper & Pearson, 1934).

    >>> [round(rate, 4) for rate in rate_interval(5, 100)]
    [0.0164, 0.1128]
    """
    check_number("confidence", confidence, low=0, high=1)
    tail = (1 - confidence) / 2
    low = beta_quantile(count, rows, tail) if count else 0.0
    return low, beta_quantile(count + 1, rows, 1 - tail) if count < rows else 1.0


def false_alarm_counts(n: int, alpha: float, rows: int, confidence: float = 0.95) -> tuple[int, int]:
    r"""How many of ``rows`` new ID rows the threshold of n calibration rows rejects, from and to, with this confidence at least.

    .. math:: J \sim \mathrm{BetaBinomial}(m, k, n + 1 - k), \quad
        \frac{P(j + 1)}{P(j)} = \frac{(m - j)(k + j)}{(j + 1)(n - k + m - j)}

    The draw of both is in it, so it is wider than :func:`false_alarm_band`. Where scores have ties, fewer may be rejected.

    >>> false_alarm_counts(1000, 0.05, 1000)
    (32, 70)
    """
    check_number("confidence", confidence, low=0, high=1)
    k, j = usable_rank(n, alpha), np.arange(rows)
    log_p = np.concatenate([[0.0], np.cumsum(np.log((rows - j) * (k + j) / ((j + 1) * (n - k + rows - j))))])
    p = np.exp(log_p - log_p.max())
    tail = (1 - confidence) / 2 * p.sum()
    low = int(np.searchsorted(np.cumsum(p), tail, side="right"))  # fewer than this: no likelier than the tail
    return low, rows - int(np.searchsorted(np.cumsum(p[::-1]), tail, side="right"))


@dataclass(frozen=True)
class Calibration:
    """ID scores that thresholds were chosen by: one sorted array for all rows, or one for each predicted class."""

    false_alarm: float
    groups: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(
        cls, scores: ArrayLike, predicted: NDArray[np.int64], *, classes: int, false_alarm: float, per_class: bool = False
    ) -> Self:
        """Calibrate by scores (N,) and, with ``per_class``, the class predicted for each row; too few rows are refused."""
        check_alpha(false_alarm)
        scores = np.asarray(scores, np.float64)
        groups = tuple(scores[predicted == c] for c in range(classes)) if per_class else (scores,)
        scarce = {c: len(rows) for c, rows in enumerate(groups) if len(rows) < rows_needed(false_alarm)}
        if scarce and per_class:
            raise CalibrationError(
                f"a false-alarm rate of {false_alarm:g} for each predicted class needs at least {rows_needed(false_alarm)} "
                f"calibration rows in each; too few for {{class: rows}} {scarce}. "
                "Give more ID rows, allow a higher rate, or calibrate all classes together"
            )
        for rows in groups:
            conformal_threshold(rows, false_alarm)  # refuses what cannot be calibrated
        return cls(float(false_alarm), tuple(np.sort(rows) for rows in groups))

    @property
    def per_class(self) -> bool:
        """Whether each predicted class has a threshold of its own."""
        return len(self.groups) > 1

    def threshold(self) -> NDArray[np.float64]:
        """One number, or (classes,)."""
        thresholds = np.array([conformal_threshold(rows, self.false_alarm) for rows in self.groups])
        return thresholds if self.per_class else thresholds.reshape(())

    def p_values(self, scores: NDArray[np.float64], predicted: NDArray[np.int64]) -> NDArray[np.float64]:
        """P-values (N,) of rows, each among the calibration rows of its own predicted class if ``per_class``."""
        if not self.per_class:
            return p_among(self.groups[0], scores)
        p = np.empty(len(scores))
        for c, rows in enumerate(self.groups):
            p[predicted == c] = p_among(rows, scores[predicted == c])
        return p

    def false_alarms(self, confidence: float = 0.95) -> tuple[FalseAlarm, ...]:
        """What to expect of each threshold: the mean rate k / (n + 1), and a band for the rate of this very calibration."""
        return tuple(
            FalseAlarm(
                n, rejected_rank(n, self.false_alarm) / (n + 1), *false_alarm_band(n, self.false_alarm, confidence=confidence)
            )
            for n in map(len, self.groups)
        )

    def state(self) -> dict[str, Tensor]:
        """As named tensors."""
        return {
            "false_alarm": torch.tensor(self.false_alarm, dtype=torch.float64),
            "calibration_scores": torch.from_numpy(np.concatenate(self.groups)),
            "calibration_rows": torch.tensor([len(rows) for rows in self.groups]),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Self | None:
        """The inverse of :meth:`state`; None where there is none. What could not have been calibrated is refused."""
        if "false_alarm" not in state:
            return None
        groups = state["calibration_scores"].split(state["calibration_rows"].tolist())
        found = cls(state["false_alarm"].item(), tuple(np.sort(rows.numpy()) for rows in groups))
        found.threshold()
        return found


def check_alpha(alpha: float) -> None:
    """A rate between 0 and 1, both excluded."""
    check_number("false_alarm", alpha, low=0, high=1)
    if alpha in (0, 1):
        raise SettingsError(f"a false-alarm rate of {alpha:g} accepts or rejects everything; give a rate between, such as 0.05")


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores (..., n) as float64; any that is not finite is refused with its place."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 0:
        raise CalibrationError("calibration scores must be (n,), got a single number")
    refuse_rows(~np.isfinite(scores))
    return scores


def refuse_rows(bad: NDArray[np.bool_]) -> None:
    """Refuse calibration rows that have no finite score, by name."""
    if bad.any():
        raise CalibrationError(
            f"{bad.sum()} of {bad.size} calibration rows have no finite score: rows {some(bad)}. "
            "Find out why, and leave them out; invalid rows are rejected whatever the threshold"
        )


def some(rows: NDArray[np.bool_]) -> str:
    """The first few places of what is marked."""
    places = np.flatnonzero(rows)
    return ", ".join(map(str, places[:ROWS_SHOWN])) + (" ..." if len(places) > ROWS_SHOWN else "")
