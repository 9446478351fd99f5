import numpy as np
import pytest

from bal.errors import DataError, SettingsError
from bal.evaluation import bootstrap, detection_metrics, equal_counts, evaluate


def test_both_sides_have_the_same_count_by_default(rng):
    known, unknown = rng.normal(size=500), rng.normal(size=90)
    a, b = equal_counts(known, unknown, seed=3)
    assert len(a) == len(b) == 90
    assert np.array_equal(b, unknown)
    assert len(np.unique(a)) == 90
    assert np.isin(a, known).all()
    assert evaluate(known, unknown, seed=3) == detection_metrics(a, b)


def test_the_choice_of_rows_depends_on_the_seed_alone(rng):
    known, unknown = rng.normal(size=500), rng.normal(size=90)
    assert evaluate(known, unknown, seed=1) == evaluate(known, unknown, seed=1)
    assert not np.array_equal(equal_counts(known, unknown, seed=1)[0], equal_counts(known, unknown, seed=2)[0])


def test_all_rows_are_used_when_asked(rng):
    known, unknown = rng.normal(size=500), rng.normal(size=90)
    assert evaluate(known, unknown, balanced=False) == detection_metrics(known, unknown)


def test_bootstrap_intervals_hold_the_value_and_shrink_with_more_scores(rng):
    widths = []
    for n in (100, 1600):
        known, unknown = rng.normal(1, 1, n), rng.normal(0, 1, n)
        intervals = bootstrap(known, unknown, resamples=300)
        value = detection_metrics(known, unknown)
        for name, interval in intervals.items():
            assert interval.low <= getattr(value, name) <= interval.high, name
        widths.append(intervals["auroc"].high - intervals["auroc"].low)
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.35)  # sixteen times the scores, a quarter of the width


def test_the_interval_of_auroc_covers_the_truth_about_as_often_as_it_says(rng):
    """AUROC of N(1, 1) against N(0, 1) is Phi(1 / sqrt 2) = 0.7602."""
    covered = 0
    for seed in range(100):
        interval = bootstrap(rng.normal(1, 1, 150), rng.normal(0, 1, 150), resamples=200, seed=seed)["auroc"]
        covered += interval.low <= 0.76025 <= interval.high
    assert covered >= 87  # 95 expected; fewer than 87 has a chance below 1 in 1,000


def test_a_nan_is_refused_even_if_the_balancing_would_drop_it(rng):
    known = rng.normal(size=1000)
    known[123] = np.nan
    for seed in range(5):
        with pytest.raises(DataError, match=r"rows \[123\]"):
            evaluate(known, [0.0, 1.0], seed=seed)


def test_intervals_belong_to_the_balanced_value_when_counts_differ(rng):
    known, unknown = rng.normal(1, 1, 2000), rng.normal(0, 1, 200)
    balanced, all_rows = evaluate(known, unknown), evaluate(known, unknown, balanced=False)
    assert bootstrap(known, unknown)["aupr_in"].low < balanced.aupr_in < bootstrap(known, unknown)["aupr_in"].high
    interval = bootstrap(known, unknown, balanced=False)["aupr_in"]
    assert interval.low < all_rows.aupr_in < interval.high


@pytest.mark.parametrize("settings", [{"confidence": 2}, {"resamples": 0}, {"seed": -1}])
def test_nonsense_settings_of_the_bootstrap_are_refused(settings):
    with pytest.raises(SettingsError):
        bootstrap([1.0, 2.0], [0.0], **settings)
