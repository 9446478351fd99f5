"""The embedded sample: Fashion-MNIST is the known world, MNIST the unknown one. Made by ``scripts/make_sample.py``."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True)
class Sample:
    """Images are (N, 28, 28) uint8; labels (N,) int64."""

    train: Labelled
    test: Labelled
    ood: Labelled
    id_name: str = "Fashion-MNIST"
    ood_name: str = "MNIST"
    classes: tuple[str, ...] = CLASSES


def load_sample() -> Sample:
    """Read the sample that ships with the package.

    >>> sample = load_sample()
    >>> sample.train[0].shape, sample.test[0].shape, sample.ood[0].shape
    ((10000, 28, 28), (2000, 28, 28), (2000, 28, 28))
    """
    with files("bal.data").joinpath("sample/fashion_mnist.npz").open("rb") as file, np.load(file) as arrays:

        def part(name: str) -> Any:
            return arrays[f"{name}_images"], arrays[f"{name}_labels"].astype(np.int64)

        return Sample(train=part("train"), test=part("test"), ood=part("ood"))
