"""The softmax baseline."""

import torch
from torch import Tensor

from bal.detectors.base import FeatureDetector


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


class MaxSoftmax(FeatureDetector):
    """Confidence of the classifier itself, p1 (Hendrycks & Gimpel, 2017); ranked by log p1."""

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        """Nothing to learn."""

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return log_max_softmax(logits)
