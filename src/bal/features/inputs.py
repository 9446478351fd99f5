"""What the inputs of a fit were like, so that others are noticed."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bal.errors import BalWarning, DataError, ShapeError

FAR_OUT = 9.0  # how far outside the fitted range numbers may lie, in widths of that range


@dataclass(frozen=True)
class InputSpec:
    """Shape of one input, whether it holds pixels (floating) or indices such as token ids, and the range of real ones.

    ``low`` and ``high`` are the least and the largest finite number; low > high where there is none, or it is not known.
    """

    shape: tuple[int, ...]
    floating: bool
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, x: Tensor) -> "InputSpec":
        """The spec of a batch."""
        finite = x[torch.isfinite(x)] if x.is_floating_point() else torch.empty(0)
        span = [bound.item() for bound in finite.aminmax()] if finite.numel() else []
        return cls(tuple(x.shape[1:]), x.is_floating_point(), *span)

    def joined(self, x: Tensor) -> "InputSpec":
        """The spec with a further batch of the same kind."""
        self.check_kind(x)
        return self.widened(InputSpec.of(x))

    def widened(self, other: "InputSpec") -> "InputSpec":
        """The spec with the range of another one too."""
        return replace(self, low=min(self.low, other.low), high=max(self.high, other.high))

    def check(self, x: Tensor, *, strict: bool = False) -> None:
        """Refuse a batch of another kind; warn of another scale, or refuse it if ``strict``."""
        self.check_kind(x)
        self.check_range(x, strict=strict)

    def check_kind(self, x: Tensor) -> None:
        """Refuse another shape or kind of number."""
        if tuple(x.shape[1:]) != self.shape:
            raise ShapeError(
                f"inputs must be (N, {', '.join(map(str, self.shape))}), got {tuple(x.shape)}; "
                "resize the images or convert their channels as for the data the detector was fitted on"
            )
        if x.is_floating_point() != self.floating:
            expected = "pixels (uint8, uint16 or floating point)" if self.floating else "whole numbers"
            raise ShapeError(f"inputs must be {expected}, got {x.dtype}; convert them as for the data the detector was fitted on")

    def check_range(self, x: Tensor, *, strict: bool = False) -> None:
        """Notice pixels of 0 to 255 where 0 to 1 was fitted: numbers that lie many widths of the fitted range outside it."""
        self.check_span(InputSpec.of(x), strict=strict)

    def check_span(self, came: "InputSpec", *, strict: bool = False) -> None:
        """The same by the range of inputs that were read before."""
        margin = FAR_OUT * (self.high - self.low)
        if margin <= 0 or (came.low >= self.low - margin and came.high <= self.high + margin):
            return
        words = (
            f"inputs range from {came.low:g} to {came.high:g}, those of the fit from {self.low:g} to {self.high:g}; "
            "scale them as for the fit (pixels as uint8, or as floating point from 0 to 1)"
        )
        if strict:
            raise DataError(words)
        warnings.warn(words, BalWarning, stacklevel=2)

    def state(self) -> dict[str, Tensor]:
        """As named tensors."""
        return {
            "input_shape": torch.tensor(self.shape, dtype=torch.int64),
            "input_floating": torch.tensor(self.floating),
            "input_range": torch.tensor([self.low, self.high], dtype=torch.float64),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "InputSpec | None":
        """The inverse of :meth:`state`; None where there is none."""
        if "input_shape" not in state:
            return None
        span = state["input_range"].tolist() if "input_range" in state else ()
        return cls(tuple(state["input_shape"].tolist()), bool(state["input_floating"]), *span)
