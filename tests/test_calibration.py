"""Split conformal calibration: exact by brute force, valid by simulation, honest about what n can carry."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bal.calibration import (
    Calibration,
    conformal_threshold,
    false_alarm_band,
    false_alarm_counts,
    p_values,
    rate_interval,
    rejected_rank,
    rows_needed,
)
from bal.errors import BalError, CalibrationError, SettingsError

ALPHAS = (0.01, 0.05, 0.1)
DRAWS = 2000
few_values = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=30)  # ties are the rule
scores_of_any_size = st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=30)
rates = st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.29, 0.5, 0.75, 0.9])


def p_by_counting(calibration, score):
    return Fraction(1 + sum(s <= score for s in calibration), len(calibration) + 1)


@given(few_values | scores_of_any_size, st.floats(-10, 10))
def test_p_values_are_what_counting_gives(calibration, score):
    assert p_values(calibration, [score])[0] == float(p_by_counting(calibration, score))


@given(few_values | scores_of_any_size, rates)
def test_a_score_is_below_the_threshold_just_where_its_p_value_is_at_most_alpha(calibration, alpha):
    if len(calibration) < rows_needed(alpha):
        return
    threshold = conformal_threshold(calibration, alpha).item()
    between = [(a + b) / 2 for a, b in pairwise(calibration)]
    for score in [*calibration, *between, -np.inf, np.inf]:
        assert (score < threshold) == (p_by_counting(calibration, score) <= Fraction(str(alpha)))


@settings(max_examples=200)
@given(few_values | scores_of_any_size)
def test_p_values_of_exchangeable_rows_are_uniform_or_larger(scores):
    """Each of n + 1 rows is as likely to be the new one: no more than floor(t (n + 1)) of them may have p <= t."""
    p = np.array([p_values(scores[:i] + scores[i + 1 :], [scores[i]])[0] for i in range(len(scores))])
    assert ((p > 0) & (p <= 1)).all()
    for rank in range(1, len(scores) + 1):
        assert (p <= rank / len(scores)).sum() <= rank
    if len(set(scores)) == len(scores):
        assert sorted(p) == [rank / len(scores) for rank in range(1, len(scores) + 1)], "exactly uniform without ties"


@settings(max_examples=200)
@given(few_values | scores_of_any_size, rates)
def test_no_more_than_alpha_of_exchangeable_rows_are_rejected(scores, alpha):
    n = len(scores) - 1
    if n < rows_needed(alpha):
        return
    rejected = sum(scores[i] < conformal_threshold(scores[:i] + scores[i + 1 :], alpha) for i in range(n + 1))
    assert Fraction(rejected, n + 1) <= Fraction(str(alpha))


@pytest.mark.parametrize("n", [20, 100, 1000])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_false_alarm_rate_of_2000_draws_is_the_conformal_one(n, alpha, rng):
    draws = rng.standard_normal((DRAWS, n + 1))
    if n < rows_needed(alpha):
        with pytest.raises(CalibrationError, match=r"at least 99 calibration rows, got 20"):
            conformal_threshold(draws[:, :n], alpha)
        return
    rate = (draws[:, n] < conformal_threshold(draws[:, :n], alpha)).mean()
    expected = rejected_rank(n, alpha) / (n + 1)
    assert expected <= alpha
    assert abs(rate - expected) <= 3 * np.sqrt(expected * (1 - expected) / DRAWS)


def test_the_empirical_quantile_would_not_have_kept_the_promise(rng):
    """Why k = floor(alpha (n + 1)): at n = 15 and alpha = 0.07 numpy's default quantile gives half as many false alarms again."""
    draws = rng.standard_normal((20_000, 16))
    naive = (draws[:, 15] < np.quantile(draws[:, :15], 0.07, axis=1)).mean()
    assert naive > 0.1
    assert (draws[:, 15] < conformal_threshold(draws[:, :15], 0.07)).mean() <= 0.07


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_for_each_predicted_class_the_rate_holds_by_itself(n, rng):
    """Classes of very different scores: one threshold for all rejects 10 % of the whole, and none or many of a class."""
    rejected = {(per_class, c): [] for per_class in (False, True) for c in range(2)}
    for _ in range(400):
        predicted = np.arange(2 * n + 40) % 2
        scores = rng.standard_normal(len(predicted)) - 5 * predicted
        for per_class in (False, True):
            calibration = Calibration.of(scores[40:], predicted[40:], classes=2, false_alarm=0.1, per_class=per_class)
            threshold = np.broadcast_to(calibration.threshold(), 2)
            for c in range(2):
                rejected[per_class, c].append((scores[:40] < threshold[predicted[:40]])[predicted[:40] == c].mean())
    spread = np.std(rejected[True, 0]) / np.sqrt(400)
    for c in range(2):
        assert np.mean(rejected[True, c]) <= 0.1 + 3 * spread
    assert np.mean(rejected[False, 0]) < 0.001
    assert np.mean(rejected[False, 1]) > 0.15


