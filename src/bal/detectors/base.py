"""The contract of every detector: fit on ID data, score (higher = more ID), predict (-1 = OOD), state as tensors.

What a detector needs stands in its type: a `FeatureDetector` reads features and logits, so many share one pass of the classifier;
a `HeadDetector` also reads the weights of the last layer; an `InputDetector` needs the inputs themselves, for gradients or for a
network of its own.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from bal.backbones import Classifier, as_classifier
from bal.backbones.classifier import named_tensors
from bal.calibration import Calibration, refuse_rows
from bal.data import Batches, Data, stack
from bal.detectors.prediction import OOD, Prediction
from bal.detectors.rows import check_labels, learnable_rows, some_rows, warn_of_lost_rows
from bal.errors import DataError, NotFittedError, ShapeError, StorageError
from bal.features import Cache, Features, InputSpec, extract, finite_rows

Fit = Callable[[Tensor, Tensor, Tensor], None]

DEFAULT_FALSE_ALARM = 0.05
ROWS_AT_ONCE = 32  # inputs that an InputDetector scores at a time: with their gradients they fit the processor's cache
THRESHOLD_ROWS = 5000  # training rows that the default threshold and the ranks are read from


@dataclass(frozen=True)
class Scored:
    """Scores of all rows, the class each would get, and whether it is valid."""

    score: NDArray[np.float64]
    predicted: NDArray[np.int64]
    valid: NDArray[np.bool_]


class Detector(ABC):
    """The whole contract. What ``fit`` learns is kept in attributes that end in an underscore: tensors, numbers or modules.

    ``log_probability`` says that scores are logarithms of probabilities, so that exp(score) is the confidence. With ``strict``,
    which is not saved, inputs of another scale than those of the fit are an error and not a warning.
    """

    log_probability: ClassVar[bool] = False
    strict: bool = False
    classifier_: Classifier | None = None
    spec_: InputSpec | None = None
    sizes_: tuple[int, int] | None = None  # m and the number of classes
    calibration_: Calibration | None = None
    class_names_: tuple[str, ...] | None = None
    belongs_to_: Mapping[str, Any] | None = None  # how a loaded detector knows its classifier again
    threshold_: Tensor  # scalar, or (classes,) after calibrate(per_class=True)
    ranks_: Tensor  # (1001,) quantiles of the ID training scores

    @abstractmethod
    def fit(
        self, classifier: Classifier | nn.Module, data: Data, *, cache: Cache | None = None, show_progress: bool = True
    ) -> Self:
        """Learn from labelled ID data; the classifier is not changed, and a refit forgets everything before it."""

    @abstractmethod
    def _scored(self, data: Data | Features) -> Scored:
        """Score rows of any supported kind."""

    def score(self, data: Data | Features) -> NDArray[np.float64]:
        """(N,) float64, higher = more ID; -inf for rows that are not finite."""
        return self._scored(data).score

    def predict(self, data: Data | Features, *, threshold: float | None = None) -> Prediction:
        """Accept a row as its predicted class where score >= threshold, else call it OOD.

        The threshold is that of :meth:`calibrate`; before it, one that keeps 95 % of the training rows. Another may be given
        on the scale of :meth:`score`: for BAL a logarithm, so log(0.6) for a confidence of 0.6.
        """
        self._check_threshold(threshold)
        return self.decide(self._scored(data), threshold=threshold)

    def scored(self, data: Data | Features) -> Scored:
        """Scores, with the class that each row would get and whether it is valid."""
        return self._scored(data)

    def thresholds(self, predicted: NDArray[np.int64]) -> NDArray[np.float64]:
        """What each row is held against, (N,): the one threshold, or that of its predicted class."""
        chosen = self.threshold_.numpy()
        return chosen[predicted] if chosen.ndim else np.full(len(predicted), chosen)

    def decide(self, rows: Scored, *, threshold: float | None = None) -> Prediction:
        """The answer for rows that are scored already."""
        self._check_threshold(threshold)
        chosen = self.thresholds(rows.predicted) if threshold is None else np.asarray(threshold)
        accepted = rows.valid & (rows.score >= chosen)
        return Prediction(
            label=np.where(accepted, rows.predicted, OOD),
            confidence=np.where(rows.valid, self.confidence(rows.score), 0.0),
            p_value=np.full(len(rows.score), np.nan)
            if self.calibration_ is None
            else self.calibration_.p_values(rows.score, rows.predicted),
            score=rows.score,
            valid=rows.valid,
        )

    def calibrate(self, data: Data | Features, *, false_alarm: float = 0.05, per_class: bool = False) -> Self:
        """Choose the threshold by held-out ID data: new ID rows are rejected with a probability of at most ``false_alarm``.

        Valid for any number of rows, as long as they and the new rows are drawn alike and the fit has not seen them
        (:mod:`bal.calibration`). With ``per_class`` the promise holds for each predicted class by itself. What to expect stands
        in ``calibration_.false_alarms()``. Labels are not used; rows without a finite score are refused.
        """
        rows = self._scored(data)
        refuse_rows(~rows.valid)
        _, classes = self.sizes_ or (0, 0)
        self.calibration_ = Calibration.of(
            rows.score, rows.predicted, classes=classes, false_alarm=false_alarm, per_class=per_class
        )
        self.threshold_ = torch.from_numpy(self.calibration_.threshold())
        return self

    def confidence(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores as numbers in [0, 1]: probabilities where they are that, else the share of ID training rows that score lower."""
        if self.log_probability:
            return np.exp(scores)
        ranks = self.ranks_.numpy()
        return np.searchsorted(ranks, scores) / len(ranks)

    def save(self, path: str | Path, class_names: Sequence[str] | None = None) -> None:
        """Write the detector into a directory, or into one file if the name ends in .bal; ``bal.load`` reads it."""
        from bal.detectors.files import save  # noqa: PLC0415 - files know detectors

        save(self, path, class_names)

    def state(self) -> dict[str, Tensor]:
        """Everything that ``fit`` learnt, as named tensors."""
        self._check_fitted()
        tensors = {"sizes": torch.tensor(self.sizes_)}
        for part in (self.spec_, self.calibration_):
            tensors |= {} if part is None else part.state()
        for name, value in vars(self).items():
            if name.endswith("_") and isinstance(value, Tensor):
                tensors[name] = value
            elif name.endswith("_") and isinstance(value, nn.Module):
                tensors |= {f"{name}.{key}": tensor for key, tensor in value.state_dict().items()}
        return tensors

    def load_state(self, state: dict[str, Tensor], classifier: Classifier | None = None) -> Self:
        """Become the detector that gave ``state``; ``classifier`` is needed to score inputs rather than features."""
        self.classifier_ = classifier
        dim, classes = state["sizes"].tolist()
        self.sizes_ = (dim, classes)
        self.spec_, self.calibration_ = InputSpec.from_state(state), Calibration.from_state(state)
        self._build(dim, classes)
        modules: dict[str, dict[str, Tensor]] = {
            name: {} for name, value in vars(self).items() if name.endswith("_") and isinstance(value, nn.Module)
        }
        for name, tensor in state.items():
            owner, _, key = name.partition(".")
            if key:
                modules[owner][key] = tensor
            elif name.endswith("_"):
                if not isinstance(getattr(self, name, tensor), Tensor):
                    raise StorageError(f"a tensor of the state is called {name}, which is no tensor; save the detector again")
                setattr(self, name, tensor)
        for owner, tensors in modules.items():
            module: nn.Module = getattr(self, owner)
            module.load_state_dict(tensors)
            module.eval()
        self._try_out()
        return self

    def _try_out(self) -> None:
        """Refuse a state that could not answer; whatever is missing is an error here and not at the first answer."""
        _, classes = self.sizes_ or (0, 0)
        if self.threshold_.shape not in ((), (classes,)) or self.ranks_.ndim != 1 or not len(self.ranks_):
            raise StorageError("the thresholds or the ranks of the state have another shape; save the detector again")
        if not torch.isfinite(self.threshold_).all() or not torch.isfinite(self.ranks_).all():
            raise StorageError("the thresholds or the ranks of the state are not finite; save the detector again")
        if self.calibration_ is not None and len(self.calibration_.groups) not in (1, classes):
            raise StorageError(f"the state was calibrated for other than {classes} classes; save the detector again")

    def replica(self, classifier: Classifier) -> Self:
        """The same detector for another thread: on a replica of its classifier, and with modules of its own on shared tensors."""
        shared = [value for value in vars(self).values() if isinstance(value, Tensor)]
        for module in (value for value in vars(self).values() if isinstance(value, nn.Module)):
            shared += [tensor for _, tensor in named_tensors(module, "")]
        return copy.deepcopy(self, {id(self.classifier_): classifier} | {id(tensor): tensor for tensor in shared})

    def _build(self, dim: int, classes: int) -> None:  # noqa: B027 - most detectors have no modules
        """Make the modules that ``load_state`` fills, for detectors that have any."""

    def _check_threshold(self, threshold: float | None) -> None:
        if threshold is None:
            return
        number = np.asarray(threshold)
        if number.ndim or number.dtype.kind not in "iuf":
            raise DataError(f"the threshold must be a single number, got {threshold!r}; calibrate(per_class=True) makes several")
        if not np.isnan(number) and not (self.log_probability and number > 0):
            return
        scale = "log(p), at most 0: for a confidence of 0.6 give math.log(0.6)" if self.log_probability else "of score()"
        raise DataError(f"the threshold {threshold} would reject everything; give a number on the scale {scale}")

    def _forget(self) -> None:
        """Become unfitted: a fit that fails half-way must not leave parts of the old detector beside parts of the new one."""
        settings = getattr(type(self), "__dataclass_fields__", {})  # one may be called lambda_
        for name in [name for name in vars(self) if name.endswith("_") and name not in settings]:
            delattr(self, name)

    def _check_fitted(self) -> None:
        if self.sizes_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(classifier, train) first")

    def _settle(self) -> None:
        """Lay what was learnt out in memory as files hold it, so that a loaded detector gives the same bytes."""
        for name, value in list(vars(self).items()):
            if name.endswith("_") and isinstance(value, Tensor):
                setattr(self, name, value.contiguous())

    def _remember_scores(self, scores: NDArray[np.float64]) -> None:
        """The default threshold keeps 95 % of the training rows.

        The classifier has seen them, so expect more than 5 % false alarms on new data; :meth:`calibrate` where that matters.
        """
        scores = scores[np.isfinite(scores)]
        if not len(scores):
            self._forget()
            raise DataError(
                f"no training row has a finite score; check the settings of this {type(self).__name__} and the features"
            )
        self.threshold_ = torch.tensor(np.quantile(scores, DEFAULT_FALSE_ALARM, method="lower"))
        self.ranks_ = torch.from_numpy(np.quantile(scores, np.linspace(0, 1, 1001), method="lower"))


