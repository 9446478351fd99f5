"""RDM: the conditional discriminator D(f; c), which returns a logit (Sec. 4.3). How it sees the label is its conditioning."""

from collections.abc import Sequence
from typing import Literal, TypedDict

import torch
from torch import Tensor, nn
from typing_extensions import NotRequired, Unpack

from bal.networks import mlp, one_hot
from bal.seeding import seeded

Conditioning = Literal["concatenate", "per-class", "projection", "centred", "radial"]
RadiusUnit = Literal["unit", "mean", "median", "q95"]

RADIAL_START = (8.0, 4.0)  # logit +4 at the typical radius, 0 at twice that


class Layers(TypedDict):
    """What the fully connected layers of every D are made by."""

    hidden: Sequence[int]
    generator: torch.Generator
    dropout: NotRequired[float]
    spectral_norm: NotRequired[bool]


class Discriminator(nn.Module):
    """Fully connected layers, drawn from ``generator``; how features and labels pass them is up to the kinds below."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        hidden: Sequence[int],
        generator: torch.Generator,
        layer_norm: bool = True,
        dropout: float = 0.0,
        spectral_norm: bool = False,
    ) -> None:
        super().__init__()
        with seeded(generator):
            self.layers = mlp(inputs, hidden, outputs, layer_norm=layer_norm, dropout=dropout, spectral_norm=spectral_norm)

    def of_class(self, f: Tensor, c: Tensor) -> Tensor:
        """MLP(f)_c: of one output for each class the one of the label, (N,)."""
        logits: Tensor = self.layers(f).gather(1, c.unsqueeze(1)).squeeze(1)
        return logits


class ConcatenatingDiscriminator(Discriminator):
    """The plain reading of the paper: fully connected layers on the feature and the one-hot label."""

    def __init__(self, *, dim: int, classes: int, **layers: Unpack[Layers]) -> None:
        super().__init__(dim + classes, 1, layer_norm=False, **layers)
        self.classes = classes

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        logits: Tensor = self.layers(torch.cat([f, one_hot(c, self.classes, f)], 1)).squeeze(1)
        return logits


class PerClassDiscriminator(Discriminator):
    r"""One output for each class: :math:`\mathrm{logit}\, D(f; c) = \mathrm{MLP}(f)_c`."""

    def __init__(self, *, dim: int, classes: int, **layers: Unpack[Layers]) -> None:
        super().__init__(dim, classes, **layers)

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        return self.of_class(f, c)


class ProjectionDiscriminator(Discriminator):
    r"""What speaks for any class, plus the inner product with an embedding of the label (Miyato & Koyama, ICLR 2018, Eq. 5).

    .. math:: \mathrm{logit}\, D(f; c) = \psi(\phi(f)) + \langle e_c, \phi(f) \rangle

    Psi and all e_c, each with a bias, are the rows of one last layer: psi first.
    """

    def __init__(self, *, dim: int, classes: int, **layers: Unpack[Layers]) -> None:
        super().__init__(dim, 1 + classes, **layers)

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        psi, projections = self.layers(f).split([1, self.layers[-1].out_features - 1], 1)  # type: ignore[operator]
        logits: Tensor = (psi + projections.gather(1, c.unsqueeze(1))).squeeze(1)
        return logits


class CentredDiscriminator(Discriminator):
    r"""The same layers for all classes, on the offset from the class mean and its mean square.

    .. math:: \mathrm{logit}\, D(f; c) = \mathrm{MLP}(f - \mu_c, |f - \mu_c|^2 / m)
    """

    means: Tensor

    def __init__(self, *, means: Tensor, **layers: Unpack[Layers]) -> None:
        super().__init__(means.shape[1] + 1, 1, **layers)
        self.register_buffer("means", means.clone())

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        offset = f - self.means[c]
        logits: Tensor = self.layers(torch.cat([offset, offset.square().mean(1, keepdim=True)], 1)).squeeze(1)
        return logits


class RadialDiscriminator(Discriminator):
    r"""D that starts as a ball round each class mean and is bent by learning.

    .. math:: \mathrm{logit}\, D(f; c) = a - b \, |f - \mu_c|^2 / m + \mathrm{MLP}(f)_c

    Beyond the paper (``docs/equations.md``, departure 4). On features whitened within classes the ball is a Mahalanobis boundary.
    The mean of :math:`|f - \mu_c|^2 / m` on ID features is 1 at most there, far less where the shrinkage of the whitening tells,
    so b counts in units of the ID features' own radius (:meth:`measure`). The MLP has one output for each class and starts at 0.

    With ``evidence_start`` the last coordinate is the evidence (:class:`bal.features.normalisation.WithEvidence`): left out of
    the radius, and added as :math:`k (f - \mu_c)^{(m)}` with a learnt k that starts there.
    """

    means: Tensor
    k: nn.Parameter | None

    def __init__(
        self,
        *,
        means: Tensor,
        start: tuple[float, float] = RADIAL_START,
        evidence_start: float | None = None,
        **layers: Unpack[Layers],
    ) -> None:
        classes, dim = means.shape
        super().__init__(dim, classes, **layers)
        self.register_buffer("means", means.clone())
        self.a, self.b = (nn.Parameter(torch.tensor(float(value))) for value in start)
        self.k = None if evidence_start is None else nn.Parameter(torch.tensor(float(evidence_start)))
        nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.layers[-1].bias)  # type: ignore[arg-type]

    def radius(self, f: Tensor, c: Tensor) -> Tensor:
        """|f - mu_c|^2 / m without the evidence, (N,)."""
        offset = f - self.means[c]
        return (offset if self.k is None else offset[:, :-1]).square().mean(1)

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        ball = self.a - self.b * self.radius(f, c)
        if self.k is not None:
            ball = ball + self.k * (f[:, -1] - self.means[c, -1])
        return ball + self.of_class(f, c)

    @torch.no_grad()
    def measure(self, f: Tensor, c: Tensor, unit: RadiusUnit) -> None:
        """Let b count in units of the radius that these ID features have: b / r takes the place of b."""
        if unit != "unit":
            self.b.div_(typical_radius(self.radius(f, c), unit))


def typical_radius(radius: Tensor, unit: Literal["mean", "median", "q95"]) -> float:
    """One number r for the radii of all ID features: their mean, median or 95 % quantile.

    >>> [typical_radius(torch.tensor([1.0, 2.0, 9.0]), unit) for unit in ("mean", "median")]
    [4.0, 2.0]
    """
    radius = radius.double()
    typical = radius.mean() if unit == "mean" else quantile(radius, {"median": 0.5, "q95": 0.95}[unit])
    return max(typical.item(), 1e-12)


def quantile(values: Tensor, q: float) -> Tensor:
    """``values.quantile(q)`` of any number of float64 values, (N,): torch's own takes 2^24 at most.

    >>> quantile(torch.tensor([9.0, 1.0, 2.0, 4.0]).double(), 0.5)
    tensor(3., dtype=torch.float64)
    """
    ordered = values.sort().values  # NaN comes last
    if ordered[-1].isnan():
        return ordered[-1]
    place = q * (len(ordered) - 1)
    below = int(place)
    return ordered[below].lerp(ordered[min(below + 1, len(ordered) - 1)], place - below)


class Ensemble(nn.Module):
    """The mean logit of several D."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        """Features (N, m) and labels (N,) to logits (N,)."""
        return torch.stack([D(f, c) for D in self.members]).mean(0)
