"""REM, the geometry of f: fitted on ID features, saved with the detector, undone where that is possible.

The paper works on raw features. Uniform samples in the box of raw coordinates teach nothing in high dimensions, and an FGSM step
has no natural length there; after L2 normalisation and within-class whitening both do (``docs/equations.md``, departure 3).
"""

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bal.errors import BalError

NormalisationName = Literal[
    "identity",
    "standardise",
    "l2",
    "whiten",
    "l2+standardise",
    "l2+whiten",
    "l2+whiten+residual",
    "l2+residual+whiten",
]

EvidenceName = Literal["none", "length", "energy"]

SHRINKAGE = 1e-2  # share of the mean eigenvalue added to the within-class covariance
PRINCIPAL = 0.95  # share of the variance of the ID features that their principal subspace holds


class NotInvertibleError(BalError, ValueError):
    """The step forgets something, so that its input cannot be had back."""


class Step(nn.Module):
    """A map of features (N, m) to (N, m + added): ``fit`` reads ID features and labels, a call applies it, ``inverse`` undoes."""

    added = 0  # coordinates appended to the m that came

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
        return unit_rows(f)


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


class Residual(Step):
    r"""Appends the distance off the principal subspace of the ID features, :math:`|(I - P)(f - \bar f)|`, as a last coordinate.

    Beyond the paper. The subspace is the smallest that holds 95 % of the variance, one direction less than all at most. On ID
    features the coordinate has mean 0 and the spread that the others have within classes (less where it hardly varies). Where it
    stands among the steps decides which space it is measured in.
    """

    added = 1
    shift: Tensor
    off: Tensor  # I - P
    mean: Tensor
    scale: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("off", torch.eye(dim))
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def fit(self, f: Tensor, c: Tensor) -> Step:
        """The principal subspace by the covariance of all rows, then mean and standard deviation of the distance off it."""
        self.shift = f.double().mean(0).float()
        centred = f.double() - self.shift
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(f))  # ascending
        left_out = max(int((values.cumsum(0) <= (1 - PRINCIPAL) * values.sum()).sum()), 1)
        self.off = (vectors[:, :left_out] @ vectors[:, :left_out].T).float()
        distance, spread = self.distance(f).double(), within_spread(f, c)
        self.mean = distance.mean().float()
        self.scale = (spread / distance.std(correction=0).clamp_min(max(SHRINKAGE * spread, 1e-12))).float()
        return self

    def distance(self, f: Tensor) -> Tensor:
        """|(I - P)(f - mean)|, (N,)."""
        return ((f - self.shift) @ self.off).square().sum(1).sqrt()

    def forward(self, f: Tensor) -> Tensor:
        """F and one coordinate more."""
        return torch.cat([f, (self.scale * (self.distance(f) - self.mean)).unsqueeze(1)], 1)

    def inverse(self, f: Tensor) -> Tensor:
        """F without its last coordinate."""
        return f[:, :-1]


class WithEvidence(Step):
    r"""Other steps on all coordinates but the last, which is the classifier's :func:`evidence_of` e and stays by itself.

    .. math:: \min(e, \max_\mathrm{ID} e) \mapsto (e - \mathrm{mean}) / \sigma

    Beyond the paper. The mean is that of all ID features, sigma the pooled standard deviation within classes, 1e-3 at least. Each
    class has a mean of its own, which D subtracts with the rest of its class mean. More evidence than any ID feature has counts
    no more than the most: an input of absurd scale shall not talk its way in.
    """

    mean: Tensor
    std: Tensor
    most: Tensor

    def __init__(self, steps: Step) -> None:
        super().__init__()
        self.steps, self.added = steps, steps.added
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        self.register_buffer("most", torch.zeros(()))

    def fit(self, f: Tensor, c: Tensor) -> Step:
        """Fit the steps, and read mean, spread and maximum of the evidence."""
        self.steps.fit(f[:, :-1], c)
        e = f[:, -1:].double()
        self.mean, self.most = e.mean().float(), e.max().float()
        self.std = torch.tensor(max(within_spread(e, c), 1e-3))  # evidence that hardly varies tells nothing
        return self

    def forward(self, f: Tensor) -> Tensor:
        """What the steps make of f, and its evidence in units of the ID spread."""
        e = (torch.minimum(f[:, -1:], self.most) - self.mean) / self.std
        return torch.cat([self.steps(f[:, :-1]), e], 1)

    def inverse(self, f: Tensor) -> Tensor:
        """Both undone, so far as the evidence was not cut."""
        return torch.cat([self.steps.inverse(f[:, :-1]), f[:, -1:] * self.std + self.mean], 1)


class Steps(Step):
    """Steps one after the other, each fitted on the output of those before it."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.added = sum(step.added for step in steps)

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


def unit_rows(f: Tensor) -> Tensor:
    """Rows of length 1, (N, m); a row of zeros stays so. Rows too long for their own number type are scaled down first.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [1e20, 0.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [1.0000, 0.0000],
            [0.0000, 0.0000]])
    """
    scaled = f / f.abs().amax(1, keepdim=True)
    return torch.where(torch.isfinite(f.norm(dim=1, keepdim=True)), F.normalize(f, dim=1), F.normalize(scaled, dim=1))


def class_means(f: Tensor, c: Tensor, classes: int) -> Tensor:
    """Mean feature of every class, (classes, m); a class without rows has mean 0."""
    sums = torch.zeros(classes, f.shape[1], dtype=f.dtype, device=f.device).index_add_(0, c, f)
    return sums / c.bincount(minlength=classes).clamp_min(1).unsqueeze(1)


def within_spread(f: Tensor, c: Tensor) -> float:
    """Root mean square of the coordinates of f - mean of its class.

    >>> within_spread(torch.tensor([[0.0], [4.0], [9.0], [5.0]]), torch.tensor([0, 0, 1, 1]))
    2.0
    """
    return (f - class_means(f, c, int(c.max()) + 1)[c]).square().mean().sqrt().item()


def evidence_of(kind: EvidenceName, f: Tensor, logits: Tensor) -> Tensor:
    r"""How much speaks for any known class at all, (N, 1); "none" gives no column, (N, 0).

    The energy :math:`\log \sum_c e^{l_c}` of the classifier's logits l, or the length :math:`\log |f|`. L2 normalisation throws
    both away, and p1, a ratio of the classes, never saw them.

    >>> evidence_of("energy", torch.zeros(1, 2), torch.tensor([[0.0, 0.0]]))
    tensor([[0.6931]])
    """
    if kind == "none":
        return f[:, :0]
    if kind == "energy":
        return logits.double().logsumexp(1, keepdim=True).to(f.dtype)
    return f.double().square().sum(1, keepdim=True).sqrt().clamp_min(1e-12).log().to(f.dtype)


def make_normalisation(name: NormalisationName, dim: int, *, with_evidence: bool = False) -> Step:
    """An unfitted normalisation of m = dim coordinates by name; a "+" joins steps. With evidence there is one more, the last.

    >>> make_normalisation("l2", 2)(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    kinds: dict[str, Callable[[int], Step]] = {
        "identity": lambda dim: Identity(),
        "l2": lambda dim: L2(),
        "standardise": Standardise,
        "whiten": Whiten,
        "residual": Residual,
    }
    steps: list[Step] = []
    for part in name.split("+"):
        steps.append(kinds[part](dim + sum(step.added for step in steps)))
    return WithEvidence(Steps(*steps)) if with_evidence else Steps(*steps)
