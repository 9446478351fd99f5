import numpy as np
import pytest
from sklearn.metrics import precision_recall_curve, roc_curve

from bal.evaluation import risk_coverage
from bal.report import figures


def test_curves_agree_with_scikit_learn(rng):
    known, unknown = rng.normal(1, 1, 150), rng.normal(0, 1, 150)
    recall, fpr, precision = figures.curve(known, unknown, points=1000)
    labels, scores = np.repeat([1, 0], 150), np.concatenate([known, unknown])
    sk_fpr, sk_tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(recall, sk_tpr[1:])
    np.testing.assert_allclose(fpr, sk_fpr[1:])
    sk_precision, sk_recall, _ = precision_recall_curve(labels, scores)
    np.testing.assert_allclose(precision, sk_precision[-2::-1])
    np.testing.assert_allclose(recall, sk_recall[-2::-1])


def test_the_same_figure_is_the_same_bytes(rng):
    scores = {"a": (rng.normal(1, 1, 50), rng.normal(0, 1, 50)), "b": (rng.normal(1, 1, 50), np.full(50, -np.inf))}
    for draw in (figures.score_histograms, figures.roc_and_pr_curves):
        assert draw(scores) == draw(scores)
        assert draw(scores).startswith("<svg")


def test_the_curve_of_coverage_and_risk_names_its_scores_and_their_areas(rng):
    curve = risk_coverage(rng.normal(size=50), rng.random(50) < 0.2)
    svg = figures.risk_coverage_curves({"BAL": curve, "max-softmax": curve}, (0.9, 0.1))
    assert svg == figures.risk_coverage_curves({"BAL": curve, "max-softmax": curve}, (0.9, 0.1))
    for words in (f"BAL (AURC {curve.aurc:.4f})", "max-softmax", "at the threshold"):
        assert words in svg
    assert "at the threshold" not in figures.risk_coverage_curves({"BAL": curve}, None)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 3)])
def test_pictures_are_grey_or_colour(shape):
    assert figures.picture(np.zeros(shape, np.uint8)).startswith("data:image/png;base64,")
