"""Other sources of trivial OOD behind the interface of the uniform one: ablations, and what the default recipe mixes in."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bal.features import Pairs, TrivialSampler, class_means, within_spread

LEAST_VARIANCE = 1e-24  # of features that do not vary at all: a covariance of 0 has no factor


@dataclass
class Gaussian:
    r"""The sampler that the paper argues against (Sec. 4.1 and Table 5).

    Each class is taken for a Gaussian with its own mean and one shared covariance. Of ``candidates`` draws for each pair the one
    of lowest density is kept, with the label of its class.
    """

    candidates: int = 20

    def fit(self, f: Tensor, c: Tensor) -> "Gaussian":
        """Class means and a factor of the shared covariance, S = L L^T."""
        self.means_ = class_means(f, c, int(c.max()) + 1)
        centred = (f - self.means_[c]).double()
        covariance = centred.T @ centred / len(f)
        ridge = 1e-6 * covariance.diagonal().mean().clamp_min(LEAST_VARIANCE)
        covariance += ridge * torch.eye(len(covariance), dtype=torch.float64).to(covariance)
        self.factor_ = torch.linalg.cholesky(covariance).to(f.dtype)
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """f-hat = mean of c + L e, with the e of largest length among the candidates."""
        e = torch.randn(self.candidates, *f.shape, generator=generator)
        farthest = e.square().sum(2).argmax(0)  # the density falls with |e|
        e = e[farthest, torch.arange(len(f))].to(f)
        return self.means_[c] + e @ self.factor_.T, c


@dataclass
class RandomScaleGaussian:
    """Gaussian noise of a random scale round real features, each with its own label.

    Beyond the paper: the scale is log-uniform between ``low`` and ``high`` times the spread of the ID features, so that pairs lie
    at every distance from the manifold and not only in the far corners of the box.
    """

    low: float = 0.5
    high: float = 4.0

    def fit(self, f: Tensor, c: Tensor) -> "RandomScaleGaussian":
        """The within-class spread."""
        self.spread_ = within_spread(f, c)
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """f-hat = f + scale * e."""
        u = torch.rand(len(f), 1, generator=generator)
        scale = self.spread_ * torch.exp(math.log(self.low) + u * math.log(self.high / self.low))
        return f + (scale * torch.randn(f.shape, generator=generator)).to(f), c


@dataclass
class Interpolation:
    r"""Points between features of different classes: :math:`\hat f = (1 - \lambda) f + \lambda f'` with the label of f.

    Beyond the paper. :math:`\lambda \sim \mathbb{U}(low, high)`, and f' is any row of the batch whose class is another; a batch
    of one class alone is mixed within it.
    """

    low: float = 0.3
    high: float = 0.7

    def fit(self, f: Tensor, c: Tensor) -> "Interpolation":
        """Nothing to learn: both ends are the batch's own."""
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """Each row moves a share lambda of the way to its partner."""
        share = self.low + (self.high - self.low) * torch.rand(len(f), 1, generator=generator)
        partner = f[rows_of_other_classes(c, generator)]
        return torch.lerp(f, partner, share.to(f)), c


@dataclass
class CoordinateShuffle:
    """Every coordinate from a row of its own, so that each is like ID and their company is not; the label is the row's.

    Beyond the paper. Each coordinate is permuted over the batch by itself.
    """

    def fit(self, f: Tensor, c: Tensor) -> "CoordinateShuffle":
        """Nothing to learn: the values are the batch's own."""
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """f-hat^(j) = f^(j) of row pi_j."""
        permutations = torch.rand(f.shape, generator=generator).argsort(0).to(f.device)  # one in each column
        return f.gather(0, permutations), c


def rows_of_other_classes(c: Tensor, generator: torch.Generator) -> Tensor:
    """For each label a row number drawn uniformly from the rows with another label, (N,)."""
    order, counts = c.argsort(), c.bincount()
    u = torch.rand(len(c), generator=generator, dtype=torch.float64).to(c.device)
    skipped = (u * (len(c) - counts[c])).long()
    return order[(counts.cumsum(0)[c] + skipped) % len(c)]  # from the end of the own class onwards, round to its beginning


@dataclass
class Mixture:
    """Each pair from one of several samplers, in turn."""

    samplers: tuple[TrivialSampler, ...]

    def fit(self, f: Tensor, c: Tensor) -> "Mixture":
        """Fit every sampler."""
        for sampler in self.samplers:
            sampler.fit(f, c)
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """Row i comes from sampler i modulo their number; each sampler sees the whole batch, so the box stays the batch's."""
        drawn = [sampler.sample(f, c, classes=classes, generator=generator) for sampler in self.samplers]
        turn = torch.arange(len(f), device=f.device) % len(drawn)
        f_hat = torch.stack([pairs[0] for pairs in drawn])  # (samplers, N, m)
        c_hat = torch.stack([pairs[1] for pairs in drawn])  # (samplers, N)
        rows = torch.arange(len(f), device=f.device)
        return f_hat[turn, rows], c_hat[turn, rows]
