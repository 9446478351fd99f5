"""A fitted detector on disk: its tensors, its settings, its thresholds, and the mark of the classifier it belongs to.

Schema 2 is a bundle (:mod:`bal.bundles`). Schema 1 was a single safetensors file; it is still read.
"""

import platform
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor, nn

from bal._version import __version__
from bal.backbones import Classifier, as_classifier
from bal.bundles import Manifest, read_bundle, write_bundle
from bal.detectors.base import Detector
from bal.detectors.probe import behaves_alike, probe
from bal.detectors.registry import detector_class, detector_name
from bal.errors import BalError, DataError, NotFittedError, StorageError
from bal.features import InputSpec
from bal.storage import load_tensors

SCHEMA = 2
TENSORS = "tensors.safetensors"
LIBRARIES = ("torch", "numpy", "safetensors")

# What detectors did before a setting was there, by the class that has it: files of that time do not hold it. These values stay,
# whatever becomes of the defaults. A setting that is new needs a line here, or older files are refused.
BEFORE: dict[str, dict[str, Any]] = {
    "BAL": {
        "evidence": "none",
        "radial_start": (6.0, 3.0),
        "radius": "unit",
        "evidence_start": 1.0,
        "dropout": 0.0,
        "spectral_norm": False,
        "members": 1,
        "prior_quantile": None,
        "temperature": 1.0,
    },
    "GANTraining": {
        "fake_weight": 1.0,
        "warm_up": 0.0,
        "push_base": "generated",
        "push_steps": 1,
        "hard_share": 0.5,
        "r1": 0.0,
    },
    "Epsilon": {"relative": False},
}


class UnknownSettingError(LookupError):
    """A file lacks a setting, and what it did without is not known."""


