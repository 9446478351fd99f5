"""Boundary Aware Learning: a trained classifier learns to say "I don't know this".

    classifier = bal.Classifier(model)
    detector = bal.BAL().fit(classifier, (images, labels))
    detector.calibrate(held_out, false_alarm=0.05)
    detector.predict(new_images).label        # -1 where the image is out of distribution

Names are imported when first used, so that ``import bal`` and ``bal --help`` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bal._version import __version__

if TYPE_CHECKING:
    from bal.backbones import Classifier, Normalise
    from bal.data import load_sample
    from bal.detectors import BAL, MaxSoftmax, Prediction, load_detector, make_detector, save_detector
    from bal.evaluation import evaluate
    from bal.features import FeatureCache, Features, extract

_HOMES = {
    "BAL": "bal.detectors",
    "Classifier": "bal.backbones",
    "FeatureCache": "bal.features",
    "Features": "bal.features",
    "MaxSoftmax": "bal.detectors",
    "Normalise": "bal.backbones",
    "Prediction": "bal.detectors",
    "evaluate": "bal.evaluation",
    "extract": "bal.features",
    "load_detector": "bal.detectors",
    "load_sample": "bal.data",
    "make_detector": "bal.detectors",
    "save_detector": "bal.detectors",
}

__all__ = [
    "BAL",
    "Classifier",
    "FeatureCache",
    "Features",
    "MaxSoftmax",
    "Normalise",
    "Prediction",
    "__version__",
    "evaluate",
    "extract",
    "load_detector",
    "load_sample",
    "make_detector",
    "save_detector",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bal' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
