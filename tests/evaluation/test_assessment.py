import numpy as np
import pytest

from bal.detectors import make_detector
from bal.errors import DataError
from bal.evaluation import assess, evaluate


@pytest.mark.parametrize("per_class", [False, True])
def test_shares_and_metrics_are_those_of_predict_and_evaluate(blobs, outliers, per_class):
    detector = make_detector("Mahalanobis").fit_features(blobs).calibrate(blobs, false_alarm=0.1, per_class=per_class)
    labels = blobs.labels.numpy().copy()
    labels[:30] = (labels[:30] + 1) % 3
    found = assess(detector, blobs, labels, [("far", outliers)])
    assert (found.detector, found.rows) == ("Mahalanobis", 300)
    assert found.accuracy == pytest.approx(0.9, abs=0.01)
    assert found.rejected == pytest.approx((detector.predict(blobs).label == -1).mean())
    assert found.oods["far"].rows == 300
    assert found.oods["far"].accepted == (detector.predict(outliers).label >= 0).mean()
    assert found.oods["far"].metrics == evaluate(detector.score(blobs), detector.score(outliers))


def test_labels_are_not_needed_but_must_fit(blobs, outliers):
    detector = make_detector("Mahalanobis").fit_features(blobs)
    assert assess(detector, blobs, None, []).accuracy is None
    with pytest.raises(DataError, match="one label for each row"):
        assess(detector, blobs, np.zeros(3), [])
    for labels in (blobs.labels.numpy() + 1, blobs.labels.numpy() - 1, np.full(300, 7)):
        with pytest.raises(DataError, match="labels of the test data must be 0 to 2, the classifier's outputs"):
            assess(detector, blobs, labels, [])
