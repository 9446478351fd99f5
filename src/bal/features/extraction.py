"""REM, first half: one pass of the frozen classifier over the data gives every (f, logits, c)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bal.backbones import Classifier
from bal.data import Batches, Data
from bal.data.batches import to_labels, to_tensor
from bal.errors import BalWarning, DataError, ShapeError, StorageError
from bal.features.cache import Cache, FeatureCache, StreamDigest
from bal.features.inputs import InputSpec
from bal.progress import progress_bar


@dataclass(frozen=True)
class Features:
    """What every detector reads: one row for each input, in the order of the data.

    f: (N, m) float32, logits: (N, classes) float32, labels: (N,) int64 or None; ``spec`` describes the inputs, None when
    the features did not come from inputs; ``head`` is (W, b) of the last layer, logits = f W^T + b, for detectors that read it.
    All are kept on the CPU.
    """

    f: Tensor
    logits: Tensor
    labels: Tensor | None = None
    spec: InputSpec | None = None
    head: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("f", "logits"):
            object.__setattr__(self, name, to_tensor(getattr(self, name)).detach().to("cpu", torch.float32))
        if self.labels is not None:
            object.__setattr__(self, "labels", to_labels(self.labels, len(self.f)))
        if self.f.ndim != 2 or self.logits.ndim != 2 or len(self.f) != len(self.logits):
            raise ShapeError(
                "features and logits must be (N, m) and (N, classes) with the same N, "
                f"got {tuple(self.f.shape)} and {tuple(self.logits.shape)}"
            )
        if not self.f.shape[1] or not self.logits.shape[1]:
            raise ShapeError(
                f"features and logits must have at least one column, got {tuple(self.f.shape)} and {tuple(self.logits.shape)}"
            )
        if self.head is not None:
            object.__setattr__(self, "head", to_head(self.head, self.logits.shape[1], self.f.shape[1]))

    def __len__(self) -> int:
        return len(self.f)

    @cached_property
    def valid(self) -> Tensor:
        """(N,) bool: rows where every number is finite. The others can never be accepted as ID."""
        return torch.isfinite(self.f).all(1) & torch.isfinite(self.logits).all(1)

    @property
    def known_labels(self) -> Tensor:
        """The labels, which must be there."""
        if self.labels is None:
            raise DataError("labels are needed here; extract from (x, labels) instead of x")
        return self.labels

    def rows(self, which: Tensor | slice) -> "Features":
        """Some of the rows, by mask, index or slice."""
        labels = None if self.labels is None else self.labels[which]
        return replace(self, f=self.f[which], logits=self.logits[which], labels=labels)

    @property
    def predicted(self) -> Tensor:
        """(N,) the classifier's label, c-hat of Algorithm 1."""
        return self.logits.argmax(1)

    def accuracy(self) -> float:
        """Share of rows whose label the classifier gets right."""
        return (self.predicted == self.known_labels).double().mean().item()


def to_head(head: Sequence[Any], classes: int, dim: int) -> tuple[Tensor, Tensor]:
    """W (classes, dim) and b (classes,) of the last layer, float32 on the CPU."""
    if not isinstance(head, (tuple, list)) or len(head) != 2:
        raise ShapeError(f"head must be the pair (W, b) of the last layer, got {type(head).__name__}; b may be zeros")
    W, b = (to_tensor(part).detach().to("cpu", torch.float32) for part in head)
    if W.shape != (classes, dim) or b.shape != (classes,):
        raise ShapeError(
            f"head must be W ({classes}, {dim}) and b ({classes},) of the layer that makes the logits of these features, "
            f"got {tuple(W.shape)} and {tuple(b.shape)}"
        )
    return W, b


def extract(
    classifier: Classifier,
    data: Data,
    *,
    batch_size: int = 256,
    cache: Cache | None = None,
    spec: InputSpec | None = None,
    strict: bool = False,
    show_progress: bool = True,
) -> Features:
    """Run the classifier once over ``data``; with a cache, only the first time. Inputs unlike ``spec`` are refused.

    Features that were extracted before, elsewhere, are passed on.

    Inputs of another scale than ``spec`` are warned of, or refused if ``strict``.

    The cache is keyed by the content of model, preprocessing and data. A loader that shuffles or augments never gives the same
    content twice, so it is computed anew every time, never wrongly reused.
    """
    if isinstance(data, Features):
        return data
    batches = Batches(data, batch_size)
    if isinstance(cache, (str, Path)):
        cache = FeatureCache(cache)
    if cache is None:
        return run(classifier, batches, spec, strict=strict, show_progress=show_progress)
    seen = survey(batches, spec)
    stored = cache.get(classifier, seen.content)
    if stored is not None and seen.first is not None and same_network(stored, classifier, seen.first):
        if spec is not None and seen.spec is not None:
            spec.check_span(seen.spec, strict=strict)
        return from_tensors(stored, classifier)
    content = StreamDigest()  # of the second pass: a loader that shuffles gives other rows now
    features = run(classifier, batches, spec, strict=strict, show_progress=show_progress, content=content, seen=seen)
    try:
        cache.put(classifier, content, to_tensors(features))
    except StorageError as error:
        warnings.warn(f"the features are not cached: {error}", BalWarning, stacklevel=2)
    return features


