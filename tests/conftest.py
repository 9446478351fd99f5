"""Shared pieces of the tests: seeded generators, two blobs, a tiny classifier."""

import numpy as np
import pytest
import torch
from torch import nn

from bal.backbones import Classifier
from bal.features import Features
from bal.seeding import make_generator

torch.set_num_threads(1)  # pytest-xdist already uses every core


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Networks made without a generator are the same in every run and order of the tests."""
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    return make_generator(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def make_blobs(rows: int = 300, *, classes: int = 3, dim: int = 8, seed: int = 0) -> Features:
    """Labelled features of well separated classes: Gaussian blobs round scaled unit vectors, logits from their distance."""
    g = make_generator(seed)
    means = 6 * torch.eye(classes, dim)
    labels = torch.arange(rows) % classes
    f = means[labels] + torch.randn(rows, dim, generator=g)
    logits = -0.5 * torch.cdist(f, means).square()
    return Features(f, logits, labels)


def make_outliers(rows: int = 300, *, classes: int = 3, dim: int = 8, seed: int = 1) -> Features:
    """Features far from every blob, which the linear head still has an opinion about."""
    g = make_generator(seed)
    f = -6 + torch.randn(rows, dim, generator=g)
    return Features(f, -0.5 * torch.cdist(f, 6 * torch.eye(classes, dim)).square())


@pytest.fixture
def blobs() -> Features:
    return make_blobs()


@pytest.fixture
def outliers() -> Features:
    return make_outliers()


@pytest.fixture
def tiny_model(generator: torch.Generator) -> nn.Sequential:
    """A convolution, batch norm, dropout and two linear layers on 1x4x4 images: everything that eval mode matters for."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(64, 6),
            nn.ReLU(),
            nn.Linear(6, 3),
        )


@pytest.fixture
def tiny_classifier(tiny_model: nn.Sequential) -> Classifier:
    return Classifier(tiny_model)


@pytest.fixture
def tiny_images(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """60 images of three classes, each bright in its own quarter."""
    labels = torch.arange(60) % 3
    images = 0.1 * torch.rand(60, 1, 4, 4, generator=generator)
    for label, (row, column) in enumerate([(0, 0), (0, 2), (2, 0)]):
        images[labels == label, :, row : row + 2, column : column + 2] += 0.9
    return images, labels
