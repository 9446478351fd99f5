"""Detectors that read the logits alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bal.detectors.base import FeatureDetector
from bal.settings import check_number


def log_max_softmax(logits: Tensor) -> Tensor:
    r"""Log p1: the log of the largest softmax probability, (N,) float64.

    .. math:: \log p_1 = -\log(1 + \sum_{j \ne \hat c} \exp(l_j - l_{\hat c}))

    Exact near p1 = 1, where the probability itself rounds to 1 and ties destroy FPR95.

    >>> log_max_softmax(torch.tensor([[0.0, 0.0], [50.0, 0.0]]))
    tensor([-6.9315e-01, -1.9287e-22], dtype=torch.float64)
    """
    logits = logits.double()
    top, c_hat = logits.max(1, keepdim=True)
    others = torch.exp(logits - top).scatter(1, c_hat, 0.0)
    return -torch.log1p(others.sum(1))


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """T log sum exp(l / T), (N,) float64: the negative free energy (Liu et al., 2020, Eq. 4)."""
    return temperature * torch.logsumexp(logits.double() / temperature, 1)


@dataclass(eq=False)
class MaxSoftmax(FeatureDetector):
    """Confidence of the classifier itself, p1 (Hendrycks & Gimpel, ICLR 2017); ranked by log p1."""

    log_probability = True

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return log_max_softmax(logits)


@dataclass(eq=False)
class MaxLogit(FeatureDetector):
    """The largest logit (Hendrycks et al., ICML 2022)."""

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return logits.max(1).values


@dataclass(eq=False)
class Energy(FeatureDetector):
    """The negative free energy (Liu et al., NeurIPS 2020, Eq. 4); T = 1 as there."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=1e-6)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return energy(logits, self.temperature)


@dataclass(eq=False)
class Entropy(FeatureDetector):
    """The negative entropy of the softmax, sum p log p."""

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        log_p = logits.double().log_softmax(1)
        return (log_p.exp() * log_p).sum(1)


@dataclass(eq=False)
class GEN(FeatureDetector):
    """Generalised entropy (Liu, Lochman & Zach, CVPR 2023, Eq. 4): - sum over the top M of p^gamma (1 - p)^gamma."""

    gamma: float = 0.1
    M: int = 100

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, low=0)
        check_number("M", self.M, low=1, whole=True)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        log_p = logits.double().log_softmax(1).topk(min(self.M, logits.shape[1]), 1).values  # descending
        log_p[:, 0] = log_max_softmax(logits)  # so that 1 - p keeps its digits near p = 1
        return -torch.exp(self.gamma * (log_p + torch.log(-torch.expm1(log_p)))).sum(1)


@dataclass(eq=False)
class KLMatching(FeatureDetector):
    """- min over classes of KL(p || d_k), d_k the mean softmax of ID rows predicted as k (Hendrycks et al., ICML 2022).

    Departure: d_k is taken from the training rows, there being no validation set; a class that is never predicted has no d_k.
    """

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        p = logits.double().softmax(1)
        c_hat = p.argmax(1)
        present = c_hat.unique()
        self.log_templates_ = torch.stack([p[c_hat == k].mean(0) for k in present]).clamp_min(1e-300).log()

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        log_p = logits.double().log_softmax(1)
        p = log_p.exp()
        kl = (p * log_p).sum(1, keepdim=True) - p @ self.log_templates_.T  # (N, templates)
        return -kl.min(1).values
