"""Time of all five metrics on 10 million scores, ours against scikit-learn's for the same figures.

    python benchmarks/metrics.py [scores]      about a minute and 2 GB for 10,000,000

Measured on 2 cores of a shared machine; see docs/benchmarks.md. Compare the ratio, not the seconds.
"""

import sys
import time

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bal.evaluation import detection_metrics


def by_scikit_learn(known: np.ndarray, unknown: np.ndarray) -> dict[str, float]:
    labels = np.concatenate([np.ones(len(known), np.int8), np.zeros(len(unknown), np.int8)])
    scores = np.concatenate([known, unknown])
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    at = np.searchsorted(tpr, 0.95)
    return {
        "fpr95": fpr[at],
        "detection_error": 0.5 * (1 - tpr[at]) + 0.5 * fpr[at],
        "auroc": roc_auc_score(labels, scores),
        "aupr_in": average_precision_score(labels, scores),
        "aupr_out": average_precision_score(1 - labels, -scores),
    }


def main(count: int) -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(1, 1, count // 2), rng.normal(0, 1, count // 2)
    started = time.process_time()
    ours = detection_metrics(known, unknown)
    ours_seconds = time.process_time() - started
    started = time.process_time()
    theirs = by_scikit_learn(known, unknown)
    theirs_seconds = time.process_time() - started
    for name, value in theirs.items():
        assert abs(getattr(ours, name) - value) < 1e-9, name
    ratio = ours_seconds / theirs_seconds
    print(f"{count:,} scores: ours {ours_seconds:.2f} CPU-s, scikit-learn {theirs_seconds:.2f} CPU-s, ratio {ratio:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
