"""The plain multi-layer perceptron that G and D are made of."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm as with_norm_1


def mlp(
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    *,
    layer_norm: bool = False,
    dropout: float = 0.0,
    spectral_norm: bool = False,
) -> nn.Sequential:
    """Linear layers with leaky ReLU between them, with LayerNorm before each and dropout after each if asked.

    ``spectral_norm`` divides the weight of every hidden layer by its largest singular value; the last layer stays free, so that
    it may start at zero.
    """
    layers: list[nn.Module] = []
    for width in hidden:
        linear = nn.Linear(inputs, width)
        layers.append(with_norm_1(linear) if spectral_norm else linear)
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(nn.LeakyReLU(0.2))
        if dropout:
            layers.append(nn.Dropout(dropout))
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def one_hot(c: Tensor, classes: int, like: Tensor) -> Tensor:
    """Labels (N,) as rows (N, classes) of the dtype of ``like``."""
    return F.one_hot(c, classes).to(like.dtype)
