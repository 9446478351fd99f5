"""Look at data through a detector, a batch at a time: a few numbers of every row are kept, and a few pictures."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from heapq import nlargest

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bal.data import Batches, Data
from bal.data.files import Loaded
from bal.data.images import resize
from bal.detectors import BAL, Detector, FeatureDetector, log_max_softmax
from bal.errors import DataError, NotFittedError
from bal.evaluation.assessment import accepted, checked_labels
from bal.features import Features, InputSpec, extract
from bal.progress import progress_bar

EXAMPLES = 8  # pictures of each kind
PIXELS = 104  # on the longer side of a picture, as large as a page shows it

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """One entry for each row, (N,).

    ``predicted`` is -1 for rows that are not valid; ``log_p1`` and ``taken_for`` are the classifier's own confidence and class,
    which differ from the detector's where that has a network of its own; ``labels`` is None where they are not known.
    """

    score: Floats
    confidence: Floats
    p_value: Floats
    log_p1: Floats
    predicted: NDArray[np.int64]
    taken_for: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True)
class Example:
    """A picture, (height, width) or (height, width, 3) uint8, with what is known of it; p1 and p2 for BAL alone."""

    image: NDArray[np.uint8]
    predicted: int
    confidence: float
    p_value: float
    label: int | None = None
    p1: float | None = None
    p2: float | None = None


@dataclass(frozen=True)
class Observed:
    """A data set as a detector sees it; ``examples`` by kind, the most telling first, empty where inputs are no pictures.

    ``left_out`` counts files that could not be read.
    """

    rows: Rows
    left_out: int = 0
    examples: Mapping[str, list[Example]] = field(default_factory=dict)


def observe(
    detector: Detector,
    data: Data | Features | Loaded,
    *,
    known: bool,
    name: str = "scoring",
    count: int = EXAMPLES,
    show_progress: bool = True,
) -> Observed:
    """Score the data in one pass; ``known`` says that it is ID, and its labels, if there, are the truth.

    Kinds of examples of known data: ``rejected``, that the classifier is most sure of, and ``wrong``, accepted with the highest
    score; of unknown data: ``accepted`` with the highest score, and ``rejected`` with the lowest.
    """
    left_out, data = (len(data.left_out), data.data) if isinstance(data, Loaded) else (0, data)
    parts: list[Rows] = []
    kept: dict[str, list[tuple[float, Example]]] = {}
    total = len(data) if isinstance(data, Features) else Batches(data).rows
    with progress_bar(name, total, show=show_progress) as advance:
        for x, c in batches_of(data):
            rows = look(detector, x, c if known else None)
            parts.append(rows)
            if isinstance(x, Tensor) and shows_pictures(detector):
                for kind, keys in telling(rows, known=known).items():
                    kept[kind] = nlargest(count, kept.get(kind, []) + candidates(detector, x, rows, keys, count), key=first)
            advance(len(rows))
    return Observed(joined(parts), left_out, {kind: [example for _, example in pairs] for kind, pairs in kept.items()})


def batches_of(data: Data | Features) -> Iterator[tuple[Tensor | Features, Tensor | None]]:
    """Batches of inputs, or all features at once, with their labels."""
    if isinstance(data, Features):
        yield data, data.labels
    else:
        yield from Batches(data)


def look(detector: Detector, x: Tensor | Features, c: Tensor | None) -> Rows:
    """The rows of one batch."""
    features = features_of(detector, x)
    answer = detector.predict(features if isinstance(detector, FeatureDetector) else x, threshold=-np.inf)  # the class of all
    return Rows(
        score=answer.score,
        confidence=answer.confidence,
        p_value=answer.p_value,
        log_p1=np.where(answer.valid, log_max_softmax(features.logits).numpy(), -np.inf),
        predicted=answer.label,
        taken_for=features.predicted.numpy(),
        accepted=accepted(detector, answer),
        valid=answer.valid,
        labels=None if c is None else checked_labels(c.numpy(), features.logits.shape[1]),
    )


def features_of(detector: Detector, x: Tensor | Features) -> Features:
    """Features and logits of inputs, by the detector's classifier."""
    if isinstance(x, Features):
        return x
    if detector.classifier_ is None:
        raise NotFittedError("this detector has no classifier to read inputs with; load it with bal.load(path, classifier)")
    return extract(detector.classifier_, x, spec=detector.spec_, strict=detector.strict, show_progress=False)


def joined(parts: list[Rows]) -> Rows:
    """All batches as one; labels are there for all rows or for none."""
    if not parts:
        raise DataError("the data is empty; give at least one row")
    if len({part.labels is None for part in parts}) > 1:
        raise DataError("some batches have labels and some do not; give labels for all rows or for none")
    columns = {
        item.name: np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Rows) if item.name != "labels"
    }
    labels = [part.labels for part in parts if part.labels is not None]
    return Rows(**columns, labels=np.concatenate(labels) if labels else None)


def telling(rows: Rows, *, known: bool) -> dict[str, Floats]:
    """For each kind of example, a number that is the higher the more a row tells; -inf for rows that are not of that kind."""
    rejected = rows.valid & ~rows.accepted

    def among(mask: NDArray[np.bool_], keys: Floats) -> Floats:
        return np.where(mask, keys, -np.inf)

    if not known:
        return {"accepted": among(rows.accepted, rows.score), "rejected": among(rejected, -rows.score)}
    found = {"rejected": among(rejected, rows.log_p1)}
    if rows.labels is not None:
        found["wrong"] = among(rows.accepted & (rows.predicted != rows.labels), rows.score)
    return found


def candidates(detector: Detector, x: Tensor, rows: Rows, keys: Floats, count: int) -> list[tuple[float, Example]]:
    """The most telling rows of a batch."""
    chosen = np.argsort(-keys, kind="stable")[:count]
    return [(float(keys[i]), example(detector, x, rows, i)) for i in chosen.tolist() if np.isfinite(keys[i])]


def first(pair: tuple[float, Example]) -> float:
    """What examples are ordered by."""
    return pair[0]


def example(detector: Detector, x: Tensor, rows: Rows, i: int) -> Example:
    """Row i with its picture; BAL's score is log(p1 p2)."""
    found = Example(
        thumbnail(x[i], detector.spec_),
        int(rows.predicted[i]),
        float(rows.confidence[i]),
        float(rows.p_value[i]),
        None if rows.labels is None else int(rows.labels[i]),
    )
    if not isinstance(detector, BAL):
        return found
    return replace(found, p1=float(np.exp(rows.log_p1[i])), p2=float(np.exp(rows.score[i] - rows.log_p1[i])))


def shows_pictures(detector: Detector) -> bool:
    """Whether the inputs of a detector can be shown: (1 or 3, height, width), and no indices."""
    spec = detector.spec_
    return spec is not None and spec.floating and len(spec.shape) == 3 and spec.shape[0] in (1, 3)


def thumbnail(x: Tensor, spec: InputSpec | None) -> NDArray[np.uint8]:
    """An input as a small picture: [0, 1] as it is, numbers of another range by the range of the fit."""
    low, high = (0.0, 1.0) if spec is None or (spec.low >= 0 and spec.high <= 1) else (spec.low, spec.high)
    grey = (torch.nan_to_num(x.cpu().float()) - low) / max(high - low, 1e-12)
    image = (255 * grey.clamp(0, 1)).round().to(torch.uint8).numpy()  # (channels, height, width)
    scale = min(1.0, PIXELS / max(image.shape[1:]))
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[2] * scale))
    small = resize(image, size)
    return small[0] if len(small) == 1 else np.ascontiguousarray(small.transpose(1, 2, 0))
