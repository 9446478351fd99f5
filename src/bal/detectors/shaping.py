"""Energy of reshaped activations: ReAct, ASH, SCALE and DICE. All work on the pooled feature f and the last layer.

ASH and SCALE were made for features behind a ReLU; where sums of activations are not positive they have no meaning, and the plain
energy is used.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bal.detectors.base import HeadDetector
from bal.detectors.softmax import energy
from bal.settings import check_number


def top_share(f: Tensor, percentile: float) -> tuple[Tensor, Tensor]:
    """The activations at or above each row's own percentile (others 0), and s1 / s2, all over kept activations, (N, 1)."""
    count = max(1, f.shape[1] - round(f.shape[1] * percentile / 100))
    threshold = f.topk(count, 1).values[:, -1:]
    kept = torch.where(f >= threshold, f, torch.zeros_like(f))
    s1, s2 = f.sum(1, keepdim=True), kept.sum(1, keepdim=True)
    usable = (s1 > 0) & (s2 > 0)
    return kept, torch.where(usable, s1 / torch.where(usable, s2, torch.ones_like(s2)), torch.zeros_like(s1))


@dataclass(eq=False)
class ShapedEnergy(HeadDetector):
    """Energy of the logits that the last layer gives to a reshaped feature."""

    percentile: float

    def __post_init__(self) -> None:
        check_number("percentile", self.percentile, low=0, high=100)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return energy(self.shape(f.double()) @ self.W_.double().T + self.b_)

    @abstractmethod
    def shape(self, f: Tensor) -> Tensor:
        """Features (N, m) float64 in their new shape."""


@dataclass(eq=False)
class ReAct(ShapedEnergy):
    """Energy after clipping f at the 90th percentile of all training activations (Sun, Guo & Li, NeurIPS 2021, Eq. 3)."""

    percentile: float = 90.0

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        place = min(f.numel() - 1, int(f.numel() * self.percentile / 100))
        self.clip_ = torch.tensor(np.partition(f.numpy().ravel(), place)[place])

    def shape(self, f: Tensor) -> Tensor:
        """min(f, clip)."""
        return f.clamp_max(self.clip_.item())


@dataclass(eq=False)
class ASH(ShapedEnergy):
    """ASH-S: drop all but the top activations and scale the rest by exp(s1 / s2) (Djurisic et al., ICLR 2023, Alg. 2); energy."""

    percentile: float = 90.0

    def shape(self, f: Tensor) -> Tensor:
        """Kept activations times exp(s1 / s2)."""
        kept, ratio = top_share(f, self.percentile)
        return torch.where(ratio > 0, kept * ratio.exp(), f)


@dataclass(eq=False)
class SCALE(ShapedEnergy):
    """Scale f by exp(s1 / s2) and drop nothing (Xu et al., ICLR 2024, Eq. 6), percentile 85 as there; energy."""

    percentile: float = 85.0

    def shape(self, f: Tensor) -> Tensor:
        """All activations times exp(s1 / s2)."""
        return f * top_share(f, self.percentile)[1].exp()


@dataclass(eq=False)
class DICE(HeadDetector):
    """Energy with only the weights that contribute most on ID data, V = W * E[f] (Sun & Li, ECCV 2022, Eqs. 4 and 5)."""

    sparsity: float = 0.9

    def __post_init__(self) -> None:
        check_number("sparsity", self.sparsity, low=0, high=1)

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        contribution = self.W_.double() * f.double().mean(0)  # (classes, m)
        kept = max(1, round(contribution.numel() * (1 - self.sparsity)))
        threshold = contribution.flatten().topk(kept).values[-1]
        self.sparse_ = torch.where(contribution >= threshold, self.W_.double(), torch.zeros_like(contribution))

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return energy(f.double() @ self.sparse_.T + self.b_)
