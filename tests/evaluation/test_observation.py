"""One pass over data keeps the numbers of every row, and the pictures that tell most."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bal.backbones import Classifier
from bal.data.files import Loaded
from bal.detectors import BAL, log_max_softmax, make_detector
from bal.errors import DataError, NotFittedError
from bal.evaluation.observation import observe, shows_pictures, thumbnail
from bal.features import InputSpec, extract

pytestmark = pytest.mark.filterwarnings("ignore:the classifier gets")  # an untrained network is good enough here


@pytest.fixture
def images(generator):
    """300 images, more than one batch holds."""
    return torch.rand(300, 1, 4, 4, generator=generator), torch.arange(300) % 3


@pytest.fixture
def energy(tiny_classifier, images):
    return make_detector("energy").fit(tiny_classifier, images, show_progress=False).calibrate(images[0], false_alarm=0.2)


def see(detector, data, **options):
    return observe(detector, data, **{"known": True, "show_progress": False, **options})


def test_the_rows_are_those_of_predict_in_the_order_of_the_data(energy, images, tiny_classifier):
    rows = see(energy, images).rows
    answer = energy.predict(images[0])
    features = extract(tiny_classifier, images[0], show_progress=False)
    np.testing.assert_allclose(rows.score, answer.score, rtol=1e-6)
    np.testing.assert_array_equal(np.where(rows.accepted, rows.predicted, -1), answer.label)
    np.testing.assert_allclose(rows.log_p1, log_max_softmax(features.logits), rtol=1e-5)
    np.testing.assert_allclose(rows.p_value, answer.p_value)
    np.testing.assert_array_equal(rows.labels, images[1])


def test_a_loader_features_and_loaded_files_are_seen_alike(energy, images, tiny_classifier):
    expected = see(energy, images).rows.score
    features = extract(tiny_classifier, images, show_progress=False)
    loaded = Loaded(images[0], images[1], {"a.png": "broken", "b.png": "broken"})
    for data in (DataLoader(TensorDataset(*images), batch_size=7), features, loaded):
        seen = see(energy, data)
        np.testing.assert_allclose(seen.rows.score, expected, rtol=1e-5)
        assert seen.left_out == (2 if data is loaded else 0)
    assert see(energy, features).examples == {}, "features are no pictures"


def test_examples_of_known_data_are_the_surest_rejections_and_the_most_trusted_errors(energy, images):
    seen = see(energy, images, count=5)
    rows = seen.rows
    rejected = sorted(rows.log_p1[rows.valid & ~rows.accepted], reverse=True)[:5]
    wrong = np.flatnonzero(rows.accepted & (rows.predicted != rows.labels))
    wrong = wrong[np.argsort(-rows.score[wrong], kind="stable")][:5]
    assert len(rejected) == 5
    surest = [float(rows.log_p1[row_of(images, example)]) for example in seen.examples["rejected"]]
    assert surest == pytest.approx(rejected)
    assert [row_of(images, example) for example in seen.examples["wrong"]] == wrong.tolist()
    first = seen.examples["wrong"][0]
    assert (first.label, first.predicted) == (rows.labels[wrong[0]], rows.predicted[wrong[0]])
    assert first.p1 is None, "p1 and p2 are BAL's"


def test_examples_of_unknown_data_are_the_most_trusted_and_the_least(energy, images):
    seen = see(energy, images, known=False, count=3)
    order = np.argsort(seen.rows.score, kind="stable")
    assert [row_of(images, example) for example in seen.examples["rejected"]] == order[:3].tolist()
    assert [row_of(images, example) for example in seen.examples["accepted"]] == order[::-1][:3].tolist()
    assert seen.rows.labels is None, "labels of OOD data are not used"


def row_of(images, example):
    pictures = np.rint(255 * images[0][:, 0].numpy()).astype(np.uint8)
    return int((pictures == example.image).all((1, 2)).argmax())


def test_rows_that_are_not_finite_are_counted_and_never_shown(energy, images):
    x = images[0].clone()
    x[::2] = torch.nan
    seen = see(energy, (x, images[1]))
    assert seen.rows.valid.sum() == 150
    assert not seen.rows.accepted[::2].any()
    assert (seen.rows.predicted[::2] == -1).all()
    assert all(row_of((x.nan_to_num(), None), example) % 2 for examples in seen.examples.values() for example in examples)


def test_examples_of_bal_tell_p1_and_p2(images, tiny_classifier):
    detector = BAL().fit(tiny_classifier, images, show_progress=False)
    for example in see(detector, images[0], known=False).examples["accepted"]:
        assert example.p1 * example.p2 == pytest.approx(example.confidence)
        assert 1 / 3 <= example.p1 <= 1
        assert np.isnan(example.p_value), "not calibrated"


def test_a_detector_that_reads_inputs_is_seen_too(images, tiny_classifier):
    detector = make_detector("ODIN").fit(tiny_classifier, images, show_progress=False)
    seen = see(detector, images)
    np.testing.assert_allclose(seen.rows.score, detector.score(images[0]), rtol=1e-5)
    assert len(seen.examples["rejected"]) == 8


def test_vectors_have_no_pictures(generator):
    x, labels = torch.rand(30, 16, generator=generator), torch.arange(30) % 3
    detector = make_detector("energy").fit(
        Classifier(torch.nn.Sequential(torch.nn.Linear(16, 3))), (x, labels), show_progress=False
    )
    assert not shows_pictures(detector)
    assert see(detector, (x, labels)).examples == {}


def test_a_thumbnail_is_scaled_by_the_range_of_the_fit_and_made_small():
    x = torch.tensor([[[-1.0, 0.0], [1.0, torch.nan]]])
    assert thumbnail(x, InputSpec((1, 2, 2), True, -1.0, 1.0)).tolist() == [[0, 128], [255, 128]]
    assert thumbnail(x, InputSpec((1, 2, 2), True, 0.0, 1.0)).tolist() == [[0, 0], [255, 0]]
    assert thumbnail(torch.zeros(3, 416, 208), None).shape == (104, 52, 3)


def test_what_cannot_be_seen_is_refused_with_a_reason(energy, images, blobs):
    with pytest.raises(DataError, match=r"labels of the test data must be 0 to 2, .* got 0 to 3"):
        see(energy, (images[0], torch.arange(300) % 4))
    with pytest.raises(DataError, match="the data is empty"):
        see(energy, images[0][:0])
    with pytest.raises(NotFittedError, match="no classifier"):
        see(make_detector("energy").fit_features(blobs), images)
