"""RDM: every loss of the paper as a pure function on logits of D (Sec. 4.3). D of the paper is the sigmoid of a logit.

Two forms of the terms that push D down on negatives:

- ``"printed"``: + E[log D(negative)], as the paper prints it in L_s and L_u. It has no lower bound: the loss falls for ever as
  the logit of a negative goes to minus infinity, and training can follow it.
- ``"bounded"``: - E[log(1 - D(negative))], the form that L_t itself uses. The same wish, bounded below by 0. The default.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bal.errors import DataError

Form = Literal["printed", "bounded"]


def log_d(logit: Tensor) -> Tensor:
    """Log D, exact for large logits."""
    return logsigmoid(logit)


def log_one_minus_d(logit: Tensor) -> Tensor:
    """log(1 - D), exact for large logits."""
    return logsigmoid(-logit)


def negative_term(logit: Tensor, form: Form, weight: Tensor | float = 1.0) -> Tensor:
    """E of the term that pushes D down on negatives, log D (printed) or -log(1 - D) (bounded); each may have its own weight."""
    return (weight * log_d(logit)).mean() if form == "printed" else -(weight * log_one_minus_d(logit)).mean()


def vanilla_loss(positive: Tensor, fake: Tensor, *, fake_weight: float = 1.0) -> Tensor:
    r"""The discriminator's loss of a conditional GAN: L_t (Eq. d_loss1).

    .. math:: L_t = -E_{P_f} \log D(f; c) - E_{P_z} \log(1 - D(G(z); c))

    ``positive``: logits of D(f; c); ``fake``: logits of D(G(z; c); c). Beyond the paper, ``fake_weight`` weighs the last term.
    """
    return -log_d(positive).mean() - fake_weight * log_one_minus_d(fake).mean()


def warmed(done: float, warm_up: float) -> float:
    """A weight that rises linearly from 0 to 1 while ``done``, the share of the training behind us, goes from 0 to ``warm_up``.

    >>> [warmed(done, 0.5) for done in (0.0, 0.25, 0.75)]
    [0.0, 0.5, 1.0]
    """
    return 1.0 if done >= warm_up else done / warm_up


def shuffle_labels(c: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    r"""T(c), a wrong label for each row: uniform over the other classes, so that T(c) != c always (Sec. 4.3).

    >>> shuffle_labels(torch.tensor([0, 1, 1]), 2, torch.Generator())
    tensor([1, 0, 0])
    """
    if classes < 2:
        raise DataError(f"the shuffle T(c) != c needs at least 2 classes, got {classes}; BAL cannot learn from one class only")
    shift = torch.randint(1, classes, c.shape, generator=generator).to(c.device)
    return (c + shift) % classes


def shuffle_loss(positive: Tensor, shuffled: Tensor, *, form: Form = "bounded") -> Tensor:
    r"""Teach D the class of each ID cluster: L_s (Eq. shuffle_loss).

    .. math:: L_s = E_{P_f}[\log D(f; T(c)) - \log D(f; c)]

    Departure: in the bounded form the first term is -log(1 - D). ``shuffled``: logits of D(f; T(c)).
    """
    return negative_term(shuffled, form) - log_d(positive).mean()


def uniform_loss(
    positive: Tensor, ood: Tensor, *, lambda_c: float = 0.7, form: Form = "bounded", weight: Tensor | float = 1.0
) -> Tensor:
    r"""Teach D the boundary of each ID cluster: L_u over trivial and hard OOD (Eq. uniform_loss).

    .. math:: L_u = \lambda_c \, E_{P_U} \log D(\hat f; \hat c) - E_{P_f} \log D(f; c)

    lambda_c weakens the memory of negatives, since a trivial pair may happen to match a class.
    Departure: in the bounded form the first term is -log(1 - D). ``ood``: logits of D on all OOD pairs; ``weight``: theirs in E,
    with mean 1 (:func:`share_weights`).
    """
    return lambda_c * negative_term(ood, form, weight) - log_d(positive).mean()


def share_weights(trivial: Tensor, hard: Tensor, hard_share: float) -> Tensor:
    """Weights of as many trivial as hard pairs that give the hard ones this share of their sum, (2N,).

    >>> share_weights(torch.zeros(2), torch.zeros(2), 0.25)
    tensor([1.5000, 1.5000, 0.5000, 0.5000])
    """
    return torch.cat([torch.full_like(trivial, 2 * (1 - hard_share)), torch.full_like(hard, 2 * hard_share)])


def discriminator_loss(L_t: Tensor, L_s: Tensor, L_u: Tensor) -> Tensor:
    r"""L_d = L_t + L_s + L_u (Eq. d_loss2)."""
    return L_t + L_s + L_u


def gradient_penalty(D: Callable[[Tensor, Tensor], Tensor], f: Tensor, c: Tensor) -> Tensor:
    r"""R1: the mean squared slope of D's logit at real pairs (Mescheder et al., ICML 2018, Eq. 9, without their factor 1/2).

    .. math:: R_1 = E_{P_f} |\partial \, \mathrm{logit}\, D(f; c) / \partial f|^2
    """
    f = f.detach().requires_grad_()
    slope = torch.autograd.grad(D(f, c).sum(), f, create_graph=True)[0]
    return slope.square().sum(1).mean()


def adversarial_term(fake: Tensor, form: Form) -> Tensor:
    """What G gains by fooling D: E log(1 - D(G(z; c); c)) (printed), or -E log D (bounded).

    Departure: the printed term has no slope while D wins and no lower bound once G does; the other one has both.
    """
    return log_one_minus_d(fake).mean() if form == "printed" else -log_d(fake).mean()


def nearest_l1(fake: Tensor, c: Tensor, anchors: Tensor, anchor_labels: Tensor) -> Tensor:
    r"""The regulariser of L_g: the L1 distance to the nearest ID feature of the same class, averaged over the batch.

    .. math:: E \min_{f_c \in M_c} \|f_c - G(z; c)\|_1

    The nearest one is searched without gradients, so autograd sees B distances instead of B x N; value and gradient are the same.
    ``fake``: (B, m), ``anchors``: (N, m), a set that has every label of ``c``.
    """
    nearest = torch.empty_like(fake)
    with torch.no_grad():
        for label in c.unique():
            rows = c == label
            same_class = anchors[anchor_labels == label]  # (N_c, m)
            nearest[rows] = same_class[torch.cdist(fake[rows], same_class, p=1).argmin(1)]
    return (fake - nearest).abs().sum(1).mean()


def generator_loss(fake: Tensor, distance: Tensor, *, lambda_: float = 0.01, form: Form = "bounded") -> Tensor:
    r"""Fool D and stay near the real features: L_g (Eq. generator_loss).

    .. math:: L_g = E_{P_z} \log(1 - D(G(z; c); c)) + \lambda \min_{f_c \in M_c} \|f_c - G(z; c)\|_1

    ``fake``: logits of D(G(z; c); c); ``distance``: :func:`nearest_l1`.
    """
    return adversarial_term(fake, form) + lambda_ * distance
