"""Checks of settings, so that a typo or a nonsense value is refused when it is given and not after an hour."""

import math
import sys
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bal.errors import SettingsError

MOST = sys.float_info.max  # the largest finite number


def suggestion(typed: str, known: Mapping[str, str], *, n: int, cutoff: float = 0.6) -> str:
    """The words "did you mean 'A' or 'B'?", or none where nothing is near; ``known`` maps lower-case names to what is shown."""
    close = get_close_matches(typed.lower(), known, n=n, cutoff=cutoff)
    return f"did you mean {' or '.join(repr(known[match]) for match in close)}?" if close else ""


def check_choices(settings: Any) -> None:
    """Every field of a dataclass whose type is a Literal, or a tuple of one, must hold one of its values."""
    hints = get_type_hints(type(settings))
    for item in fields(settings):
        hint, value = hints[item.name], getattr(settings, item.name)
        if get_origin(hint) is Literal:
            check_choice(item.name, value, get_args(hint))
        elif get_origin(hint) is tuple and get_origin(get_args(hint)[0]) is Literal:
            if not isinstance(value, tuple) or not value:
                raise SettingsError(
                    f"{item.name} must be a tuple with at least one of {get_args(get_args(hint)[0])}, got {value!r}"
                )
            for part in value:
                check_choice(item.name, part, get_args(get_args(hint)[0]))


def check_flags(settings: Any) -> None:
    """Every field of a dataclass that is declared bool must be one."""
    hints = get_type_hints(type(settings))
    for item in fields(settings):
        if hints[item.name] is bool and not isinstance(getattr(settings, item.name), bool):
            raise SettingsError(f"{item.name} must be True or False, got {getattr(settings, item.name)!r}")


def check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """One of the allowed values; a near miss gets a hint."""
    if value not in allowed:
        hint = suggestion(str(value), {str(option): str(option) for option in allowed}, n=1)
        raise SettingsError(
            "; ".join(filter(None, [f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}", hint]))
        )


def check_number(
    name: str, value: Any, *, low: float, high: float = math.inf, whole: bool = False, optional: bool = False
) -> None:
    """A finite number between low and high, both included; or None where that is a choice of its own."""
    if optional and value is None:
        return
    kind = Integral if whole else Real
    if not isinstance(value, kind) or isinstance(value, bool) or not low <= exact(value) <= min(high, MOST):
        span = f"from {low:g} to {high:g}" if high < math.inf else f"of {low:g} or more"
        other = " or None" if optional else ""
        raise SettingsError(f"{name} must be a {'whole ' if whole else ''}number {span}{other}, got {value!r}")


def exact(value: Any) -> float:
    """A number as Python's own, a whole one without the rounding, or the overflow, of a float."""
    return int(value) if isinstance(value, Integral) else float(value)


def check_widths(name: str, value: Any) -> None:
    """Widths of hidden layers: a tuple of whole numbers, which may be empty."""
    if not isinstance(value, tuple):
        raise SettingsError(f"{name} must be a tuple of widths, for example (256, 256), got {value!r}")
    for width in value:
        check_number(name, width, low=1, whole=True)


MAX_SEED = 2**63 - 1


def check_seed(seed: Any) -> None:
    """A whole number that every generator takes."""
    check_number("seed", seed, low=0, high=MAX_SEED, whole=True)
