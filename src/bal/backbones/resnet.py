"""ResNet-18 and ResNet-34 for small images (28x28 grey, 32x32 colour), backbones of the paper (Sec. 5.3)."""

from typing import Literal

import torch
from torch import Tensor, nn

from bal.seeding import seeded

Stem = Literal["3x3", "7x7"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016): the given one, or a 1x1 convolution where the size changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, *, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = shortcut or nn.Identity()
        if shortcut is None and (stride != 1 or channels_in != channels_out):
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels_in, H, W) to (N, channels_out, H / stride, W / stride)."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with a settable width, stem and penultimate size; the backbone of the paper's MNIST groups.

    Args:
        channels: 1 for grey, 3 for colour images.
        classes: number of classes.
        width: channels of the first stage; the paper's network has 64.
        stem: "3x3" keeps the resolution (usual for 32x32 images); "7x7" is the original one, a stride of 2 and a 2x2
            maximum, some 16 times less work.
        penultimate: neurons of an extra linear layer before the head (2 and 3 in the paper's figures; Table 5);
            None takes the pooled 8 * width channels themselves.
        generator: source of the initial weights.
    """

    BLOCKS: tuple[int, int, int, int] = (2, 2, 2, 2)

    def __init__(
        self,
        *,
        channels: int = 1,
        classes: int = 10,
        width: int = 64,
        stem: Stem = "3x3",
        penultimate: int | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        with seeded(generator):
            self.stem = make_stem(stem, channels, width)
            self.stage1 = stage(width, width, 1, self.BLOCKS[0])
            self.stage2 = stage(width, 2 * width, 2, self.BLOCKS[1])
            self.stage3 = stage(2 * width, 4 * width, 2, self.BLOCKS[2])
            self.stage4 = stage(4 * width, 8 * width, 2, self.BLOCKS[3])
            dim = 8 * width if penultimate is None else penultimate
            self.penultimate = nn.Identity() if penultimate is None else nn.Linear(8 * width, dim)
            self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, channels, H, W) to logits (N, classes)."""
        x = self.stage4(self.stage3(self.stage2(self.stage1(self.stem(x)))))
        logits: Tensor = self.head(self.penultimate(x.mean((2, 3))))  # global average pooling
        return logits


class ResNet34(ResNet18):
    """ResNet-34, the same with more blocks; a backbone of the paper's Table 2."""

    BLOCKS = (3, 4, 6, 3)


def make_stem(stem: Stem, channels: int, width: int) -> nn.Sequential:
    """The first convolution, from pixels to ``width`` channels."""
    kernel, stride = (3, 1) if stem == "3x3" else (7, 2)
    convolution = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
    shrink = nn.Identity() if stem == "3x3" else nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(), shrink)


def stage(channels_in: int, channels_out: int, stride: int, blocks: int) -> nn.Sequential:
    """Blocks of one size; the first one changes it."""
    first = BasicBlock(channels_in, channels_out, stride)
    return nn.Sequential(first, *(BasicBlock(channels_out, channels_out, 1) for _ in range(blocks - 1)))
