from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from bal.errors import SettingsError
from bal.seeding import make_generator
from bal.settings import MAX_SEED, check_choices, check_flags, check_number, check_seed, check_widths


@dataclass
class Example:
    kind: Literal["round", "square"] = "round"
    parts: tuple[Literal["a", "b"], ...] = ("a",)
    flag: bool = False


def test_choices_are_checked_with_a_hint():
    check_choices(Example())
    with pytest.raises(SettingsError, match=r"kind must be one of 'round', 'square', got 'Round'; did you mean 'round'\?"):
        check_choices(Example(kind="Round"))
    with pytest.raises(SettingsError, match="parts"):
        check_choices(Example(parts=("a", "c")))
    with pytest.raises(SettingsError, match="at least one of"):
        check_choices(Example(parts=()))


@pytest.mark.parametrize("value", [1, 0.0, "True", None])
def test_flags_are_true_or_false(value):
    check_flags(Example(flag=True))
    with pytest.raises(SettingsError, match="flag must be True or False"):
        check_flags(Example(flag=value))


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "3", None, True])
def test_numbers_are_checked(value):
    check_number("x", 3, low=0)
    with pytest.raises(SettingsError, match="x must be a number of 0 or more"):
        check_number("x", value, low=0)


def test_none_is_taken_where_it_is_a_choice():
    check_number("x", None, low=0, optional=True)
    with pytest.raises(SettingsError, match="x must be a number of 0 or more or None"):
        check_number("x", -1, low=0, optional=True)


@pytest.mark.parametrize("value", [np.float32("inf"), np.float64("nan"), np.int64(-1)])
def test_numbers_of_numpy_are_checked_like_those_of_python(value):
    check_number("x", np.float32(3), low=0)
    check_number("x", np.int32(3), low=0, high=2**63, whole=True)
    with pytest.raises(SettingsError):
        check_number("x", value, low=0)


@pytest.mark.parametrize("seed", [-1, 1.5, None, 2**63, 10**400])
def test_seeds_are_whole_numbers_that_every_generator_takes(seed):
    check_seed(0)
    check_seed(MAX_SEED)
    assert make_generator(MAX_SEED).initial_seed() == MAX_SEED
    with pytest.raises(SettingsError, match="seed"):
        check_seed(seed)


def test_widths_are_tuples():
    check_widths("hidden", ())
    with pytest.raises(SettingsError, match="tuple of widths"):
        check_widths("hidden", [3])
