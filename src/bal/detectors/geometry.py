"""Geometry of the feature beside the last layer: fDBD, NCI, SHE and GradNorm."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bal.detectors.base import FeatureDetector, HeadDetector
from bal.features import class_means
from bal.settings import check_number


def length(rows: Tensor) -> Tensor:
    """Euclidean length of each row, (N,), never quite 0."""
    return rows.square().sum(1).sqrt().clamp_min(1e-12)


@dataclass(eq=False)
class FDBD(HeadDetector):
    """Mean distance to the decision boundaries over the distance to the mean of the features (Liu & Qin, ICML 2024, Eq. 5).

    The distance to the boundary between the predicted class c and class k is |(w_c - w_k) f + b_c - b_k| / |w_c - w_k|.
    """

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        self.centre_ = f.double().mean(0)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        f, W = f.double(), self.W_.double()
        logits = f @ W.T + self.b_
        top, c_hat = logits.max(1, keepdim=True)
        between = torch.cdist(W, W)[c_hat.squeeze(1)]  # (N, classes): |w_c - w_k|, 0 at k = c
        distances = (top - logits) / between.clamp_min(1e-12)  # 0 at k = c
        mean = distances.sum(1) / (W.shape[0] - 1)
        return mean / length(f - self.centre_)


@dataclass(eq=False)
class NCI(HeadDetector):
    """w_c (f - mean) / |f - mean| + alpha |f|_1, c the predicted class (Liu & Qin, CVPR 2025, Eq. 6).

    Departure: the paper tunes alpha on validation data; None sets it so that both terms vary alike on ID training features.
    """

    alpha: float | None = None

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, low=0, optional=True)

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        self.centre_ = f.double().mean(0)
        if self.alpha is None:
            ratio = self.proximity(f, logits).std() / f.double().abs().sum(1).std().clamp_min(1e-12)
        self.weight_ = ratio if self.alpha is None else torch.tensor(self.alpha, dtype=torch.float64)

    def proximity(self, f: Tensor, logits: Tensor) -> Tensor:
        """Projection of the weight of the predicted class on the centred feature, (N,) float64."""
        centred = f.double() - self.centre_
        return (self.W_.double()[logits.argmax(1)] * centred).sum(1) / length(centred)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return self.proximity(f, logits) + self.weight_ * f.double().abs().sum(1)


@dataclass(eq=False)
class SHE(FeatureDetector):
    """Inner product with the stored pattern of the predicted class (Zhang et al., ICLR 2023, Eq. 8).

    The pattern is the mean feature of the training rows of a class that the classifier gets right; of all its rows if there are
    none.
    """

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        classes = logits.shape[1]
        right = logits.argmax(1) == c
        patterns = class_means(f.double()[right], c[right], classes)
        known = c[right].bincount(minlength=classes) > 0
        self.patterns_ = torch.where(known[:, None], patterns, class_means(f.double(), c, classes))

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return (f.double() * self.patterns_[logits.argmax(1)]).sum(1)


@dataclass(eq=False)
class GradNorm(FeatureDetector):
    """L1 norm of the last layer's gradient of KL(uniform || softmax) (Huang, Geng & Li, NeurIPS 2021, Eqs. 6 and 7).

    The gradient is the outer product of (p - 1/classes) and f, so its norm is |f|_1 * |p - 1/classes|_1; no backward pass.
    """

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        p = logits.double().softmax(1)
        return f.double().abs().sum(1) * (p - 1 / p.shape[1]).abs().sum(1)
