"""A fitted detector as one file: its tensors, its settings, and the fingerprint of the classifier it belongs to."""

from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from torch import nn

from bal._version import __version__
from bal.backbones import Classifier, as_classifier
from bal.detectors.base import Detector
from bal.detectors.registry import detector_class, detector_name
from bal.errors import StorageError
from bal.storage import load_tensors, save_tensors

SCHEMA = 1


def save_detector(detector: Detector, path: str | Path) -> None:
    """Write a fitted detector, whole or not at all."""
    settings = {
        "schema": SCHEMA,
        "bal": __version__,
        "detector": detector_name(detector),
        "settings": asdict(detector),  # type: ignore[call-overload]
        "classifier": None if detector.classifier_ is None else detector.classifier_.fingerprint(),
    }
    save_tensors(Path(path), detector.state(), settings)


def load_detector(path: str | Path, classifier: Classifier | nn.Module | None = None) -> Detector:
    """Read a detector; it must belong to ``classifier``, or be used on features alone."""
    classifier = None if classifier is None else as_classifier(classifier)
    tensors, settings = load_tensors(Path(path))
    if settings.get("schema") != SCHEMA:
        raise StorageError(f"{path} has schema {settings.get('schema')}, this bal reads schema {SCHEMA}; update bal or fit again")
    if classifier is not None and settings["classifier"] not in (None, classifier.fingerprint()):
        raise StorageError(f"{path} was fitted on another classifier (its weights differ); load that one, or fit again")
    detector: Detector = from_settings(detector_class(settings["detector"]), settings["settings"])
    return detector.load_state(tensors, classifier)


def from_settings(kind: type[Any], settings: dict[str, Any]) -> Any:
    """Rebuild a dataclass, and those inside it, from what asdict and JSON made of it."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for item in fields(kind):
        value = settings[item.name]
        if is_dataclass(hints[item.name]) and isinstance(value, dict):
            value = from_settings(hints[item.name], value)
        values[item.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
