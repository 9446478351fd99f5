"""The numbers of an evaluation, against counting by hand."""

import numpy as np
import pytest

from bal.detectors import make_detector
from bal.evaluation import assess
from bal.evaluation.findings import Counts, class_names, count, examine, find
from bal.evaluation.observation import Observed, Rows
from conftest import make_blobs


def rows(score, predicted, *, accepted, labels=None, valid=None):
    n = len(score)
    return Rows(
        score=np.array(score, float),
        confidence=np.ones(n),
        p_value=np.ones(n),
        log_p1=np.array(score, float),
        predicted=np.array(predicted),
        taken_for=np.array(predicted),
        accepted=np.array(accepted, bool),
        valid=np.ones(n, bool) if valid is None else np.array(valid, bool),
        labels=None if labels is None else np.array(labels),
    )


SIX = {
    "score": [5, 4, 3, 2, 1, -np.inf],
    "predicted": [0, 0, 1, 1, 2, -1],
    "accepted": [1, 1, 1, 0, 0, 0],
    "valid": [1, 1, 1, 1, 1, 0],
}


def test_counts_of_six_rows_are_those_counted_by_hand():
    found = count(rows(**SIX, labels=[0, 1, 1, 1, 0, 2]))
    assert (found.rows, found.accepted, found.rejected, found.invalid) == (6, 3, 2, 1)
    assert found.rejected_share == 2 / 5
    assert (found.accuracy, found.accepted_accuracy) == (3 / 6, 2 / 3)
    bare = count(rows(**SIX))
    assert (bare.accuracy, bare.accepted_accuracy) == (None, None)


def test_a_group_without_valid_rows_has_no_share():
    empty = Counts.of(rows=2, accepted=0, invalid=2, right=0, right_accepted=0)
    assert (empty.rejected_share, empty.low, empty.high, empty.accepted_accuracy) == (None, 0.0, 1.0, None)


def test_classes_and_curves_of_six_rows_are_those_worked_by_hand(blobs):
    detector = make_detector("energy").fit_features(blobs)
    found = find(detector, Observed(rows(**SIX, labels=[0, 1, 1, 1, 0, 2])), {})
    assert {name: (c.accepted, c.rejected, c.invalid) for name, c in found.by_predicted.items()} == {
        "class 0": (2, 0, 0),
        "class 1": (1, 1, 0),
        "class 2": (0, 1, 0),
    }
    assert {name: (c.accepted, c.rejected, c.invalid) for name, c in found.by_class.items()} == {
        "class 0": (1, 1, 0),
        "class 1": (2, 1, 0),
        "class 2": (0, 0, 1),
    }
    risks = [0, 1 / 2, 1 / 3, 1 / 4, 2 / 5]  # of the five valid rows, errors in rows 2 and 5
    assert found.selective["energy"].aurc == pytest.approx(np.mean(risks))
    assert found.selective["energy"].error_at_coverage == pytest.approx(
        {1.0: 2 / 5, 0.95: 2 / 5, 0.9: 2 / 5, 0.8: 1 / 4, 0.5: 1 / 3}
    )
    assert found.best_aurc == pytest.approx((1 / 4 + 2 / 5) / 5)


def test_the_numbers_are_those_of_assess(blobs, outliers):
    detector = make_detector("Mahalanobis").fit_features(blobs).calibrate(make_blobs(seed=3), false_alarm=0.1)
    other = assess(detector, blobs, blobs.labels, [("far", outliers)])
    found = examine(detector, blobs, [("far", outliers)], show_progress=False).found
    assert found.known.rejected_share == pytest.approx(other.rejected)
    assert found.known.accuracy == other.accuracy
    assert found.oods["far"].metrics == other.oods["far"].metrics
    assert found.oods["far"].counts.accepted / 300 == other.oods["far"].accepted
    assert (found.false_alarm, len(found.alarms), found.alarms[0].calibration_rows, found.alarms[0].rows) == (0.1, 1, 300, 300)
    assert found.alarms[0].fewest <= found.alarms[0].rejected <= found.alarms[0].most


def test_with_a_threshold_for_each_class_each_has_its_own_promise(blobs):
    detector = make_detector("Mahalanobis").fit_features(blobs).calibrate(make_blobs(seed=3), false_alarm=0.1, per_class=True)
    found = examine(detector, make_blobs(seed=4), [], show_progress=False).found
    assert [alarm.name for alarm in found.alarms] == ["class 0", "class 1", "class 2"]
    assert sum(alarm.rows for alarm in found.alarms) == 300
    assert sum(alarm.rejected for alarm in found.alarms) == found.known.rejected
    assert [alarm.threshold for alarm in found.alarms] == list(found.thresholds)
    assert all(alarm.fewest <= alarm.rejected <= alarm.most for alarm in found.alarms)


def test_without_labels_and_calibration_there_is_less_to_tell(blobs, outliers):
    found = examine(make_detector("energy").fit_features(blobs), outliers, [], show_progress=False).found
    assert (found.false_alarm, found.alarms, found.by_class, found.selective, found.best_aurc) == (None, (), None, None, None)


def test_classes_of_one_name_are_told_apart(blobs):
    detector = make_detector("energy").fit_features(blobs)
    assert class_names(detector) == ("class 0", "class 1", "class 2")
    detector.class_names_ = ("crane", "maillot", "crane")
    assert class_names(detector) == ("crane (0)", "maillot", "crane (2)")
