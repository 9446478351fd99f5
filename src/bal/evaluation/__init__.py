"""Metrics and the protocol they are measured by (Sec. 5.2)."""

from bal.evaluation.assessment import Assessment, OODSet, assess
from bal.evaluation.findings import Examination, Findings, examine
from bal.evaluation.metrics import Metrics, detection_metrics, fpr_at_tpr, fpr_at_tpr_ood_positive, threshold_at_tpr
from bal.evaluation.protocol import Interval, bootstrap, equal_counts, evaluate
from bal.evaluation.search import search_odin
from bal.evaluation.selective import RiskCoverage, risk_coverage

__all__ = [
    "Assessment",
    "Examination",
    "Findings",
    "Interval",
    "Metrics",
    "OODSet",
    "RiskCoverage",
    "assess",
    "bootstrap",
    "detection_metrics",
    "equal_counts",
    "evaluate",
    "examine",
    "fpr_at_tpr",
    "fpr_at_tpr_ood_positive",
    "risk_coverage",
    "search_odin",
    "threshold_at_tpr",
]
