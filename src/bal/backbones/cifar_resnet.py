"""The thin ResNets that He et al. (2016) trained on CIFAR-10: ResNet-20 and ResNet-56, with shortcuts that have no weights."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.backbones.resnet import BasicBlock
from bal.errors import SettingsError
from bal.seeding import seeded


class PaddedShortcut(nn.Module):
    """A shortcut without weights (option A): every second pixel is skipped, and new channels on both sides are filled with 0."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C + new_channels, H / stride, W / stride)."""
        before = self.new_channels // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.new_channels - before))


class CifarResNet(nn.Module):
    """Stages of 16, 32 and 64 channels with (depth - 2) / 6 blocks each; the feature has 64 numbers."""

    def __init__(self, *, classes: int = 10, depth: int = 20, generator: torch.Generator) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise SettingsError(f"the depth of a CIFAR ResNet is 6 n + 2, for example 20 or 56, got {depth}")
        with seeded(generator):
            self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            self.layer1 = thin_stage(16, 16, 1, blocks)
            self.layer2 = thin_stage(16, 32, 2, blocks)
            self.layer3 = thin_stage(32, 64, 2, blocks)
            self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, 32, 32) to logits (N, classes)."""
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


def thin_stage(channels_in: int, channels_out: int, stride: int, blocks: int) -> nn.Sequential:
    """Blocks of one size; the first one changes it."""
    shortcut = PaddedShortcut(channels_out - channels_in, stride)
    first = BasicBlock(channels_in, channels_out, stride, shortcut=shortcut)
    return nn.Sequential(first, *(BasicBlock(channels_out, channels_out, 1) for _ in range(blocks - 1)))
