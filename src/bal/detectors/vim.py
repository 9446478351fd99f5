"""Virtual-logit matching."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bal.detectors.base import HeadDetector
from bal.detectors.geometry import length
from bal.detectors.softmax import energy
from bal.settings import check_number


@dataclass(eq=False)
class ViM(HeadDetector):
    """Energy minus a virtual logit, the scaled residual off the principal subspace (Wang et al., CVPR 2022, Eqs. 5 to 7).

    principal: dimensions kept; None takes 1000, 512 or half of m, as the paper does for m >= 1500, m >= 768 and below.
    Features are centred at o = -W^+ b, where all logits are 0.
    """

    principal: int | None = None

    def __post_init__(self) -> None:
        check_number("principal", self.principal, low=1, whole=True, optional=True)

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        m = f.shape[1]
        kept = (1000 if m >= 1500 else 512 if m >= 768 else m // 2) if self.principal is None else self.principal
        check_number("principal", kept, low=1, high=m - 1, whole=True)
        self.origin_ = -torch.linalg.pinv(self.W_.double()) @ self.b_.double()
        centred = f.double() - self.origin_
        vectors = torch.linalg.eigh(centred.T @ centred / len(f)).eigenvectors  # ascending
        self.residual_ = vectors[:, : m - kept]  # (m, m - kept): the null space R
        self.alpha_ = logits.double().max(1).values.sum() / self.residual_length(f).sum().clamp_min(1e-12)

    def residual_length(self, f: Tensor) -> Tensor:
        """|R^T (f - o)|, (N,) float64."""
        return length((f.double() - self.origin_) @ self.residual_)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return energy(logits) - self.alpha_ * self.residual_length(f)