@pytest.mark.parametrize(
    ("n", "alpha"), [(19, 0.05), (20, 0.05), (20, 0.1), (99, 0.01), (1000, 0.05), (1000, 0.5), (200_000, 0.1)]
)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_band_is_that_of_the_beta_distribution(n, alpha, confidence):
    k = int(np.floor(alpha * (n + 1) + 1e-9))
    expected = stats.beta(k, n + 1 - k).ppf([(1 - confidence) / 2, (1 + confidence) / 2])
    np.testing.assert_allclose(false_alarm_band(n, alpha, confidence), expected, rtol=1e-7)


def test_the_band_holds_the_rate_of_95_in_100_calibrations(rng):
    n, alpha = 100, 0.1
    thresholds = conformal_threshold(rng.standard_normal((DRAWS, n)), alpha)
    rate = stats.norm.cdf(thresholds)  # the very rate that each calibration set has
    low, high = false_alarm_band(n, alpha)
    assert abs(((low <= rate) & (rate <= high)).mean() - 0.95) <= 3 * np.sqrt(0.95 * 0.05 / DRAWS)


@pytest.mark.parametrize(("count", "rows"), [(0, 30), (1, 30), (7, 200), (30, 30), (5000, 100_000)])
def test_the_interval_of_a_rate_is_that_of_clopper_and_pearson(count, rows):
    expected = stats.binomtest(count, rows).proportion_ci(0.95, "exact")
    np.testing.assert_allclose(rate_interval(count, rows), (expected.low, expected.high), rtol=1e-6)


@pytest.mark.parametrize(("n", "alpha", "rows"), [(19, 0.05, 7), (100, 0.1, 50), (1000, 0.05, 2000), (500, 0.01, 0)])
def test_the_rejected_rows_to_expect_are_those_of_the_beta_binomial_distribution(n, alpha, rows):
    k = rejected_rank(n, alpha)
    told = stats.betabinom(rows, k, n + 1 - k)
    low, high = false_alarm_counts(n, alpha, rows)
    assert told.cdf(low - 1) <= 0.025 < told.cdf(low)
    assert told.sf(high) <= 0.025 < told.sf(high - 1)


def test_the_rejected_rows_are_as_many_as_expected_in_95_of_100_draws(rng):
    n, alpha, rows = 100, 0.1, 200
    thresholds = conformal_threshold(rng.standard_normal((DRAWS, n)), alpha)
    rejected = (rng.standard_normal((DRAWS, rows)) < thresholds[:, None]).sum(1)
    low, high = false_alarm_counts(n, alpha, rows)
    inside = ((low <= rejected) & (rejected <= high)).mean()
    assert 0.95 - 3 * np.sqrt(0.95 * 0.05 / DRAWS) <= inside <= 0.975  # whole numbers: a little more than 95 %


def test_what_to_expect_is_told_for_each_threshold(rng):
    scores, predicted = rng.standard_normal(300), np.repeat([0, 1, 2], [50, 100, 150])
    one = Calibration.of(scores, predicted, classes=3, false_alarm=0.05)
    assert one.false_alarms() == ((300, 15 / 301, *false_alarm_band(300, 0.05)),)
    each = Calibration.of(scores, predicted, classes=3, false_alarm=0.05, per_class=True)
    assert [alarm.rows for alarm in each.false_alarms(confidence=0.9)] == [50, 100, 150]
    assert each.false_alarms()[0].rate == 2 / 51
    np.testing.assert_array_equal(each.threshold(), [np.sort(scores[predicted == c])[k - 1] for c, k in enumerate([2, 5, 7])])


@pytest.mark.parametrize(
    ("alpha", "needed"), [(0.01, 99), (0.05, 19), (0.1, 9), (0.3, 3), (0.5, 1), (0.001, 999), (1e-5, 99_999), (0.29, 3)]
)
def test_the_rows_needed_are_the_fewest_that_can_reject_anything(alpha, needed):
    """Fault 19."""
    assert rows_needed(alpha) == needed
    assert (rejected_rank(needed, alpha), rejected_rank(needed - 1, alpha)) == (1, 0)
    assert conformal_threshold(np.arange(needed), alpha) == 0
    with pytest.raises(CalibrationError, match=f"needs at least {needed} calibration rows, got {needed - 1}; give more ID rows"):
        conformal_threshold(np.arange(needed - 1), alpha)
    with pytest.raises(CalibrationError, match=f"at least {needed}"):
        false_alarm_band(needed - 1, alpha)


