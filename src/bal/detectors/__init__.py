"""BAL and its rivals behind one contract."""

from bal.detectors.aec import AEC
from bal.detectors.bal import BAL
from bal.detectors.base import Detector, FeatureDetector, HeadDetector, InputDetector
from bal.detectors.files import load
from bal.detectors.geometry import FDBD, NCI, SHE, GradNorm
from bal.detectors.hub import from_pretrained, push_to_hub
from bal.detectors.knn import KNN
from bal.detectors.mahalanobis import Mahalanobis, MahalanobisPlusPlus, RelativeMahalanobis
from bal.detectors.odin import ODIN
from bal.detectors.prediction import OOD, Prediction
from bal.detectors.registry import DETECTORS, detector_name, make_detector
from bal.detectors.shaping import ASH, DICE, SCALE, ReAct
from bal.detectors.softmax import GEN, Energy, Entropy, KLMatching, MaxLogit, MaxSoftmax, log_max_softmax
from bal.detectors.trained import GCPL, GeneralizedODIN
from bal.detectors.vim import ViM
from bal.detectors.vos import VirtualOutliers

__all__ = [
    "AEC",
    "ASH",
    "BAL",
    "DETECTORS",
    "DICE",
    "FDBD",
    "GCPL",
    "GEN",
    "KNN",
    "NCI",
    "ODIN",
    "OOD",
    "SCALE",
    "SHE",
    "Detector",
    "Energy",
    "Entropy",
    "FeatureDetector",
    "GeneralizedODIN",
    "GradNorm",
    "HeadDetector",
    "InputDetector",
    "KLMatching",
    "Mahalanobis",
    "MahalanobisPlusPlus",
    "MaxLogit",
    "MaxSoftmax",
    "Prediction",
    "ReAct",
    "RelativeMahalanobis",
    "ViM",
    "VirtualOutliers",
    "detector_name",
    "from_pretrained",
    "load",
    "log_max_softmax",
    "make_detector",
    "push_to_hub",
]
