"""Other sources of trivial OOD behind the interface of the uniform one: ablations, and what the default recipe mixes in."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bal.features import Pairs, TrivialSampler, class_means


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
        covariance += 1e-6 * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64).to(covariance)
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
        """The within-class spread: root mean square of the coordinates of f - mean of its class."""
        centred = f - class_means(f, c, int(c.max()) + 1)[c]
        self.spread_ = centred.square().mean().sqrt().item()
        return self

    def sample(self, f: Tensor, c: Tensor, *, classes: int, generator: torch.Generator) -> Pairs:
        """f-hat = f + scale * e."""
        u = torch.rand(len(f), 1, generator=generator)
        scale = self.spread_ * torch.exp(math.log(self.low) + u * math.log(self.high / self.low))
        return f + (scale * torch.randn(f.shape, generator=generator)).to(f), c


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