@dataclass(frozen=True)
class Survey:
    """What a pass over the data alone tells: its digest, its first rows, and the range of its inputs where that was asked for."""

    content: StreamDigest
    first: Tensor | None
    spec: InputSpec | None


def survey(batches: Batches, expected: InputSpec | None) -> Survey:
    """Read all data once without the classifier; inputs of another kind than ``expected`` are refused."""
    content, first, spec = StreamDigest(), None, None
    for x, c in batches:
        content.update(x, c)
        first = x[:4].clone() if first is None else first  # a loader may use its memory again
        if expected is not None:
            expected.check_kind(x)
            spec = InputSpec.of(x) if spec is None else spec.widened(InputSpec.of(x))
    return Survey(content, first, spec)


def same_network(stored: dict[str, Tensor], classifier: Classifier, x: Tensor) -> bool:
    """Whether the first rows x still give the stored features: weights and structure do not tell all that a forward pass does."""
    f, logits = (tensor.cpu() for tensor in classifier(x))
    pairs = ((f, stored["f"]), (logits, stored["logits"]))
    rows = finite_rows(x).cpu()
    return all(torch.allclose(now[rows], then[: len(x)][rows], rtol=1e-3, atol=1e-4, equal_nan=True) for now, then in pairs)


def finite_rows(x: Tensor) -> Tensor:
    """(N,) bool: rows where every number is finite."""
    return torch.isfinite(x).flatten(1).all(1)


def run(
    classifier: Classifier,
    batches: Batches,
    spec: InputSpec | None,
    *,
    strict: bool,
    show_progress: bool,
    content: StreamDigest | None = None,
    seen: Survey | None = None,
) -> Features:
    """The pass itself; ``content`` takes the digest of what it reads, ``seen`` is what an earlier pass has read."""
    expected = spec
    f_parts, logit_parts, label_parts = [], [], []
    with progress_bar("features", batches.rows, show=show_progress) as advance:
        for x, c in batches:
            if expected is not None:
                expected.check(x, strict=strict)
            else:
                spec = InputSpec.of(x) if spec is None else spec.joined(x)
            if content is not None:
                content.update(x, c)
            f, logits = (tensor.cpu() for tensor in classifier(x))
            f[~finite_rows(x).cpu()] = torch.nan  # a network may swallow a NaN pixel; the row is invalid all the same
            f_parts.append(f)
            logit_parts.append(logits)
            label_parts.append(c)
            advance(len(x))
    if not f_parts and seen is not None and seen.first is not None:
        raise DataError(
            "the data can be read only once, but a cache reads it twice; give data that can be read again, or leave the cache out"
        )
    if not f_parts:
        raise DataError("the data is empty; give at least one row")
    labels = [c for c in label_parts if c is not None]
    if labels and len(labels) != len(label_parts):
        raise DataError("some batches have labels and some do not; give labels for all rows or for none")
    return Features(
        torch.cat(f_parts), torch.cat(logit_parts), torch.cat(labels) if labels else None, spec, classifier.head_tensors()
    )


def to_tensors(features: Features) -> dict[str, Tensor]:
    """Features that came from inputs, as named tensors for the cache."""
    tensors = {"f": features.f, "logits": features.logits}
    if features.labels is not None:
        tensors["labels"] = features.labels
    if features.spec is not None:
        tensors |= features.spec.state()
    return tensors


def from_tensors(tensors: dict[str, Tensor], classifier: Classifier) -> Features:
    """The inverse of :func:`to_tensors`, for the classifier that made them."""
    spec = InputSpec.from_state(tensors)
    return Features(tensors["f"], tensors["logits"], tensors.get("labels"), spec, classifier.head_tensors())
