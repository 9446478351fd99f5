"""Distances to class Gaussians."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bal.detectors.base import FeatureDetector
from bal.features import class_means


def precision_matrix(centred: Tensor) -> Tensor:
    """Pseudo-inverse of the covariance of centred rows, float64: directions that never vary are left out."""
    centred = centred.double()
    precision: Tensor = torch.linalg.pinv(centred.T @ centred / len(centred), hermitian=True)
    return precision


def squared_distances(f: Tensor, means: Tensor, precision: Tensor) -> Tensor:
    """(f - mean_c)^T P (f - mean_c) for every row and mean, (N, classes) float64."""
    f = f.double()
    return torch.stack([((f - mean) @ precision * (f - mean)).sum(1) for mean in means], 1)


@dataclass(eq=False)
class Mahalanobis(FeatureDetector):
    """- min over classes of the squared Mahalanobis distance, one covariance for all classes (Lee et al., NeurIPS 2018, Eq. 2).

    Departure: on the penultimate feature alone, without the input perturbation and the ensemble of layers, which need OOD data.
    """

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        f = self._prepare(f)
        self.means_ = class_means(f, c, logits.shape[1])
        self.precision_ = precision_matrix(f - self.means_[c])

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return -squared_distances(self._prepare(f), self.means_, self.precision_).min(1).values

    def _prepare(self, f: Tensor) -> Tensor:
        return f.double()


@dataclass(eq=False)
class MahalanobisPlusPlus(Mahalanobis):
    """Mahalanobis on features of length 1 (Mueller & Hein, ICML 2025)."""

    def _prepare(self, f: Tensor) -> Tensor:
        return normalize(f.double(), dim=1)


@dataclass(eq=False)
class RelativeMahalanobis(Mahalanobis):
    """- min over classes of (distance to the class - distance to all data as one Gaussian) (Ren et al., 2021, Eq. 3)."""

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        super()._fit(f, logits, c)
        self.centre_ = f.double().mean(0, keepdim=True)
        self.background_ = precision_matrix(f.double() - self.centre_)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return super()._score(f, logits) + squared_distances(f, self.centre_, self.background_)[:, 0]
