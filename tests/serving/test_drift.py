"""The drift alarm: silent on ID traffic, loud on OOD traffic, and it says nothing where nothing was promised."""

import numpy as np
import pytest
from scipy import stats

from bal.calibration import Calibration
from bal.serving.drift import FEWEST, Drift


def calibrated(rng, rows=1000, false_alarm=0.05):
    predicted = np.zeros(rows, np.int64)
    return Calibration.of(rng.normal(size=rows), predicted, classes=1, false_alarm=false_alarm)


def test_the_band_is_exact_and_the_window_slides(rng):
    drift = Drift(calibrated(rng), window=100, confidence=0.99)
    drift.add([True] * 50 + [False] * 90)
    state = drift.state()
    assert (state.rows, state.rejected, state.share) == (100, 10, 0.1)
    expected = stats.binomtest(10, 100).proportion_ci(0.99, method="exact")
    assert (state.low, state.high) == pytest.approx((expected.low, expected.high))
    drift.add([False] * 100)
    assert drift.state().rejected == 0


def test_id_traffic_rarely_raises_an_alarm_and_ood_traffic_soon_does(rng):
    calibration = calibrated(rng)
    threshold, alarms = calibration.threshold(), 0
    for _ in range(200):
        drift = Drift(calibration, window=1000, confidence=0.999)
        drift.add(rng.normal(size=1000) < threshold)
        alarms += drift.state().alarm
    assert alarms <= 1
    drift.add(rng.normal(-1, size=200) < threshold)  # a fifth of the window is not like the calibration rows
    assert drift.state().alarm


def test_a_small_calibration_allows_for_what_it_cannot_know(rng):
    """19 rows promise 5 % on average, but this very calibration may reject 20 % of ID data; that is no drift."""
    few, many = Drift(calibrated(rng, 19), window=200, confidence=0.99), Drift(calibrated(rng), window=200, confidence=0.99)
    for drift in (few, many):
        drift.add([True] * 30 + [False] * 170)
    assert many.state().alarm
    assert not few.state().alarm
    assert few.state().promised == many.state().promised == 0.05


def test_without_calibration_there_is_no_promise_and_no_alarm():
    drift = Drift(None, window=100, confidence=0.999)
    assert (drift.state().rows, drift.state().share, drift.state().alarm) == (0, None, False)
    drift.add([True] * 100)
    assert (drift.state().promised, drift.state().limit, drift.state().alarm) == (None, None, False)


def test_a_few_decisions_are_not_enough_for_an_alarm(rng):
    drift = Drift(calibrated(rng), window=100, confidence=0.999)
    drift.add([True] * (FEWEST - 1))
    assert not drift.state().alarm
    drift.add([True])
    assert drift.state().alarm
