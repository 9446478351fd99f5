"""Detectors at work: scoring in batch."""

from bal.serving.batch import Outcome, score_stream

__all__ = ["Outcome", "score_stream"]
