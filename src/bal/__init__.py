"""Boundary Aware Learning: a trained classifier learns to say "I don't know this".

    classifier = bal.Classifier(model)
    detector = bal.BAL().fit(classifier, (images, labels))
    detector.calibrate(held_out, false_alarm=0.05)
    detector.predict(new_images).label        # -1 where the image is out of distribution
    detector.save("detector"); bal.load("detector", classifier)

Names are imported when first used, so that ``import bal`` and ``bal --help`` do not wait for torch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bal._version import __version__

if TYPE_CHECKING:
    from bal.backbones import Classifier, Normalise
    from bal.data import load_sample
    from bal.detectors import BAL, MaxSoftmax, Prediction, from_pretrained, load, make_detector, push_to_hub
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
    "from_pretrained": "bal.detectors",
    "load": "bal.detectors",
    "load_sample": "bal.data",
    "make_detector": "bal.detectors",
    "push_to_hub": "bal.detectors",
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
    "from_pretrained",
    "load",
    "load_sample",
    "make_detector",
    "push_to_hub",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        if not name.startswith("_") and find_spec(f"bal.{name}"):
            return import_module(f"bal.{name}")
        raise AttributeError(f"module 'bal' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