def test_classes_with_too_few_rows_are_named():
    """Fault 19 for each predicted class."""
    with pytest.raises(
        CalibrationError, match=r"at least 19 calibration rows in each; too few for \{class: rows\} \{1: 10, 2: 0\}"
    ):
        Calibration.of(np.arange(40), np.repeat([0, 1], [30, 10]), classes=3, false_alarm=0.05, per_class=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused_with_their_rows(bad):
    """Fault 3."""
    scores = np.arange(40.0)
    scores[[3, 17]] = bad
    for refused in (lambda: conformal_threshold(scores, 0.1), lambda: p_values(scores, [1.0])):
        with pytest.raises(CalibrationError, match=r"2 of 40 calibration rows have no finite score: rows 3, 17\. Find"):
            refused()
    with pytest.raises(CalibrationError, match=r"rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 \.\.\."):
        conformal_threshold(np.full(40, bad), 0.1)


def test_an_invalid_row_has_the_least_p_value_and_nan_has_none():
    assert p_values([1.0, 2.0, 3.0], [-np.inf])[0] == 0.25
    with pytest.raises(CalibrationError, match="got NaN in rows 1"):
        p_values([1.0, 2.0], [0.0, np.nan])


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 5, np.nan, "0.05", None, True])
def test_a_rate_that_makes_no_sense_is_refused(alpha):
    with pytest.raises(SettingsError, match=r"false.alarm"):
        conformal_threshold(np.arange(100), alpha)


@pytest.mark.parametrize("per_class", [False, True])
def test_a_calibration_is_its_tensors(per_class, rng):
    scores, predicted = rng.standard_normal(300), rng.integers(0, 3, 300)
    before = Calibration.of(scores, predicted, classes=3, false_alarm=0.05, per_class=per_class)
    after = Calibration.from_state(before.state())
    new, which = rng.standard_normal(50), rng.integers(0, 3, 50)
    assert after.p_values(new, which).tobytes() == before.p_values(new, which).tobytes()
    assert after.threshold().tobytes() == before.threshold().tobytes()
    assert Calibration.from_state({}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"false_alarm": torch.tensor(2.0)},
        {"false_alarm": torch.tensor(torch.nan)},
        {"false_alarm": torch.tensor(0.001)},
        {"calibration_scores": torch.full((300,), torch.nan)},
        {"calibration_scores": torch.zeros(0), "calibration_rows": torch.tensor([0])},
    ],
)
def test_tensors_that_no_calibration_gives_are_refused(change, rng):
    state = Calibration.of(rng.standard_normal(300), np.zeros(300), classes=3, false_alarm=0.05).state()
    with pytest.raises(BalError):
        Calibration.from_state({**state, **change})


def test_scores_in_another_order_are_the_same_calibration(rng):
    before = Calibration.of(rng.standard_normal(300), np.zeros(300), classes=3, false_alarm=0.05)
    state = before.state()
    after = Calibration.from_state({**state, "calibration_scores": state["calibration_scores"].flip(0)})
    assert np.array_equal(after.p_values(np.arange(3.0), np.zeros(3)), before.p_values(np.arange(3.0), np.zeros(3)))


def test_a_rate_means_the_decimal_number_that_was_typed():
    """0.29 * 100 is 28.999999999999996 in floating point, which would give one rank away."""
    assert conformal_threshold(np.arange(1, 100), 0.29) == 29
    assert p_values(np.arange(1, 100), [28.5])[0] == 0.29


def test_p_values_of_a_class_are_counted_among_its_own_rows():
    scores, predicted = np.array([1.0, 2.0, 3.0, 10.0, 20.0]), np.array([0, 0, 0, 1, 1])
    each = Calibration.of(scores, predicted, classes=2, false_alarm=0.5, per_class=True)
    new = np.array([2.5, 2.5, 15.0, 15.0])
    assert each.p_values(new, np.array([0, 1, 0, 1])).tolist() == [3 / 4, 1 / 3, 4 / 4, 2 / 3]
    together = Calibration.of(scores, predicted, classes=2, false_alarm=0.5)
    assert together.p_values(new, np.array([0, 1, 0, 1])).tolist() == [3 / 6, 3 / 6, 5 / 6, 5 / 6]
