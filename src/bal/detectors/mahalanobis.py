"""Distances to class Gaussians."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bal.detectors.base import FeatureDetector
from bal.features import class_means


def precision_factor(centred: Tensor) -> Tensor:
    """L with L L^T = pseudo-inverse of the covariance of centred rows, (m, m) float64; what never varies is left out."""
    centred = centred.double()
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    varies = values > values[-1] * len(values) * torch.finfo(torch.float64).eps
    scale = torch.where(varies, values, torch.ones_like(values)).rsqrt() * varies
    factor: Tensor = vectors * scale
    return factor


def squared_distances(f: Tensor, means: Tensor, factor: Tensor) -> Tensor:
    """(f - mean_c)^T L L^T (f - mean_c) for every row and mean, (N, classes) float64: plain ones after a product with L."""
    return torch.cdist(f.double() @ factor, means.double() @ factor, compute_mode="donot_use_mm_for_euclid_dist").square()


@dataclass(eq=False)
class Mahalanobis(FeatureDetector):
    """- min over classes of the squared Mahalanobis distance, one covariance for all classes (Lee et al., NeurIPS 2018, Eq. 2).

    Departure: on the penultimate feature alone, without the input perturbation and the ensemble of layers, which need OOD data.
    """

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        f = self.prepare(f)
        self.means_ = class_means(f, c, logits.shape[1])
        self.factor_ = precision_factor(f - self.means_[c])

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return -squared_distances(self.prepare(f), self.means_, self.factor_).min(1).values

    def prepare(self, f: Tensor) -> Tensor:
        """Raw features, (N, m), as they are compared with the class means."""
        return f.double()

    def whiten(self, f: Tensor) -> Tensor:
        """Prepared features where the distance is the plain one, with a spread of 1 within classes."""
        return f.double() @ self.factor_


@dataclass(eq=False)
class MahalanobisPlusPlus(Mahalanobis):
    """Mahalanobis on features of length 1 (Mueller & Hein, ICML 2025)."""

    def prepare(self, f: Tensor) -> Tensor:
        """Of length 1."""
        return normalize(f.double(), dim=1)


@dataclass(eq=False)
class RelativeMahalanobis(Mahalanobis):
    """- min over classes of (distance to the class - distance to all data as one Gaussian) (Ren et al., 2021, Eq. 3)."""

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        super()._fit(f, logits, c)
        self.centre_ = f.double().mean(0, keepdim=True)
        self.background_ = precision_factor(f.double() - self.centre_)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return super()._score(f, logits) + squared_distances(f, self.centre_, self.background_)[:, 0]
