"""The contract of every detector: fit on ID data, score (higher = more ID), predict (-1 = OOD)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from bal.backbones import Classifier
from bal.data import Data
from bal.errors import DataError, NotFittedError, ShapeError
from bal.features import FeatureCache, Features, extract

OOD = -1
DEFAULT_FALSE_ALARM = 0.05


@dataclass(frozen=True)
class Prediction:
    """One entry for each input.

    label: (N,) int64, the class or -1 for OOD; confidence: (N,) float64, exp(score); score: (N,) float64, -inf for invalid rows;
    valid: (N,) bool, False where the input or its features are not finite. An invalid row is never accepted.
    """

    label: NDArray[np.int64]
    confidence: NDArray[np.float64]
    score: NDArray[np.float64]
    valid: NDArray[np.bool_]


class FeatureDetector(ABC):
    """A detector that reads features and logits alone, so that many share one pass of the classifier."""

    classifier_: Classifier | None = None
    train_: Features | None = None  # an empty slice of the ID features: sizes and input spec, no rows
    threshold_: float

    def fit(self, classifier: Classifier, data: Data, *, cache: FeatureCache | None = None, show_progress: bool = True) -> Self:
        """Extract the features of labelled ID data with the frozen classifier and learn from them."""
        self.classifier_ = classifier
        return self.fit_features(extract(classifier, data, cache=cache, show_progress=show_progress))

    def fit_features(self, features: Features) -> Self:
        """Learn from ID features; a refit forgets everything before it.

        The default threshold keeps 95 % of these training rows. The classifier has seen them, so expect more than 5 % false
        alarms on new data; choose the threshold on held-out ID data where that matters.
        """
        self._fit(*usable_rows(features))
        empty = slice(0, 0)
        self.train_ = Features(features.f[empty], features.logits[empty], None, features.spec)
        scores = self.score(features)
        self.threshold_ = float(np.quantile(scores[np.isfinite(scores)], DEFAULT_FALSE_ALARM, method="lower"))
        return self

    def score(self, data: Data | Features) -> NDArray[np.float64]:
        """(N,) float64, higher = more ID; -inf for rows that are not finite."""
        features = self._features(data)
        scores = np.full(len(features), -np.inf)
        valid = features.valid
        if valid.any():
            scores[valid.numpy()] = self._score(features.f[valid], features.logits[valid]).double().numpy()
        return scores

    def predict(self, data: Data | Features, *, threshold: float | None = None) -> Prediction:
        """Accept a row as its predicted class where score >= threshold, else call it OOD."""
        features = self._features(data)
        scores = self.score(features)
        valid = features.valid.numpy()
        accepted = valid & (scores >= (self.threshold_ if threshold is None else threshold))
        label = np.where(accepted, features.predicted.numpy(), OOD)
        return Prediction(label, np.exp(scores), scores, valid)

    def _features(self, data: Data | Features) -> Features:
        if self.train_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(classifier, train) first")
        if not isinstance(data, Features):
            if self.classifier_ is None:
                raise NotFittedError("fitted on features without a classifier; give Features, or fit(classifier, train)")
            data = extract(self.classifier_, data, spec=self.train_.spec, show_progress=False)
        for name, came, expected in (("features", data.f, self.train_.f), ("logits", data.logits, self.train_.logits)):
            if came.shape[1] != expected.shape[1]:
                raise ShapeError(
                    f"{name} must be (N, {expected.shape[1]}), got {tuple(came.shape)}; was the detector fitted on another layer?"
                )
        return data

    @abstractmethod
    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        """Learn from finite rows (N, m), (N, classes) and their labels (N,)."""

    @abstractmethod
    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        """(N,) scores of finite rows (N, m) and (N, classes)."""


def usable_rows(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """(f, logits, c) of the finite rows; refused without labels, with one class only or fewer than two rows of a class."""
    valid = features.valid
    if features.labels is None:
        raise DataError("fitting needs labels; give (x, labels), or a Dataset or DataLoader of such pairs")
    if not valid.any():
        raise DataError("no row has finite features; check the inputs and the classifier for NaN and Inf")
    f, logits, labels = features.f[valid], features.logits[valid], features.labels[valid]
    classes = logits.shape[1]
    if classes < 2:
        raise DataError(f"the classifier has {classes} output; a detector needs at least 2 classes to tell apart")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise DataError(
            f"labels must be 0 to {classes - 1}, the classifier's outputs, got {int(labels.min())} to {int(labels.max())}"
        )
    counts = labels.bincount(minlength=classes)
    scarce = {int(c): int(counts[c]) for c in torch.nonzero(counts < 2)}
    if scarce:
        raise DataError(
            f"every class needs at least 2 usable rows to have a boundary; too few for {{class: rows}} {scarce}. "
            "Add examples, or use a classifier without these outputs"
        )
    return f, logits, labels
