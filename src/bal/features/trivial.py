"""REM, second half: trivial OOD pairs, drawn from the box of the batch (Sec. 4.1)."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Pairs = tuple[Tensor, Tensor]  # features (N, m) and labels (N,)


class TrivialSampler(Protocol):
    """Makes negative pairs from a batch of ID pairs; the uniform one is the paper's, others are for ablations."""

    def fit(self, f: Tensor, c: Tensor) -> "TrivialSampler":
        """Read all ID features once before training; most samplers need nothing."""
        ...

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """As many pairs as the batch has."""
        ...


def batch_bounds(f: Tensor) -> Pairs:
    r"""The smallest box that holds the batch (Eqs. bound1 to bound4).

    .. math:: a^{(j)} = \min_{1 \le i \le k} f_i^{(j)}, \qquad b^{(j)} = \max_{1 \le i \le k} f_i^{(j)}, \qquad j = 1, \dots, m

    >>> batch_bounds(torch.tensor([[0.0, 5.0], [2.0, 1.0]]))
    (tensor([0., 1.]), tensor([2., 5.]))
    """
    return f.amin(0), f.amax(0)


def random_labels(rows: int, classes: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Labels drawn uniformly from all classes, (rows,)."""
    return torch.randint(classes, (rows,), generator=generator).to(device)


@dataclass
class Uniform:
    r"""The paper's trivial OOD: :math:`\hat f \sim \mathbb{U}(a, b)` with a random label (Sec. 4.1)."""

    def fit(self, f: Tensor, c: Tensor) -> "Uniform":
        """Nothing to learn: the box is the batch's own."""
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """(k, m) features in the box of the batch, (k,) labels."""
        a, b = batch_bounds(f)
        u = torch.rand(f.shape, generator=generator).to(f)
        return a + (b - a) * u, random_labels(len(f), classes, generator, f.device)
