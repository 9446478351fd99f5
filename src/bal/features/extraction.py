"""REM, first half: one pass of the frozen classifier over the data gives every (f, logits, c)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bal.backbones import Classifier
from bal.data import Batches, Data
from bal.errors import DataError, ShapeError
from bal.features.cache import FeatureCache, StreamDigest
from bal.progress import progress_bar


@dataclass(frozen=True)
class InputSpec:
    """Shape of one input, and whether it holds pixels (floating) or indices such as token ids."""

    shape: tuple[int, ...]
    floating: bool

    @classmethod
    def of(cls, x: Tensor) -> "InputSpec":
        """The spec of a batch."""
        return cls(tuple(x.shape[1:]), x.is_floating_point())

    def check(self, x: Tensor) -> None:
        """Refuse a batch of another kind."""
        if tuple(x.shape[1:]) != self.shape:
            raise ShapeError(
                f"inputs must be (N, {', '.join(map(str, self.shape))}), got {tuple(x.shape)}; "
                "resize the images or convert their channels as for the data the detector was fitted on"
            )
        if x.is_floating_point() != self.floating:
            expected = "pixels (uint8, uint16 or floating point)" if self.floating else "whole numbers"
            raise ShapeError(f"inputs must be {expected}, got {x.dtype}; convert them as for the data the detector was fitted on")


@dataclass(frozen=True)
class Features:
    """What every detector reads: one row for each input, in the order of the data.

    f: (N, m) float32, logits: (N, classes) float32, labels: (N,) int64 or None; ``spec`` describes the inputs, None when
    the features did not come from inputs.
    """

    f: Tensor
    logits: Tensor
    labels: Tensor | None = None
    spec: InputSpec | None = None

    def __post_init__(self) -> None:
        if self.f.ndim != 2 or self.logits.ndim != 2 or len(self.f) != len(self.logits):
            raise ShapeError(
                "features and logits must be (N, m) and (N, classes) with the same N, "
                f"got {tuple(self.f.shape)} and {tuple(self.logits.shape)}"
            )
        if self.labels is not None and self.labels.shape != (len(self.f),):
            raise ShapeError(f"labels must be ({len(self.f)},), one for each row of features, got {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.f)

    @property
    def valid(self) -> Tensor:
        """(N,) bool: rows where every number is finite. The others can never be accepted as ID."""
        return torch.isfinite(self.f).all(1) & torch.isfinite(self.logits).all(1)

    @property
    def predicted(self) -> Tensor:
        """(N,) the classifier's label, c-hat of Algorithm 1."""
        return self.logits.argmax(1)

    def accuracy(self) -> float:
        """Share of rows whose label the classifier gets right."""
        if self.labels is None:
            raise DataError("accuracy needs labels; extract from (x, labels) instead of x")
        return (self.predicted == self.labels).double().mean().item()


def extract(
    classifier: Classifier,
    data: Data,
    *,
    batch_size: int = 256,
    cache: FeatureCache | None = None,
    spec: InputSpec | None = None,
    show_progress: bool = True,
) -> Features:
    """Run the classifier once over ``data``; with a cache, only the first time. Inputs unlike ``spec`` are refused.

    The cache is keyed by the content of model, preprocessing and data. A loader that shuffles or augments never gives the same
    content twice, so it is computed anew every time, never wrongly reused.
    """
    batches = Batches(data, batch_size)
    if cache is not None:
        stored = cache.get(classifier, StreamDigest.of(batches))
        if stored is not None:
            return from_tensors(stored)
    features, content = run(classifier, batches, spec, hash_content=cache is not None, show_progress=show_progress)
    if cache is not None:
        cache.put(classifier, content, to_tensors(features))
    return features


def run(
    classifier: Classifier, batches: Batches, spec: InputSpec | None, *, hash_content: bool, show_progress: bool
) -> tuple[Features, StreamDigest]:
    """The pass itself, and the digest of what it has seen."""
    content = StreamDigest()
    f_parts, logit_parts, label_parts = [], [], []
    with progress_bar("features", batches.rows, show=show_progress) as advance:
        for x, c in batches:
            spec = spec or InputSpec.of(x)
            spec.check(x)
            f, logits = classifier(x)
            f_parts.append(f.cpu())
            logit_parts.append(logits.cpu())
            label_parts.append(c)
            if hash_content:
                content.update(x, c)
            advance(len(x))
    if not f_parts:
        raise DataError("the data is empty; give at least one row")
    labels = [c for c in label_parts if c is not None]
    if labels and len(labels) != len(label_parts):
        raise DataError("some batches have labels and some do not; give labels for all rows or for none")
    return Features(torch.cat(f_parts), torch.cat(logit_parts), torch.cat(labels) if labels else None, spec), content


def to_tensors(features: Features) -> dict[str, Tensor]:
    """Features that came from inputs, as named tensors for the cache."""
    tensors = {"f": features.f, "logits": features.logits}
    if features.labels is not None:
        tensors["labels"] = features.labels
    if features.spec is not None:
        tensors["input_shape"] = torch.tensor(features.spec.shape, dtype=torch.int64)
        tensors["input_floating"] = torch.tensor(features.spec.floating)
    return tensors


def from_tensors(tensors: dict[str, Tensor]) -> Features:
    """The inverse of :func:`to_tensors`."""
    shape = tensors.get("input_shape")
    spec = None if shape is None else InputSpec(tuple(shape.tolist()), bool(tensors["input_floating"]))
    return Features(tensors["f"], tensors["logits"], tensors.get("labels"), spec)
