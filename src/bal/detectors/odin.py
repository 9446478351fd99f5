"""ODIN: temperature and a small step of the input towards confidence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bal.detectors.base import InputDetector
from bal.detectors.softmax import log_max_softmax
from bal.errors import ShapeError
from bal.settings import check_number

PaperSetting = Literal["mnist", "cifar10", "cifar100", "svhn"]
PAPER: dict[PaperSetting, tuple[float, float]] = {
    "mnist": (10.0, 5e-4),
    "cifar10": (10.0, 2e-3),
    "cifar100": (100.0, 5e-4),
    "svhn": (10.0, 5e-4),
}


def step_towards(score: Callable[[Tensor], Tensor], x: Tensor, epsilon: float) -> Tensor:
    """X + epsilon sgn(d score / dx): the inputs after one step that raises each one's score."""
    if epsilon == 0:
        return x
    if not x.is_floating_point():
        raise ShapeError(f"a step of the input needs real inputs, got {x.dtype}; use epsilon=0 or another detector for token ids")
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        slope = torch.autograd.grad(score(x).sum(), x)[0]
    return (x + epsilon * slope.sign()).detach()


@dataclass(eq=False)
class ODIN(InputDetector):
    """log of the largest softmax of l(x~) / T, with x~ = x - epsilon sgn(-d log S / dx) (Liang et al., ICLR 2018, Eqs. 1 and 2).

    epsilon is in units of the input, pixels in [0, 1], before any preprocessing. The defaults are the BAL paper's for the MNIST
    groups (Sec. 5.5); :meth:`paper` gives those of the other data sets, :func:`bal.evaluation.search_odin` chooses by ID data.
    """

    log_probability = True

    temperature: float = 10.0
    epsilon: float = 5e-4

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=1e-6)
        check_number("epsilon", self.epsilon, low=0)

    @classmethod
    def paper(cls, id_data: PaperSetting) -> "ODIN":
        """The BAL paper's (T, epsilon) for an ID data set (Sec. 5.3 and 5.5)."""
        return cls(*PAPER[id_data])

    def _score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Tensor] = []

        def log_s(x: Tensor) -> Tensor:
            logits = self.classifier_.forward(x)[1]
            seen.append(logits.detach())
            return log_max_softmax(logits.cpu() / self.temperature)  # in float64, which not every device has

        moved = step_towards(log_s, x, self.epsilon)
        with torch.no_grad():
            score = log_s(moved)
        return score, seen[0].argmax(1)  # the label of the input itself: the first pass is the one before the step