class FeatureDetector(Detector):
    """A detector that reads features and logits alone, so that many share one pass of the classifier."""

    def fit(
        self, classifier: Classifier | nn.Module, data: Data, *, cache: Cache | None = None, show_progress: bool = True
    ) -> Self:
        """Extract the features of labelled ID data with the frozen classifier and learn from them."""
        classifier = as_classifier(classifier)
        features = extract(classifier, data, cache=cache, show_progress=show_progress)
        return self.fit_features(features, classifier=classifier)

    def fit_features(self, features: Features, *, classifier: Classifier | nn.Module | None = None) -> Self:
        """Learn from labelled ID features; with ``classifier``, inputs can be scored too."""
        return self._fit_by(self._fit, features, classifier)

    def _fit_by(self, fit: Fit, features: Features, classifier: Classifier | nn.Module | None) -> Self:
        """The steps of every fit round ``fit`` itself, which may have been given more arguments."""
        usable = learnable_rows(features)
        classifier = None if classifier is None else as_classifier(classifier)
        self._forget()
        self._take_head(features)
        fit(usable.f, usable.logits, usable.known_labels)
        self._settle()
        self.classifier_, self.spec_ = classifier, features.spec
        self.sizes_ = (features.f.shape[1], features.logits.shape[1])
        self._remember_scores(self.score(usable.rows(some_rows(len(usable), THRESHOLD_ROWS))))
        return self

    def _take_head(self, features: Features) -> None:
        """Read the last layer, for detectors that need it."""

    def _scored(self, data: Data | Features) -> Scored:
        features = self._features(data)
        finite = features.valid
        scores = np.full(len(features), -np.inf)
        if finite.any():
            with torch.no_grad():
                scores[finite.numpy()] = self._score(features.f[finite], features.logits[finite]).double().numpy()
        valid = np.isfinite(scores)  # numbers so large that a score overflows are no better than Inf
        return Scored(np.where(valid, scores, -np.inf), features.predicted.numpy(), valid)

    def _features(self, data: Data | Features) -> Features:
        self._check_fitted()
        if not isinstance(data, Features):
            if self.classifier_ is None:
                raise NotFittedError(
                    "this detector has no classifier to read inputs with; give Features, fit(classifier, train), or "
                    "bal.load(path, classifier)"
                )
            data = extract(self.classifier_, data, spec=self.spec_, strict=self.strict, show_progress=False)
        dim, classes = self.sizes_ or (0, 0)
        for name, came, expected in (("features", data.f, dim), ("logits", data.logits, classes)):
            if came.shape[1] != expected:
                raise ShapeError(
                    f"{name} must be (N, {expected}), got {tuple(came.shape)}; was the detector fitted on another layer?"
                )
        return data

    def _try_out(self) -> None:
        super()._try_out()
        dim, classes = self.sizes_ or (0, 0)
        self.predict(Features(torch.zeros(1, dim), torch.zeros(1, classes)))

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        """Learn from finite rows (N, m), (N, classes) and their labels (N,)."""

    @abstractmethod
    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        """(N,) scores of finite rows (N, m) and (N, classes)."""


