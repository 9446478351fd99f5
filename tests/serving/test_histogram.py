"""Where known scores lie."""

import numpy as np
import pytest

from bal.serving.histogram import score_histogram


def test_plain_scores_have_bins_of_equal_width_with_room_below_the_threshold():
    """By hand: 0 to 60, a third of it below and a twentieth above, in 83 bins of 1."""
    known = np.linspace(0, 60, 61)
    found = score_histogram(known, np.array(3.0), log_probability=False, bins=83)
    low = np.quantile(known, 0.005)
    assert found["edges"][0] == pytest.approx(low - (60 - low) / 3)
    assert found["edges"][-1] == pytest.approx(60 + (60 - low) / 20)
    assert np.allclose(np.diff(found["edges"]), np.diff(found["edges"])[0])
    assert found["rows"] == 61
    assert sum(found["shares"]) == pytest.approx(1)


def test_logarithms_of_probabilities_are_spread_by_their_own_logarithm():
    """By hand: -log p from 0.01 to 100, held to 0.7 of the least and 3 times the most."""
    known = -np.geomspace(0.01, 100, 1001)
    found = score_histogram(known, np.array(-50.0), log_probability=True)
    assert (found["edges"][0], found["edges"][-1]) == pytest.approx((-300, -0.007))
    inside = np.array(found["shares"])[5:35]
    assert inside == pytest.approx(np.full(30, inside.mean()), rel=0.1)
    assert np.all(np.diff(found["edges"]) > 0)


@pytest.mark.parametrize("log_probability", [False, True])
@pytest.mark.parametrize(
    "known", [np.zeros(30), np.full(30, -2.5), -np.geomspace(1e-300, 1e300, 50), np.array([-1.0]), np.full(30, 1e20)]
)
def test_any_scores_and_thresholds_find_a_place(known, log_probability):
    """Equal, certain to the last bit, or absurdly far apart."""
    thresholds = np.array([known.min() - abs(known.min()), known.max()])
    found = score_histogram(known, thresholds, log_probability=log_probability)
    assert np.isfinite(found["edges"]).all()
    assert np.all(np.diff(found["edges"]) > 0)
    assert sum(found["shares"]) == pytest.approx(1)
    assert found["edges"][0] < thresholds.min()
