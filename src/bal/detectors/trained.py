"""Detectors with a network of their own: Generalized ODIN and GCPL.

Both copy the classifier, replace its last layer and go on training; the classifier itself stays as it is. Departure: their papers
train from scratch for hundreds of epochs; here the copy starts from the classifier's weights, and its new head from the class
means, which takes a few epochs. Their accuracy is their own, so the label they predict is their own network's.
"""

import copy
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.backbones import Classifier, ClassifierTraining, train_classifier
from bal.backbones.classifier import OneAtATime, call, capture, like, output_tensor
from bal.detectors.base import InputDetector
from bal.detectors.odin import step_towards
from bal.errors import NotFittedError
from bal.features import class_means, extract
from bal.seeding import make_generator, seeded
from bal.settings import check_choices, check_number, check_seed

Similarity = Literal["inner", "euclidean", "cosine"]
FINE_TUNING = ClassifierTraining(epochs=3, batch_size=64, learning_rate=3e-4)


class LogitsOnly(nn.Module):
    """A network that answers with a tensor, whatever the one inside answers with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """(N, classes)."""
        return output_tensor(call(self.model, x))


def copy_with_head(classifier: Classifier, head: nn.Module) -> nn.Sequential:
    """A copy of the preprocessing and the network, with another last layer."""
    preprocess = copy.deepcopy(classifier.preprocess) or nn.Identity()
    if not classifier.head_name:  # the model is the linear layer
        return nn.Sequential(preprocess, head)
    model = copy.deepcopy(classifier.model)
    parent, _, name = classifier.head_name.rpartition(".")
    setattr(model.get_submodule(parent), name, head)
    return nn.Sequential(preprocess, LogitsOnly(model)).requires_grad_(True)


Head = TypeVar("Head", bound=nn.Module)


class TrainedDetector(InputDetector, Generic[Head]):
    """A detector that trains a copy of the classifier with another head."""

    network_: nn.Sequential
    _head: Head  # the last layer of network_
    training: ClassifierTraining
    seed: int

    def _fit(self, x: Tensor, c: Tensor, *, show_progress: bool) -> None:
        generator = make_generator(self.seed)
        with seeded(generator):
            self._build(self.classifier_.dim, self.classifier_.classes)
        f = extract(self.classifier_, x, show_progress=False).f
        self._start(f.to(self.classifier_.device), c.to(self.classifier_.device))
        train_classifier(
            self.network_, (x, c), self.training, generator=generator, loss_function=self._loss, show_progress=show_progress
        )

    def _build(self, dim: int, classes: int) -> None:
        if self.classifier_ is None:
            raise NotFittedError(f"{type(self).__name__} is a copy of its classifier; load it with bal.load(path, classifier)")
        self._head = self._make_head(dim, classes)
        # float32, whatever the classifier's own: half precision is too coarse to learn in
        self.network_ = copy_with_head(self.classifier_, self._head).to(self.classifier_.device).float()
        self._lock = OneAtATime()  # hooks belong to the network, so one thread at a time

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What goes into the new last layer, and the logits."""
        with self._lock, capture(self._head) as seen:
            logits: Tensor = self.network_(like(x, next(self.network_.parameters())))
        return seen[0][0], logits

    def head(self) -> Head:
        """The new last layer."""
        return self._head

    @abstractmethod
    def _make_head(self, dim: int, classes: int) -> Head:
        """The new last layer, untrained."""

    @abstractmethod
    def _start(self, f: Tensor, c: Tensor) -> None:
        """Put the head at a good start, given the classifier's features and labels."""

    @abstractmethod
    def _loss(self, logits: Tensor, c: Tensor) -> Tensor:
        """What the training lowers."""


class DecomposedHead(nn.Module):
    """h_i(f) / g(f): similarity to class i over the confidence of being ID (Hsu et al., 2020, Eq. 4)."""

    def __init__(self, dim: int, classes: int, similarity: Similarity) -> None:
        super().__init__()
        self.similarity = similarity
        self.weight = nn.Parameter(torch.empty(classes, dim))
        self.bias = nn.Parameter(torch.zeros(classes))
        self.g = nn.Sequential(nn.Linear(dim, 1), nn.BatchNorm1d(1), nn.Sigmoid())

    def h(self, f: Tensor) -> Tensor:
        """(N, classes): inner product, negative squared Euclidean distance or cosine."""
        if self.similarity == "inner":
            return F.linear(f, self.weight, self.bias)
        if self.similarity == "euclidean":
            return -torch.cdist(f, self.weight).square()
        return F.normalize(f, dim=1) @ F.normalize(self.weight, dim=1).T

    def forward(self, f: Tensor) -> Tensor:
        """The quotient, (N, classes)."""
        quotient: Tensor = self.h(f) / self.g(f)
        return quotient


