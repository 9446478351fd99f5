import pytest

from bal.errors import SettingsError
from bal.serving.limits import Limits


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_batch", 0), ("queue", 1.5), ("deadline", 0), ("deadline", float("nan")), ("window", 10**9), ("drift_confidence", 1)],
)
def test_nonsense_is_refused_by_name(name, value):
    with pytest.raises(SettingsError, match=f"{name} must be"):
        Limits(**{name: value})


def test_a_queue_holds_at_least_a_batch():
    with pytest.raises(SettingsError, match="queue must be a whole number of 64 or more"):
        Limits(max_batch=64, queue=63)
