"""Training of the softmax classifier: Adam and cross-entropy, as in Sec. 5.3 of the paper."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.data import Batches, Data
from bal.errors import DataError
from bal.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class ClassifierTraining:
    """Settings of :func:`train_classifier`; the learning rate falls to zero along a half cosine."""

    epochs: int = 300
    batch_size: int = 128
    learning_rate: float = 1e-3


def train_classifier(
    model: nn.Module,
    data: Data,
    settings: ClassifierTraining,
    *,
    generator: torch.Generator,
    show_progress: bool = True,
) -> list[float]:
    """Train ``model`` in place on (x, c) and return the mean loss of every epoch; ends in eval mode.

    The whole training set is held in memory, as 28x28 and 32x32 sets allow; the order of rows comes from ``generator``.
    """
    x, c = stack(data)
    batches = -(-len(x) // settings.batch_size)
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs * batches)
    device = next(model.parameters()).device
    losses = []
    model.train()
    with progress_bar("classifier", settings.epochs * batches, show=show_progress) as advance:
        for _ in range(settings.epochs):
            total = 0.0
            for rows in torch.randperm(len(x), generator=generator).split(settings.batch_size):
                loss = F.cross_entropy(model(x[rows].to(device)), c[rows].to(device))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                total += loss.item() * len(rows)
                advance(note=f"loss {loss.item():.3f}")
            losses.append(total / len(x))
    model.eval()
    return losses


def stack(data: Data) -> tuple[Tensor, Tensor]:
    """All inputs and labels as two tensors."""
    inputs, labels = [], []
    for x, c in Batches(data):
        if c is None:
            raise DataError("a classifier needs labels to learn from; give (x, labels) instead of x")
        inputs.append(x)
        labels.append(c)
    if not inputs:
        raise DataError("the training data is empty; give at least one row")
    return torch.cat(inputs), torch.cat(labels)
