"""Pre-trained classifiers of the paper's Table 2, as data: plain state_dicts in the folder that BAL_WEIGHTS names."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bal.backbones import CifarResNet, Classifier, DenseNetBC, Normalise, ResNet34, load_weights
from bal.errors import DataError
from bal.seeding import make_generator

Channels = tuple[float, float, float]
CIFAR: tuple[Channels, Channels] = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET: tuple[Channels, Channels] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SVHN: tuple[Channels, Channels] = ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255))


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights: the network it fits, the data set it knows, and the mean and deviation its pixels were trained with."""

    title: str
    file: str
    data: str
    build: Callable[[], nn.Module]
    normalisation: tuple[Channels, Channels]


def densenet(classes: int) -> Callable[[], nn.Module]:
    """DenseNet-BC-100, k = 12."""
    return lambda: DenseNetBC(classes=classes, generator=make_generator(0))


def resnet(depth: int) -> Callable[[], nn.Module]:
    """The thin ResNet of that depth."""
    return lambda: CifarResNet(depth=depth, generator=make_generator(0))


def resnet34(classes: int) -> Callable[[], nn.Module]:
    """ResNet-34 for 32x32 images."""
    return lambda: ResNet34(channels=3, classes=classes, generator=make_generator(0))


CHECKPOINTS: dict[str, Checkpoint] = {
    "densenet-cifar10": Checkpoint("DenseNet-BC-100", "densenetbc100_cifar10.pt", "cifar10", densenet(10), CIFAR),
    "densenet-cifar100": Checkpoint("DenseNet-BC-100", "densenetbc100_cifar100.pt", "cifar100", densenet(100), CIFAR),
    "densenet-svhn": Checkpoint("DenseNet-BC-100", "densenetbc100_svhn.pt", "svhn", densenet(10), SVHN),
    "resnet34-cifar10": Checkpoint("ResNet-34", "resnet34_cifar10.pt", "cifar10", resnet34(10), CIFAR),
    "resnet34-cifar100": Checkpoint("ResNet-34", "resnet34_cifar100.pt", "cifar100", resnet34(100), CIFAR),
    "resnet34-svhn": Checkpoint("ResNet-34", "resnet34_svhn.pt", "svhn", resnet34(10), SVHN),
    "resnet20-cifar10": Checkpoint("ResNet-20", "resnet20_cifar10.pt", "cifar10", resnet(20), IMAGENET),
    "resnet56-cifar10": Checkpoint("ResNet-56", "resnet56_cifar10.pt", "cifar10", resnet(56), IMAGENET),
}


def weights_path(name: str) -> Path:
    """Where the weights of that name are."""
    file = CHECKPOINTS[name].file
    path = Path(os.environ.get("BAL_WEIGHTS", "")) / file
    if not path.is_file():
        raise DataError(f"there are no weights {file}; set BAL_WEIGHTS to the folder that holds them")
    return path


def load_checkpoint(name: str) -> Classifier:
    """The classifier of that name; its convolutions run channels-last, which is more than twice as quick on a CPU."""
    checkpoint = CHECKPOINTS[name]
    path = weights_path(name)
    model = checkpoint.build()
    load_weights(model, path)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Classifier(model, preprocess=Normalise(*checkpoint.normalisation))
