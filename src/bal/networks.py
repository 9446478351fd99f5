"""The plain multi-layer perceptron that G and D are made of."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F


def mlp(inputs: int, hidden: Sequence[int], outputs: int, *, layer_norm: bool = False) -> nn.Sequential:
    """Linear layers with leaky ReLU between them, with LayerNorm before each if asked."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(inputs, width))
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(nn.LeakyReLU(0.2))
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def one_hot(c: Tensor, classes: int, like: Tensor) -> Tensor:
    """Labels (N,) as rows (N, classes) of the dtype of ``like``."""
    return F.one_hot(c, classes).to(like.dtype)
