"""A network of the tables that needs no files, and tiny data sets in MNIST's format."""

import gzip
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from bal.backbones import Classifier
from bal.errors import DataError
from bal.experiments.networks import NETWORKS
from conftest import make_blobs, make_outliers


@dataclass(frozen=True)
class Toy:
    """Knows three blobs, called mnist; all other data sets are outliers, and svhn is not there."""

    data: str = "mnist"

    def recipe(self, preset):
        return {"toy": preset}

    def classifier(self, store):
        model = nn.Sequential(nn.Linear(8, 3))
        with torch.no_grad():
            model[0].weight.copy_(6 * torch.eye(3, 8))
            model[0].bias.fill_(-18.0)
        return Classifier(model)

    def inputs(self, store, name, split):
        if name == self.data:
            blobs = make_blobs(seed=0 if split == "train" else 1)
            return blobs.f, blobs.labels
        if name == "svhn":
            raise DataError("SVHN is not here")
        outliers = make_outliers(rows=200 if name == "omniglot" else 300, seed=len(name))
        return outliers.f, torch.zeros(len(outliers), dtype=torch.int64)


def register():
    NETWORKS["toy"] = Toy()


def write_mnist_like(root, name, *, rows=200, classes=10, seed=0):
    """The four files of MNIST or Fashion-MNIST with bars at a height of their class's own, plus noise."""
    rng = np.random.default_rng(seed)
    (root / name).mkdir(parents=True)
    for part, count in (("train", rows), ("t10k", rows // 2)):
        labels = np.arange(count, dtype=np.uint8) % classes
        images = rng.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 4] += 180
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            (root / name / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))