class HeadDetector(FeatureDetector):
    """A feature detector that also reads the last layer: logits = f W^T + b, W: (classes, m), b: (classes,)."""

    W_: Tensor
    b_: Tensor

    def _take_head(self, features: Features) -> None:
        if features.head is None:
            raise DataError(
                f"{type(self).__name__} needs the weights of the last layer; fit(classifier, train), or "
                "give Features(..., head=(W, b))"
            )
        if not all(torch.isfinite(part).all() for part in features.head):
            raise DataError("the weights of the last layer are not finite; check the classifier for NaN and Inf")
        self.W_, self.b_ = features.head


class InputDetector(Detector):
    """A detector that needs the inputs themselves: for gradients through the classifier, or for a network of its own."""

    classifier_: Classifier

    def fit(
        self, classifier: Classifier | nn.Module, data: Data, *, cache: Cache | None = None, show_progress: bool = True
    ) -> Self:
        """Learn from labelled ID inputs, held in memory."""
        classifier = as_classifier(classifier)
        x, c = stack(data)
        finite = finite_rows(x).cpu()
        check_labels(c[finite], classifier.classes)
        warn_of_lost_rows(int((~finite).sum()), len(x))
        x, c = x[finite], c[finite]
        self._forget()
        self.classifier_, self.spec_ = classifier, InputSpec.of(x)
        self._fit(x, c, show_progress=show_progress)
        self._settle()
        self.sizes_ = (classifier.dim, classifier.classes)
        self._remember_scores(self.score(x[some_rows(len(x), THRESHOLD_ROWS // 5)]))
        return self

    def _scored(self, data: Data | Features) -> Scored:
        self._check_fitted()
        if isinstance(data, Features):
            raise DataError(f"{type(self).__name__} needs the inputs themselves, not features extracted from them")
        if self.classifier_ is None:
            raise NotFittedError("this detector has no classifier to read inputs with; load it with bal.load(path, classifier)")
        parts = [self._scored_batch(x) for x, _ in Batches(data, ROWS_AT_ONCE)]
        if not parts:
            raise DataError("the data is empty; give at least one row")
        return Scored(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _scored_batch(self, x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
        if self.spec_ is not None:
            self.spec_.check(x, strict=self.strict)
        score, predicted, valid = np.full(len(x), -np.inf), np.zeros(len(x), np.int64), finite_rows(x).cpu().numpy()
        if valid.any():
            s, c_hat = self._score(x[torch.from_numpy(valid)])
            score[valid], predicted[valid] = s.cpu().double().numpy(), c_hat.cpu().numpy()
        valid &= np.isfinite(score)
        return np.where(valid, score, -np.inf), predicted, valid

    def _fit(self, x: Tensor, c: Tensor, *, show_progress: bool) -> None:
        """Learn from finite inputs (N, ...) and their labels (N,)."""

    @abstractmethod
    def _score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) scores of finite inputs, and the class each would get."""
