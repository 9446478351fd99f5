"""RSM: FGSM pushes generated features off the ID manifold, to where D is lower: hard OOD (Sec. 4.2).

``D`` is any function of (features, labels) that returns logits; D of the paper is its sigmoid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bal.features import Pairs, within_spread
from bal.sampling.generator import Generator
from bal.settings import MOST, check_flags, check_number

Logits = Callable[[Tensor, Tensor], Tensor]
Push = Literal["sign", "gradient", "noise"]
PushBase = Literal["generated", "real"]


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """The random step length of the push: a Gaussian number for every sample (Sec. 4.2).

    Departure: ``absolute`` takes its absolute value, since a negative step would push the feature *into* the manifold. Beyond the
    paper, ``relative`` counts it in units of the within-class spread of the ID features.
    """

    mean: float = 0.0
    std: float = 1.0
    absolute: bool = True
    relative: bool = False

    def __post_init__(self) -> None:
        check_flags(self)
        check_number("mean", self.mean, low=-MOST)
        check_number("std", self.std, low=0)

    def unit(self, f: Tensor, c: Tensor) -> float:
        """What 1 means among these ID features: their within-class spread if ``relative``."""
        return within_spread(f, c) if self.relative else 1.0

    def sample(self, rows: int, generator: torch.Generator, device: torch.device, *, unit: float = 1.0) -> Tensor:
        """(rows, 1)."""
        epsilon = self.mean + self.std * torch.randn(rows, 1, generator=generator)
        return unit * (epsilon.abs() if self.absolute else epsilon).to(device)


def push_features_by_sign(D: Logits, f: Tensor, c: Tensor, epsilon: Tensor) -> Tensor:
    r"""FGSM in feature space (Eq. fgsm1, right-hand side).

    .. math:: \tilde f = f - \epsilon \, \mathrm{sgn}(\partial D(f; c) / \partial f)

    The gradient is that of the logit: its sign is the sign of D's gradient, and it does not vanish where D saturates.
    f: (N, m), c: (N,), epsilon: (N, 1).
    """
    return f.detach() - epsilon * gradient(lambda f: D(f, c), f).sign()


def push_features(D: Logits, f: Tensor, c: Tensor, epsilon: Tensor) -> Tensor:
    r"""The plain gradient step in feature space (Eq. fgsm1, left-hand side).

    .. math:: \tilde f = f - \epsilon \, \partial D(f; c) / \partial f
    """
    return f.detach() - epsilon * gradient(lambda f: torch.sigmoid(D(f, c)), f)


def push_noise(D: Logits, G: Generator, z: Tensor, c: Tensor, epsilon: Tensor) -> Tensor:
    r"""The same step in the noise of the generator (Eq. fgsm2); hard OOD is then G(z~; c).

    .. math:: \tilde z = z - \epsilon \, \frac{\partial D(G(z; c); c)}{\partial G(z; c)} \frac{\partial G(z; c)}{\partial z}
    """
    return z.detach() - epsilon * gradient(lambda z: torch.sigmoid(D(G(z, c), c)), z)


def gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Gradient of each row's value with respect to that row; no parameter's ``.grad`` is touched."""
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        return torch.autograd.grad(function(at).sum(), at)[0]


def push_off(D: Logits, f: Tensor, c: Tensor, epsilon: Tensor, *, push: Push, steps: int = 1) -> Tensor:
    """Features (N, m) pushed to where D is lower, by ``steps`` steps of epsilon / steps, each along the slope where it starts."""
    for _ in range(steps):
        f = (push_features_by_sign if push == "sign" else push_features)(D, f, c, epsilon / steps)
    return f


def hard_features(D: Logits, G: Generator, z: Tensor, c: Tensor, epsilon: Tensor, *, push: Push, steps: int = 1) -> Tensor:
    """Hard OOD features (N, m) from noise, by any of the three pushes."""
    if push == "noise":
        for _ in range(steps):
            z = push_noise(D, G, z, c, epsilon / steps)
    with torch.no_grad():
        f: Tensor = G(z, c)
    return f if push == "noise" else push_off(D, f, c, epsilon, push=push, steps=steps)


def hard_pairs(
    D: Logits, G: Generator, real: Pairs, noise: Pairs, epsilon: Tensor, *, push: Push, base: PushBase, steps: int
) -> Pairs:
    """Hard OOD from generated features, as in the paper, or from the real ones; each keeps its label.

    ``real``: <f, c> of ID; ``noise``: <z, c>, as many.
    """
    if base == "real":
        return push_off(D, *real, epsilon, push=push, steps=steps), real[1]
    return hard_features(D, G, *noise, epsilon, push=push, steps=steps), noise[1]
