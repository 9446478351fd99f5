"""REM, the geometry of f: fitted on ID features, saved with the detector, undone where that is possible.

The paper works on raw features. Uniform samples in the box of raw coordinates teach nothing in high dimensions, and an FGSM step
has no natural length there; after L2 normalisation and within-class whitening both do (``docs/equations.md``, departure 3).
"""

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.errors import BalError

NormalisationName = Literal["identity", "standardise", "l2", "whiten", "l2+standardise", "l2+whiten"]

SHRINKAGE = 1e-2  # share of the mean eigenvalue added to the within-class covariance


class NotInvertibleError(BalError, ValueError):
    """The step forgets something, so that its input cannot be had back."""


class Step(nn.Module):
    """A map of features (N, m) to (N, m): ``fit`` reads ID features and labels, calling applies it, ``inverse`` undoes it."""

    def fit(self, f: Tensor, c: Tensor) -> "Step":
        """Learn from ID features (N, m) and their labels (N,)."""
        return self

    def inverse(self, f: Tensor) -> Tensor:
        """The features that would be mapped to ``f``."""
        raise NotInvertibleError(f"{type(self).__name__} cannot be undone; plot the normalised features instead")


class Identity(Step):
    """Raw features, as in the paper."""

    def forward(self, f: Tensor) -> Tensor:
        """F itself."""
        return f

    def inverse(self, f: Tensor) -> Tensor:
        """F itself."""
        return f


class L2(Step):
    """f / |f|: the direction only, so the length is lost. A zero feature stays zero."""

    def forward(self, f: Tensor) -> Tensor:
        """Features of length 1."""
        return F.normalize(f, dim=1)


class Affine(Step):
    """(f - shift) W, with W = scale: (m, m); the base of the steps that move and stretch."""

    shift: Tensor
    scale: Tensor
    unscale: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.eye(dim))
        self.register_buffer("unscale", torch.eye(dim))

    def forward(self, f: Tensor) -> Tensor:
        """Features round 0."""
        return (f - self.shift) @ self.scale

    def inverse(self, f: Tensor) -> Tensor:
        """F W^-1 + shift."""
        return f @ self.unscale + self.shift


class Standardise(Affine):
    """Mean 0 and standard deviation 1 in every coordinate; a coordinate that never varies keeps its scale."""

    def fit(self, f: Tensor, c: Tensor) -> Step:
        """Mean and standard deviation of all rows."""
        std = f.double().std(0, correction=0)
        std = torch.where(std > 0, std, torch.ones_like(std))
        self.shift = f.double().mean(0).float()
        self.scale, self.unscale = torch.diag(1 / std).float(), torch.diag(std).float()
        return self


class Whiten(Affine):
    """Mean 0, and within each class (on average) uncorrelated coordinates of variance 1: W = (S_w + shrinkage)^-1/2."""

    def fit(self, f: Tensor, c: Tensor) -> Step:
        """The pooled within-class covariance S_w, shrunk by 1e-2 of its mean eigenvalue."""
        f = f.double()
        centred = f - class_means(f, c, int(c.max()) + 1)[c]
        covariance = centred.T @ centred / len(f)
        values, vectors = torch.linalg.eigh(covariance)
        values = values.clamp_min(0) + SHRINKAGE * values.mean().clamp_min(1e-12)
        self.shift = f.mean(0).float()
        self.scale = (vectors * values.rsqrt() @ vectors.T).float()
        self.unscale = (vectors * values.sqrt() @ vectors.T).float()
        return self


class Steps(Step):
    """Steps one after the other, each fitted on the output of those before it."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)

    def fit(self, f: Tensor, c: Tensor) -> Step:
        """Fit each step in turn."""
        for step in self.steps:
            f = cast(Step, step).fit(f, c)(f)
        return self

    def forward(self, f: Tensor) -> Tensor:
        """Apply each step in turn."""
        for step in self.steps:
            f = step(f)
        return f

    def inverse(self, f: Tensor) -> Tensor:
        """Undo each step, last first."""
        for step in reversed(self.steps):
            f = cast(Step, step).inverse(f)
        return f


def class_means(f: Tensor, c: Tensor, classes: int) -> Tensor:
    """Mean feature of every class, (classes, m); a class without rows has mean 0."""
    sums = torch.zeros(classes, f.shape[1], dtype=f.dtype, device=f.device).index_add_(0, c, f)
    return sums / c.bincount(minlength=classes).clamp_min(1).unsqueeze(1)


def make_normalisation(name: NormalisationName, dim: int) -> Step:
    """An unfitted normalisation by name; a "+" joins steps.

    >>> make_normalisation("l2", 2)(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    parts: dict[str, Step] = {
        "identity": Identity(),
        "l2": L2(),
        "standardise": Standardise(dim),
        "whiten": Whiten(dim),
    }
    return Steps(*(parts[part] for part in name.split("+")))