@dataclass(eq=False)
class GeneralizedODIN(TrainedDetector[DecomposedHead]):
    """max_i h_i(x~) of a decomposed confidence h / g, x~ a step that raises it (Hsu et al., CVPR 2020, Eqs. 4 to 9).

    epsilon: None searches the paper's grid and 0 for the largest mean score of ID training inputs (Eq. 9): no OOD.
    """

    similarity: Similarity = "cosine"
    epsilon: float | None = None
    training: ClassifierTraining = field(default_factory=lambda: FINE_TUNING)
    seed: int = 0

    GRID = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)

    def __post_init__(self) -> None:
        check_choices(self)
        check_number("epsilon", self.epsilon, low=0, optional=True)
        check_seed(self.seed)

    def _make_head(self, dim: int, classes: int) -> DecomposedHead:
        return DecomposedHead(dim, classes, self.similarity)

    def _start(self, f: Tensor, c: Tensor) -> None:
        head, old = self.head(), self.classifier_.head
        with torch.no_grad():
            if self.similarity == "inner":
                head.weight.copy_(old.weight)
                head.bias.copy_(torch.zeros_like(head.bias) if old.bias is None else old.bias)
            else:
                head.weight.copy_(class_means(f, c, len(head.weight)))
            # g starts near 0.05 for cosines, which need a sharp softmax, and at 1/2 for similarities without bounds
            norm = head.g[1]
            if self.similarity == "cosine" and isinstance(norm, nn.BatchNorm1d):
                norm.bias.fill_(-3.0)

    def _loss(self, logits: Tensor, c: Tensor) -> Tensor:
        return F.cross_entropy(logits, c)

    def _fit(self, x: Tensor, c: Tensor, *, show_progress: bool) -> None:
        super()._fit(x, c, show_progress=show_progress)
        chosen = self.epsilon
        if chosen is None:
            probe = x[:: max(1, len(x) // 500)][:500]
            chosen = max(self.GRID, key=lambda e: self._max_h(step_towards(self._max_h, probe, e)).mean().item())
        self.epsilon_ = torch.tensor(chosen, dtype=torch.float64)

    def _try_out(self) -> None:
        super()._try_out()
        self.epsilon_.item()

    def _max_h(self, x: Tensor) -> Tensor:
        return self.head().h(self._forward(x)[0]).max(1).values

    def _score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            predicted = self._forward(x)[1].argmax(1)
        moved = step_towards(self._max_h, x, self.epsilon_.item())
        with torch.no_grad():
            return self._max_h(moved), predicted


class PrototypeHead(nn.Module):
    """- gamma |f - m_i|^2 for one prototype m_i of each class."""

    gamma: Tensor

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("gamma", torch.tensor(1.0))
        self.prototypes = nn.Parameter(torch.zeros(classes, dim))

    def forward(self, f: Tensor) -> Tensor:
        """(N, classes), or (N, T, classes) for a head that runs on every token."""
        return -self.gamma * (f.unsqueeze(-2) - self.prototypes).square().sum(-1)


@dataclass(eq=False)
class GCPL(TrainedDetector[PrototypeHead]):
    r"""Generalized convolutional prototype learning: - distance to the nearest prototype (Yang et al., CVPR 2018, Eqs. 6 to 12).

    .. math:: L = -\log \mathrm{softmax}_c(-\gamma |f - m|^2) + \lambda |f - m_c|^2

    lambda = 0.01 as in the BAL paper. gamma: None takes 1 over the mean squared distance to the right prototype at the
    start, since the scale of features differs between networks.
    """

    lambda_: float = 0.01
    gamma: float | None = None
    training: ClassifierTraining = field(default_factory=lambda: FINE_TUNING)
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("lambda_", self.lambda_, low=0)
        check_number("gamma", self.gamma, low=1e-30, optional=True)
        check_seed(self.seed)

    def _make_head(self, dim: int, classes: int) -> PrototypeHead:
        return PrototypeHead(dim, classes)

    def _start(self, f: Tensor, c: Tensor) -> None:
        head = self.head()
        with torch.no_grad():
            head.prototypes.copy_(class_means(f, c, len(head.prototypes)))
            scale = (f - head.prototypes[c]).square().sum(1).mean()
            head.gamma.fill_(1 / scale.item() if self.gamma is None else self.gamma)

    def _loss(self, logits: Tensor, c: Tensor) -> Tensor:
        distance = -logits.gather(1, c.unsqueeze(1)) / self.head().gamma  # |f - m_c|^2
        return F.cross_entropy(logits, c) + self.lambda_ * distance.mean()

    def _score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self._forward(x)[1].max(1)
