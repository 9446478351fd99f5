"""Metrics and the protocol they are measured by (Sec. 5.2)."""

from bal.evaluation.assessment import Assessment, OODSet, assess
from bal.evaluation.metrics import Metrics, detection_metrics, fpr_at_tpr, fpr_at_tpr_ood_positive, threshold_at_tpr
from bal.evaluation.protocol import Interval, bootstrap, equal_counts, evaluate
from bal.evaluation.search import search_odin

__all__ = [
    "Assessment",
    "Interval",
    "Metrics",
    "OODSet",
    "assess",
    "bootstrap",
    "detection_metrics",
    "equal_counts",
    "evaluate",
    "fpr_at_tpr",
    "fpr_at_tpr_ood_positive",
    "search_odin",
    "threshold_at_tpr",
]
