"""Every detector by name. A line here subscribes a detector to the contract tests, `bal compare` and files."""

from typing import Any

from bal.detectors.aec import AEC
from bal.detectors.bal import BAL
from bal.detectors.base import Detector
from bal.detectors.geometry import FDBD, NCI, SHE, GradNorm
from bal.detectors.knn import KNN
from bal.detectors.mahalanobis import Mahalanobis, MahalanobisPlusPlus, RelativeMahalanobis
from bal.detectors.odin import ODIN
from bal.detectors.shaping import ASH, DICE, SCALE, ReAct
from bal.detectors.softmax import GEN, Energy, Entropy, KLMatching, MaxLogit, MaxSoftmax
from bal.detectors.trained import GCPL, GeneralizedODIN
from bal.detectors.vim import ViM
from bal.detectors.vos import VirtualOutliers
from bal.errors import DataError
from bal.settings import suggestion

DETECTORS: dict[str, type[Detector]] = {
    "BAL": BAL,
    "max-softmax": MaxSoftmax,
    "ODIN": ODIN,
    "Generalized ODIN": GeneralizedODIN,
    "GCPL": GCPL,
    "AEC": AEC,
    "max-logit": MaxLogit,
    "energy": Energy,
    "entropy": Entropy,
    "GEN": GEN,
    "KL-matching": KLMatching,
    "Mahalanobis": Mahalanobis,
    "Mahalanobis++": MahalanobisPlusPlus,
    "relative Mahalanobis": RelativeMahalanobis,
    "kNN": KNN,
    "ViM": ViM,
    "fDBD": FDBD,
    "NCI": NCI,
    "SHE": SHE,
    "GradNorm": GradNorm,
    "ReAct": ReAct,
    "ASH": ASH,
    "SCALE": SCALE,
    "DICE": DICE,
    "VOS": VirtualOutliers,
}


def detector_class(name: str) -> type[Detector]:
    """The class of that name, or whose class has that name, whatever the case.

    >>> detector_class("knn").__name__
    'KNN'
    """
    by_name = {kind.__name__.lower(): known for known, kind in DETECTORS.items()} | {known.lower(): known for known in DETECTORS}
    if name.lower() not in by_name:
        hint = suggestion(name, by_name, n=3, cutoff=0.5) or f"known: {', '.join(DETECTORS)}"
        raise DataError(f"there is no detector {name!r}; {hint}")
    return DETECTORS[by_name[name.lower()]]


def make_detector(name: str, **settings: Any) -> Detector:
    """An unfitted detector by name."""
    return detector_class(name)(**settings)


def detector_name(detector: Detector) -> str:
    """The name a detector is registered by."""
    for name, known in DETECTORS.items():
        if type(detector) is known:
            return name
    raise DataError(f"{type(detector).__name__} is not in the registry; add a line to DETECTORS")
