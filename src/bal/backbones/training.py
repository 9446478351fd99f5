"""Training of the softmax classifier: Adam and cross-entropy, as in Sec. 5.3 of the paper."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.backbones.classifier import like
from bal.data import Data, stack
from bal.data.batches import split_rows
from bal.progress import progress_bar
from bal.seeding import seeded
from bal.settings import check_number


@dataclass(frozen=True, kw_only=True)
class ClassifierTraining:
    """Settings of :func:`train_classifier`; the learning rate falls to zero along a half cosine."""

    epochs: int = 300
    batch_size: int = 128
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_number("epochs", self.epochs, low=1, whole=True)
        check_number("batch_size", self.batch_size, low=1, whole=True)
        check_number("learning_rate", self.learning_rate, low=0)


def train_classifier(
    model: nn.Module,
    data: Data,
    settings: ClassifierTraining,
    *,
    generator: torch.Generator,
    loss_function: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    show_progress: bool = True,
) -> list[float]:
    """Train ``model`` in place on (x, c) and return the mean loss of every epoch; ends in eval mode.

    The whole training set is held in memory, as 28x28 and 32x32 sets allow; the order of rows comes from ``generator``.
    A last batch of one row is joined to the one before it.
    """
    x, c = stack(data)
    batches = len(split_rows(c, settings.batch_size))
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs * batches)
    weight = next(model.parameters())
    losses = []
    model.train()
    with seeded(generator), progress_bar("classifier", settings.epochs * batches, show=show_progress) as advance:
        for _ in range(settings.epochs):
            total = 0.0
            for rows in split_rows(torch.randperm(len(x), generator=generator), settings.batch_size):
                loss = loss_function(model(like(x[rows], weight)), c[rows].to(weight.device))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                total += loss.item() * len(rows)
                advance(note=f"loss {loss.item():.3f}")
            losses.append(total / len(x))
    optimiser.zero_grad()  # no gradients are left behind
    model.eval()
    return losses
