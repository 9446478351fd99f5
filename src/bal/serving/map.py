"""A map of features in two dimensions: the class means as the detector keeps them, and an input among them.

A saved detector holds no features, but some hold the mean of every class in the space where they decide. The axes are the two
main ones of these means (PCA), so that the map shows what separates the classes; what lies off both axes is not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bal.detectors import BAL, Detector
from bal.detectors.mahalanobis import Mahalanobis
from bal.discrimination import Ensemble
from bal.features import Features

See = Callable[[Tensor, Tensor], Tensor]  # raw features and logits as the detector sees them
TYPICAL = 2.0  # radius round a class mean where most of the class lies, in spaces with a within-class spread of 1


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """``axes`` (2, m) are orthonormal round ``origin`` (m,); ``centres`` (classes, 2) are the class means on them.

    ``share`` is how much of the variance of the class means the axes hold; ``radius`` is None where the spread is not known.
    """

    see: See
    origin: Tensor
    axes: Tensor
    centres: Tensor
    share: float
    radius: float | None

    def place(self, features: Features) -> NDArray[np.float64]:
        """(N, 2); NaN for rows that are not finite."""
        with torch.no_grad():
            places = project(self.see(features.f, features.logits), self.origin, self.axes)
        return np.where(features.valid.numpy()[:, None], places.numpy(), np.nan)

    def to_json(self) -> dict[str, Any]:
        """For the page."""
        return {
            "centres": self.centres.tolist(),
            "dimensions": self.axes.shape[1],
            "share": self.share,
            "radius": self.radius,
        }


def make_map(detector: Detector) -> FeatureMap | None:
    """The map of a detector that keeps class means; None for others."""
    if isinstance(detector, Mahalanobis):
        return map_of(detector.whiten(detector.means_), lambda f, _: detector.whiten(detector.prepare(f)), TYPICAL)
    if isinstance(detector, BAL):
        D = detector.D_.members[0] if isinstance(detector.D_, Ensemble) else detector.D_
        means, radius = getattr(D, "means", None), TYPICAL if "whiten" in detector.normalisation else None
        return None if means is None else map_of(means, detector.normalise, radius)
    return None


def map_of(means: Tensor, see: See, radius: float | None) -> FeatureMap | None:
    """Two main axes of class means (classes, m); None where there are no two, or nothing is apart."""
    means = means.detach().double().cpu()
    origin = means.mean(0)
    if not torch.isfinite(means).all():
        return None
    _, lengths, directions = torch.linalg.svd(means - origin, full_matrices=False)
    if len(directions) < 2 or not lengths[0] > 0:
        return None
    axes = torch.stack([upright(direction) for direction in directions[:2]])
    share = (lengths[:2].square().sum() / lengths.square().sum()).item()
    return FeatureMap(see, origin, axes, project(means, origin, axes), share, radius)


def upright(direction: Tensor) -> Tensor:
    """The direction or its opposite, so that its largest coordinate is positive: the sign of an axis means nothing."""
    return direction * direction[direction.abs().argmax()].sign()


def project(f: Tensor, origin: Tensor, axes: Tensor) -> Tensor:
    """(N, m) on two axes, (N, 2) float64.

    >>> project(torch.tensor([[3.0, 5.0, 9.0]]), torch.tensor([1.0, 1.0, 1.0]).double(), torch.eye(2, 3).double()).tolist()
    [[2.0, 4.0]]
    """
    return (f.double().cpu() - origin) @ axes.T
