"""DenseNet-BC for 32x32 images (Huang et al., CVPR 2017), a backbone of the paper's Table 2: depth 100, growth 12."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.errors import SettingsError
from bal.seeding import seeded


class DenseLayer(nn.Module):
    """BN, ReLU, 1x1 convolution to 4k channels; BN, ReLU, 3x3 convolution to k channels, which are added to the input's."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, channels + growth, H, W)."""
        y = self.conv1(F.relu(self.bn1(x)))
        y = self.conv2(F.relu(self.bn2(y)))
        return torch.cat([x, y], 1)


class DenseBlock(nn.Module):
    """Layers one after the other, each with ``growth`` more channels."""

    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(*(DenseLayer(channels + i * growth, growth) for i in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, channels + layers * growth, H, W)."""
        y: Tensor = self.layer(x)
        return y


class Transition(nn.Module):
    """BN, ReLU, 1x1 convolution to fewer channels, 2x2 mean."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels_in, H, W) to (N, channels_out, H / 2, W / 2)."""
        return F.avg_pool2d(self.conv1(F.relu(self.bn1(x))), 2)


class DenseNetBC(nn.Module):
    """Three dense blocks with bottlenecks, each but the last followed by a transition to half the channels.

    Args:
        classes: number of classes.
        depth: 3 blocks of 2-layer bottlenecks and 4 layers between them, so 6 n + 4.
        growth: k, the channels that each layer adds.
        generator: source of the initial weights.
    """

    def __init__(self, *, classes: int = 10, depth: int = 100, growth: int = 12, generator: torch.Generator) -> None:
        super().__init__()
        layers, rest = divmod(depth - 4, 6)
        if rest or layers < 1:
            raise SettingsError(f"the depth of a DenseNet-BC is 6 n + 4, for example 100 or 40, got {depth}")
        channels = 2 * growth
        with seeded(generator):
            self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
            self.block1 = DenseBlock(channels, growth, layers)
            self.trans1 = Transition(channels + layers * growth, (channels + layers * growth) // 2)
            channels = (channels + layers * growth) // 2
            self.block2 = DenseBlock(channels, growth, layers)
            self.trans2 = Transition(channels + layers * growth, (channels + layers * growth) // 2)
            channels = (channels + layers * growth) // 2
            self.block3 = DenseBlock(channels, growth, layers)
            channels += layers * growth
            self.bn1 = nn.BatchNorm2d(channels)
            self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, 32, 32) to logits (N, classes)."""
        x = self.trans2(self.block2(self.trans1(self.block1(self.conv1(x)))))
        x = F.relu(self.bn1(self.block3(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
