"""RDM: how a training goes wrong, and how that is noticed: losses that diverge, networks that collapse."""

import math
from typing import Literal

import torch
from torch import Tensor

from bal.discrimination.callbacks import Record
from bal.features import class_means

LossTerm = Literal["t", "s", "u"]
Status = Literal["finished", "diverged", "collapsed"]

DIVERGENCE = 100.0  # a loss this many times its first value (or 1, if that is more) has no way back
COLLAPSE = 1e-3  # spread of generated features within classes, as a share of the ID features'
LEARNT = 0.1  # D has learnt to tell negatives from ID pairs when they are this far apart


class UnhealthyError(Exception):
    """Raised inside the loop when it should stop; carries the status."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_losses(terms: Record, first_losses: Record) -> None:
    """Refuse losses that are not finite or far beyond their first values, which are noted in ``first_losses``."""
    for name in ("L_d", "L_g"):
        limit = DIVERGENCE * max(1.0, abs(first_losses.setdefault(name, terms[name])))
        if not (math.isfinite(terms[name]) and abs(terms[name]) <= limit):
            raise UnhealthyError("diverged", f"{name} reached {terms[name]:.4g}, beyond +-{limit:.4g}")


def relative_spread(fake: Tensor, c_fake: Tensor, f: Tensor, c: Tensor) -> float:
    """Spread of generated features within their classes, as a share of the ID features' own; 0 when G ignores its noise."""
    classes = int(torch.cat([c_fake, c]).max()) + 1
    within_fake, within = (
        (rows - class_means(rows, labels, classes)[labels]).square().mean().sqrt() for rows, labels in ((fake, c_fake), (f, c))
    )
    return (within_fake / within.clamp_min(1e-12)).item()


def check_finite(weights: dict[str, Tensor]) -> None:
    """Refuse weights with a NaN or Inf, which the losses before the last update did not show."""
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise UnhealthyError("diverged", f"the weights {name} are not finite")


def check_health(record: Record, terms: tuple[LossTerm, ...], history: list[Record], *, last: bool) -> None:
    """Refuse an epoch after which D or G is of no use any more.

    D must end higher on ID pairs than on the negatives that its terms taught it (hard ones aside, which may come close), and
    must not lose that once it had it.
    """
    taught = {"D_shuffled": "s" in terms, "D_trivial": "u" in terms}
    for name in (name for name, is_taught in taught.items() if is_taught):
        learnt = any(earlier["D_id"] > earlier[name] + LEARNT for earlier in history)
        if (learnt or last) and not record["D_id"] > record[name]:
            raise UnhealthyError("collapsed", f"D gives ID features {record['D_id']:.3g}, no more than {name} {record[name]:.3g}")
    if not COLLAPSE <= record["spread"] < math.inf:
        raise UnhealthyError("collapsed", f"G's features spread {record['spread']:.2g} of the ID features': all alike")
