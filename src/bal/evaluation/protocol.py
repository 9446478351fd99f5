"""The paper's protocol: as many OOD as ID examples (Sec. 5.2), chosen by a seed, with bootstrap confidence intervals."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bal.evaluation.metrics import Metrics, Scores, checked_scores, detection_metrics, sorted_scores
from bal.settings import check_number, check_seed


@dataclass(frozen=True)
class Interval:
    """A confidence interval of one metric."""

    low: float
    high: float


def equal_counts(id_scores: ArrayLike, ood_scores: ArrayLike, *, seed: int = 0) -> tuple[Scores, Scores]:
    """Cut the larger side down to the size of the smaller by a random choice of rows."""
    check_seed(seed)
    known, unknown = checked_scores(id_scores, "id_scores"), checked_scores(ood_scores, "ood_scores")
    n = min(len(known), len(unknown))
    rng = np.random.default_rng(seed)
    return choose(known, n, rng), choose(unknown, n, rng)


def choose(scores: Scores, n: int, rng: np.random.Generator) -> Scores:
    """N of the scores, without repeats; all of them, in order, if there are n."""
    return scores if len(scores) == n else scores[rng.choice(len(scores), n, replace=False)]


def evaluate(id_scores: ArrayLike, ood_scores: ArrayLike, *, balanced: bool = True, seed: int = 0) -> Metrics:
    """The five metrics; ``balanced`` keeps the counts of both sides the same, as the paper does.

    >>> evaluate([3.0, 2.0, 1.0, 2.0], [0.0])
    Metrics(fpr95=0.0, detection_error=0.0, auroc=1.0, aupr_in=1.0, aupr_out=1.0)
    """
    if balanced:
        id_scores, ood_scores = equal_counts(id_scores, ood_scores, seed=seed)
    return detection_metrics(id_scores, ood_scores)


def bootstrap(
    id_scores: ArrayLike,
    ood_scores: ArrayLike,
    *,
    balanced: bool = True,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Percentile intervals of every metric: both sides drawn again with repeats, ``resamples`` times.

    ``balanced`` draws as many of each side as the smaller one has, as :func:`evaluate` does. The intervals tell how much the
    numbers would move with other test images, not with another training.
    """
    check_number("confidence", confidence, low=0, high=1)
    check_number("resamples", resamples, low=1, whole=True)
    check_seed(seed)
    known, unknown = sorted_scores(id_scores, "id_scores"), sorted_scores(ood_scores, "ood_scores")
    smaller = min(len(known), len(unknown))
    rng = np.random.default_rng(seed)

    def draw(scores: Scores) -> Scores:
        count = smaller if balanced else len(scores)
        return scores[np.sort(rng.integers(len(scores), size=count))]  # stays sorted, so that the sort after it is quick

    rows: NDArray[np.float64] = np.array(
        [list(asdict(detection_metrics(draw(known), draw(unknown))).values()) for _ in range(resamples)]
    )
    low, high = np.quantile(rows, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    names = Metrics.__dataclass_fields__
    return {name: Interval(float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}
