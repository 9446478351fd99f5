"""The contract, on every detector: shapes, refit, invalid rows, batches, wrong use."""

import numpy as np
import pytest
import torch

from bal.backbones import Classifier
from bal.detectors import BAL, BALSettings, MaxSoftmax
from bal.discrimination import GANTraining
from bal.errors import DataError, NotFittedError, ShapeError
from bal.evaluation import evaluate
from bal.features import Features
from conftest import make_blobs, make_outliers


def small_bal():
    training = GANTraining(epochs=10, batch_size=50, learning_rate_D=1e-3, learning_rate_G=1e-3)
    return BAL(BALSettings(hidden_D=(16,), hidden_G=(16,), noise_dim=4, training=training))


DETECTORS = {"max-softmax": MaxSoftmax, "BAL": small_bal}


@pytest.fixture(params=list(DETECTORS))
def detector(request):
    return DETECTORS[request.param]()


def head(features, rows):
    return Features(features.f[:rows], features.logits[:rows], None if features.labels is None else features.labels[:rows])


def test_scores_are_finite_float64_one_for_each_row(detector, blobs):
    scores = detector.fit_features(blobs).score(blobs)
    assert scores.shape == (300,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()


def test_outliers_score_lower_than_the_classes(detector, blobs, outliers):
    detector.fit_features(blobs)
    auroc = evaluate(detector.score(blobs), detector.score(outliers)).auroc
    assert auroc > (0.95 if isinstance(detector, BAL) else 0.5)


def test_fitting_and_scoring_twice_gives_the_same_bytes(detector, blobs):
    first = detector.fit_features(blobs).score(blobs)
    assert first.tobytes() == detector.fit_features(blobs).score(blobs).tobytes()


def test_a_refit_forgets(detector, blobs):
    other = make_blobs(240, classes=4, dim=5, seed=7)
    expected = DETECTORS["BAL" if isinstance(detector, BAL) else "max-softmax"]().fit_features(other).score(other)
    again = detector.fit_features(blobs).fit_features(other).score(other)
    assert np.array_equal(expected, again)


def test_a_row_scores_the_same_alone_and_in_a_batch(detector, blobs):
    """Fault 21."""
    scores = detector.fit_features(blobs).score(blobs)
    alone = [detector.score(Features(blobs.f[i : i + 1], blobs.logits[i : i + 1]))[0] for i in range(64)]
    np.testing.assert_allclose(alone, scores[:64], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["f", "logits"])
def test_a_row_that_is_not_finite_is_invalid_and_never_accepted(detector, blobs, bad, where):
    """Faults 1 and 2."""
    f, logits = blobs.f.clone(), blobs.logits.clone()
    (f if where == "f" else logits)[3, 1] = bad
    answer = detector.fit_features(blobs).predict(Features(f, logits), threshold=-np.inf)
    assert not answer.valid[3]
    assert answer.label[3] == -1
    assert answer.confidence[3] == 0
    assert answer.valid.sum() == 299
    assert (np.delete(answer.label, 3) >= 0).all()


def test_rows_that_are_not_finite_do_not_spoil_the_fit(detector, blobs):
    f = torch.cat([blobs.f, torch.full((5, 8), torch.nan)])
    logits, labels = torch.cat([blobs.logits, torch.zeros(5, 3)]), torch.cat([blobs.labels, torch.zeros(5, dtype=torch.int64)])
    expected = detector.fit_features(blobs).score(blobs)
    assert np.array_equal(detector.fit_features(Features(f, logits, labels)).score(blobs), expected)


def test_predict_gives_the_class_or_minus_one_and_keeps_95_percent_of_the_training_rows(detector, blobs, outliers):
    detector.fit_features(blobs)
    answer = detector.predict(blobs)
    accepted = answer.label >= 0
    assert 0.95 <= accepted.mean() <= 0.96
    assert np.array_equal(answer.label[accepted], blobs.logits.argmax(1).numpy()[accepted])
    assert np.array_equal(accepted, answer.score >= detector.threshold_)
    np.testing.assert_allclose(answer.confidence, np.exp(answer.score))
    assert ((answer.confidence >= 0) & (answer.confidence <= 1)).all()


def test_fit_and_score_through_a_classifier_equal_those_on_its_features(detector, tiny_classifier, tiny_images):
    from bal.features import extract

    by_images = detector.fit(tiny_classifier, tiny_images, show_progress=False).score(tiny_images[0])
    features = extract(tiny_classifier, tiny_images)
    assert np.array_equal(by_images, detector.score(features))


def test_fitting_leaves_the_classifier_as_it_is(detector, tiny_model, tiny_images):
    tiny_model.train()
    before = Classifier(tiny_model).fingerprint()
    detector.fit(Classifier(tiny_model), tiny_images, show_progress=False)
    detector.score(tiny_images[0])
    assert Classifier(tiny_model).fingerprint() == before
    assert all(module.training for module in tiny_model.modules())
    assert all(p.requires_grad and p.grad is None for p in tiny_model.parameters())


def test_unfitted_use_is_refused(detector, blobs):
    with pytest.raises(NotFittedError, match="not fitted"):
        detector.score(blobs)


def test_images_without_a_classifier_are_refused(detector, blobs):
    with pytest.raises(NotFittedError, match="without a classifier"):
        detector.fit_features(blobs).score(torch.zeros(2, 1, 4, 4))


def test_another_size_of_features_or_logits_is_refused(detector, blobs):
    """Fault 5."""
    detector.fit_features(blobs)
    with pytest.raises(ShapeError, match=r"features must be \(N, 8\), got \(2, 9\)"):
        detector.score(Features(torch.zeros(2, 9), torch.zeros(2, 3)))
    with pytest.raises(ShapeError, match=r"logits must be \(N, 3\), got \(2, 4\)"):
        detector.score(Features(torch.zeros(2, 8), torch.zeros(2, 4)))


def test_images_of_another_shape_are_refused(detector, tiny_classifier, tiny_images):
    """Fault 5."""
    detector.fit(tiny_classifier, tiny_images, show_progress=False)
    with pytest.raises(ShapeError, match=r"\(N, 1, 4, 4\), got \(2, 3, 4, 4\)"):
        detector.score(torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("labels", "classes", "words"),
    [
        (None, 3, "needs labels"),
        (torch.zeros(12, dtype=torch.int64), 1, "at least 2 classes"),
        (torch.zeros(12, dtype=torch.int64), 3, r"\{1: 0, 2: 0\}"),
        (torch.tensor([0, 1] * 5 + [0, 2]), 3, r"\{2: 1\}"),
        (torch.tensor([0, 1, 2, 3] * 3), 3, "labels must be 0 to 2"),
        (torch.tensor([0, 1, 2, -1] * 3), 3, "labels must be 0 to 2"),
    ],
    ids=["no labels", "one output", "one class", "one row of a class", "label too large", "label negative"],
)
def test_training_sets_without_a_boundary_to_learn_are_refused(detector, labels, classes, words):
    """Fault 18."""
    with pytest.raises(DataError, match=words):
        detector.fit_features(Features(torch.randn(12, 4), torch.randn(12, classes), labels))


def test_a_training_set_of_nan_is_refused(detector):
    with pytest.raises(DataError, match="no row has finite features"):
        detector.fit_features(Features(torch.full((6, 2), torch.nan), torch.zeros(6, 3), torch.arange(6) % 3))


def test_blobs_and_outliers_are_what_they_say():
    assert make_blobs().accuracy() > 0.99
    assert make_outliers().labels is None
