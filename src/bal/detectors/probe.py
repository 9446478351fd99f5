"""How a network is known again by what it does: its answer to two made-up inputs.

Weights and structure do not tell all that a forward pass does: another activation function, or a scale that is a plain number of
the preprocessing, leaves both as they were.
"""

import math

import torch
from torch import Tensor

from bal.backbones import Classifier
from bal.errors import HeadError, ShapeError
from bal.features import InputSpec

ROWS = 2
LOGITS = 32  # of each row, so that a thousand classes do not fill a manifest
GOLDEN = (math.sqrt(5) - 1) / 2
ROUNDING = 1e-2  # of the largest logit: processors, TF32 and autocast are less far apart than that


def made_up(spec: InputSpec) -> Tensor:
    """Inputs of the fitted shape, kind and range, the same in every version of torch; of whole numbers only 0 and 1 are sure."""
    steps = torch.arange(1, ROWS * math.prod(spec.shape) + 1, dtype=torch.float64)
    share = (steps * GOLDEN).frac().reshape(ROWS, *spec.shape)  # evenly spread over [0, 1)
    if not spec.floating:
        return (2 * share).long()
    low, high = (spec.low, spec.high) if spec.low <= spec.high else (0.0, 1.0)
    return (low + share * (high - low)).float()


def answer(classifier: Classifier, spec: InputSpec) -> Tensor:
    """The first logits for the made-up inputs, (ROWS, LOGITS at most)."""
    return classifier(made_up(spec))[1][:, :LOGITS].cpu()


def probe(classifier: Classifier, spec: InputSpec | None) -> list[list[float]] | None:
    """The answer for a file; None where the network has none to such inputs, or another one at every call."""
    if spec is None:
        return None
    try:
        first, second = answer(classifier, spec), answer(classifier, spec)
    except Exception:  # the user's network may refuse made-up inputs in any way; the detector is saved all the same
        return None
    if not torch.isfinite(first).all() or not alike(first, second, classifier):
        return None
    return [[float(f"{logit:.6g}") for logit in row] for row in first.tolist()]


def behaves_alike(classifier: Classifier, spec: InputSpec, expected: list[list[float]]) -> bool:
    """Whether the network still answers so, up to rounding."""
    try:
        return alike(answer(classifier, spec), torch.tensor(expected), classifier)
    except (ShapeError, HeadError):  # it cannot take any more what it took then
        return False


def alike(now: Tensor, then: Tensor, classifier: Classifier) -> bool:
    """Whether two answers are as near as those of two processors, in the coarsest precision of the network."""
    coarsest = max(torch.finfo(p.dtype).eps for p in classifier.model.parameters() if p.is_floating_point())
    tolerance = max(ROUNDING, 10 * coarsest) * then.abs().max()
    return now.shape == then.shape and bool(((now - then).abs() <= tolerance).all())
