"""RSM: the conditional generator G(z; c) of synthetic ID features (Sec. 4.2)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bal.networks import mlp, one_hot
from bal.seeding import seeded


class Generator(nn.Module):
    """G(z; c): fully connected layers on the noise and the one-hot label.

    Args:
        dim: size m of a feature.
        classes: number of classes.
        noise_dim: size of z.
        hidden: widths of the hidden layers.
        generator: source of the initial weights.
    """

    def __init__(self, *, dim: int, classes: int, noise_dim: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.classes = classes
        self.noise_dim = noise_dim
        with seeded(generator):
            self.layers = mlp(noise_dim + classes, hidden, dim, layer_norm=True)

    def forward(self, z: Tensor, c: Tensor) -> Tensor:
        """Noise (N, noise_dim) and labels (N,) to features (N, m)."""
        features: Tensor = self.layers(torch.cat([z, one_hot(c, self.classes, z)], 1))
        return features

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Z from the standard normal distribution P_z, (rows, noise_dim), where the weights are."""
        device = next(self.parameters()).device
        return torch.randn(rows, self.noise_dim, generator=generator).to(device)