def save(detector: Detector, path: str | Path, class_names: Sequence[str] | None = None) -> None:
    """Write a fitted detector, whole or not at all: into a zip if the name ends in .bal, else into a directory."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in detector.state().items()}
    if class_names is not None:
        detector.class_names_ = checked_names(detector, class_names)
    write_bundle(Path(path), describe(detector), {TENSORS: bytes_of(tensors)})


def load(path: str | Path, classifier: Classifier | nn.Module | None = None) -> Detector:
    """Read a detector; it must belong to ``classifier``, or be used on features alone. Nothing in the file is run."""
    path = Path(path)
    classifier = None if classifier is None else as_classifier(classifier)
    manifest, tensors = read(path)
    try:
        mark = manifest["classifier"]
        if classifier is not None and mark is not None:
            check_belongs(path, mark, classifier, InputSpec.from_state(tensors))
        detector: Detector = from_settings(detector_class(manifest["detector"]), manifest["settings"])
        detector.load_state(tensors, classifier)
    except UnknownSettingError as error:
        raise StorageError(
            f"{path}, written by bal {manifest.get('versions', {}).get('bal')}, does not hold the setting {error}, and what was "
            "done without it is not known here; read it by that version, or fit again"
        ) from error
    except (StorageError, NotFittedError):
        raise
    except (BalError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise StorageError(f"{path} holds no detector that can be rebuilt ({error}); save it again") from error
    names = manifest.get("class_names")
    detector.class_names_ = None if names is None else checked_names(detector, names)
    detector.belongs_to_ = mark
    return detector


def read(path: Path) -> tuple[Manifest, dict[str, Tensor]]:
    """The manifest and the tensors of a detector of any schema, checked by their SHA-256."""
    if not path.exists():
        raise StorageError(f"there is no detector {path}; give the path that detector.save() wrote")
    if path.is_file() and not zipfile.is_zipfile(path):
        tensors, settings = load_tensors(path)
        return from_schema_1(path, settings), tensors
    manifest, parts = read_bundle(path, schema=SCHEMA)
    try:
        return manifest, tensors_of(parts[TENSORS])
    except (SafetensorError, KeyError) as error:
        raise StorageError(f"{path} holds no tensors that can be read ({error}); save the detector again") from error


def from_schema_1(path: Path, settings: Manifest) -> Manifest:
    """The manifest that a file of schema 1 would have."""
    if settings.get("schema") != 1:
        raise StorageError(f"{path} is no detector of schema 1, though a single file; give what detector.save() wrote")
    mark = settings.get("classifier")
    return {**settings, "versions": {"bal": settings.get("bal")}, "classifier": None if mark is None else {"fingerprint": mark}}


def describe(detector: Detector) -> Manifest:
    """What the manifest says beside its parts. Thresholds are for people; those in use are among the tensors."""
    calibration, spec = detector.calibration_, detector.spec_
    return {
        "schema": SCHEMA,
        "versions": {"bal": __version__, "python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "detector": detector_name(detector),
        "settings": asdict(detector),  # type: ignore[call-overload]
        "class_names": detector.class_names_,
        "features": None if detector.sizes_ is None else detector.sizes_[0],
        "classes": None if detector.sizes_ is None else detector.sizes_[1],
        "input_shape": None if spec is None else spec.shape,
        "threshold": detector.threshold_.tolist(),
        "calibration": None
        if calibration is None
        else {"false_alarm": calibration.false_alarm, "rows": [len(rows) for rows in calibration.groups]},
        "classifier": detector.belongs_to_
        if detector.classifier_ is None
        else {**mark_of(detector.classifier_), "probe": probe(detector.classifier_, spec)},
    }


def mark_of(classifier: Classifier) -> dict[str, str | None]:
    """By what a classifier is known again: the digest of its weights, its preprocessing in words, the name it was called by."""
    preprocess = None if classifier.preprocess is None else repr(classifier.preprocess)
    return {"fingerprint": classifier.fingerprint(), "preprocess": preprocess, "source": classifier.source}


def check_belongs(path: Path, mark: dict[str, Any], classifier: Classifier, spec: InputSpec | None) -> None:
    """Refuse a classifier with other weights, another preprocessing or other answers than the detector was fitted on.

    Files from before there was a probe cannot tell of the answers.
    """
    here = mark_of(classifier)
    hint = f", {mark['source']}" if mark.get("source") else ""
    if mark["fingerprint"] != here["fingerprint"]:
        raise StorageError(
            f"{path} was fitted on another classifier (its weights or those of its preprocessing differ); "
            f"load that one{hint}, or fit again"
        )
    if mark.get("preprocess", here["preprocess"]) != here["preprocess"]:
        raise StorageError(
            f"{path} was fitted with the preprocessing {mark['preprocess']}, this classifier has {here['preprocess']}; "
            f"load the same one{hint}, or fit again"
        )
    if mark.get("probe") is not None and spec is not None and not behaves_alike(classifier, spec, mark["probe"]):
        raise StorageError(
            f"{path} was fitted on a classifier of the same weights that behaves differently (in its activations, its "
            f"preprocessing or its forward); load that one{hint}, or fit again"
        )


def checked_names(detector: Detector, names: Sequence[str]) -> tuple[str, ...]:
    """One name for each class."""
    _, classes = detector.sizes_ or (0, 0)
    if isinstance(names, str) or len(names) != classes or not all(isinstance(name, str) for name in names):
        raise DataError(f"class_names must be {classes} words, one for each class in the order of the classifier, got {names!r}")
    return tuple(names)


def from_settings(kind: type[Any], settings: dict[str, Any]) -> Any:
    """Rebuild a dataclass, and those inside it, from what asdict and JSON made of it; what it lacks is as it was before."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for item in fields(kind):
        value = settings[item.name] if item.name in settings else before(kind.__name__, item.name)
        if is_dataclass(hints[item.name]) and isinstance(value, dict):
            value = from_settings(hints[item.name], value)
        values[item.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def before(kind: str, name: str) -> Any:
    """What a class did before it had a setting."""
    if name not in BEFORE.get(kind, {}):
        raise UnknownSettingError(f"{name} of {kind}")
    return BEFORE[kind][name]
