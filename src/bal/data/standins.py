"""Stand-ins for OOD images, made from ID images: to choose settings by, since no OOD data may have a say.

Every function takes images (N, channels, height, width) in [0, 1] and a generator, and returns as many.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from bal.errors import ShapeError

StandIn = Callable[[Tensor, torch.Generator], Tensor]


def jigsaw(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image cut into 2 x 2 tiles that are put together in another order."""
    height, width = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
    tiles = torch.stack([q for half in x[..., :height, :width].chunk(2, 2) for q in half.chunk(2, 3)], 1)  # (N, 4, C, h, w)
    order = torch.stack([shuffled_quarters(generator) for _ in range(len(x))])
    tiles = tiles[torch.arange(len(x))[:, None], order]
    return torch.cat([torch.cat([tiles[:, 0], tiles[:, 1]], 3), torch.cat([tiles[:, 2], tiles[:, 3]], 3)], 2)


def shuffled_quarters(generator: torch.Generator) -> Tensor:
    """An order of four tiles that is not the right one."""
    while True:
        order = torch.randperm(4, generator=generator)
        if order.tolist() != [0, 1, 2, 3]:
            return order


def mean_of_two(x: Tensor, generator: torch.Generator) -> Tensor:
    """The pixel-wise mean of each image and another one."""
    shift = int(torch.randint(1, max(2, len(x)), (), generator=generator))
    return (x + x.roll(shift, 0)) / 2


def speckle(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each pixel times 1 + N(0, 1), cut to [0, 1]."""
    return (x * (1 + torch.randn(x.shape, generator=generator))).clamp(0, 1)


def blur(x: Tensor, generator: torch.Generator) -> Tensor:
    """A 7 x 7 box blur, which leaves hardly any detail in a small image."""
    return F.avg_pool2d(F.pad(x, (3, 3, 3, 3), mode="replicate"), 7, 1)


def inversion(x: Tensor, generator: torch.Generator) -> Tensor:
    """The negative, 1 - x."""
    return 1 - x


def channel_swap(x: Tensor, generator: torch.Generator) -> Tensor:
    """The channels in turn: red for green for blue. A grey image stays as it is."""
    return x.roll(1, 1)


STAND_INS: dict[str, StandIn] = {
    "jigsaw": jigsaw,
    "mean of two": mean_of_two,
    "speckle": speckle,
    "blur": blur,
    "inversion": inversion,
    "channel swap": channel_swap,
}


def stand_ins(x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """All stand-ins of a set of images; channel swap only where there are channels to swap."""
    if x.ndim != 4 or min(x.shape[2:]) < 4:
        raise ShapeError(f"stand-ins are made from images (N, channels, height, width) of 4 x 4 or more, got {tuple(x.shape)}")
    return {name: make(x, generator) for name, make in STAND_INS.items() if name != "channel swap" or x.shape[1] > 1}
