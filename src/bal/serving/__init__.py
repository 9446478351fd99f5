"""Detectors at work: scoring in batch, here or on a cluster."""

from bal.serving.batch import Outcome, score_stream
from bal.serving.cluster import Cluster, score_on_ray
from bal.serving.extraction import extract_on_ray

__all__ = ["Cluster", "Outcome", "extract_on_ray", "score_on_ray", "score_stream"]
