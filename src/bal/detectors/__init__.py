"""BAL and its rivals behind one contract."""

from bal.detectors.bal import BAL, BALSettings
from bal.detectors.base import OOD, FeatureDetector, Prediction
from bal.detectors.softmax import MaxSoftmax, log_max_softmax

__all__ = ["BAL", "OOD", "BALSettings", "FeatureDetector", "MaxSoftmax", "Prediction", "log_max_softmax"]
