"""RDM: the conditional discriminator D(f; c), which returns a logit (Sec. 4.3)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from bal.networks import mlp, one_hot
from bal.seeding import seeded

Conditioning = Literal["concatenate", "radial"]


class ConcatenatingDiscriminator(nn.Module):
    """The plain reading of the paper: fully connected layers on the feature and the one-hot label."""

    def __init__(self, *, dim: int, classes: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.classes = classes
        with seeded(generator):
            self.layers = mlp(dim + classes, hidden, 1)

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        logits: Tensor = self.layers(torch.cat([f, one_hot(c, self.classes, f)], 1)).squeeze(1)
        return logits


class RadialDiscriminator(nn.Module):
    r"""D that starts as a ball round each class mean and is bent by learning.

    .. math:: \mathrm{logit}\, D(f; c) = a - b \, |f - \mu_c|^2 / m + \mathrm{MLP}(f)_c

    Beyond the paper (``docs/equations.md``, departure 4). On features whitened within classes the ball is a Mahalanobis boundary:
    the mean of :math:`|f - \mu_c|^2 / m` is about 1 on ID features. The MLP has one output for each class and starts at zero.
    """

    means: Tensor

    def __init__(self, *, means: Tensor, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        classes, dim = means.shape
        self.register_buffer("means", means.clone())
        self.a = nn.Parameter(torch.tensor(RADIAL_START[0]))
        self.b = nn.Parameter(torch.tensor(RADIAL_START[1]))
        with seeded(generator):
            self.layers = mlp(dim, hidden, classes, layer_norm=True)
        nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.layers[-1].bias)  # type: ignore[arg-type]

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        radius = (f - self.means[c]).square().mean(1)
        bend: Tensor = self.layers(f).gather(1, c.unsqueeze(1)).squeeze(1)
        return self.a - self.b * radius + bend


RADIAL_START = (6.0, 3.0)  # logit +3 at the ID features' mean radius 1, 0 at twice that
