"""Where known scores lie: the histogram that the page draws, with an input's score among them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 40
RARE = 0.005  # scores below this quantile share the first bin
LEAST = 1e-6  # -log p of what is all but certain


def score_histogram(
    known: NDArray[np.float64], thresholds: NDArray[np.float64], *, log_probability: bool, bins: int = BINS
) -> dict[str, Any]:
    """Rising ``edges`` of the bins, to be drawn at equal widths, and the ``shares`` of the known scores in them.

    The outer bins also hold what lies beyond them. Every threshold lies inside, and below it room is left for what is rejected.
    """
    edges = (log_edges if log_probability else plain_edges)(known, thresholds, bins)
    counts, _ = np.histogram(np.clip(known, edges[0], edges[-1]), edges)
    return {"edges": edges.tolist(), "shares": (counts / len(known)).tolist(), "rows": len(known)}


def plain_edges(known: NDArray[np.float64], thresholds: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Equal widths."""
    low, high = min(np.quantile(known, RARE), thresholds.min()), max(known.max(), thresholds.max())
    span = max(high - low, 1e-9 * max(abs(low), abs(high), 1.0))  # all alike: still bins of some width
    return np.linspace(low - span / 3, high + span / 20, bins + 1)


def log_edges(known: NDArray[np.float64], thresholds: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """For logarithms of probabilities, most of them near 0 and some at -50: equal widths in log(-log p)."""
    cost = -np.minimum(np.concatenate([known, thresholds.ravel()]), -LEAST)
    return -np.geomspace(3 * cost.max(), 0.7 * cost.min(), bins + 1)
