"""A map of features in two dimensions."""

import numpy as np
import pytest
import torch

from bal.detectors import BAL, make_detector
from bal.discrimination import GANTraining
from bal.features import Features, extract
from bal.serving.map import make_map, map_of
from bal.serving.model import ServedModel
from conftest import make_blobs

pytestmark = pytest.mark.filterwarnings("ignore:BAL collapsed")  # for want of training, which the map does not need
QUICK = GANTraining(epochs=1, iterations=2)


def test_the_axes_are_those_along_which_the_class_means_lie_apart():
    """By hand: three means in the plane of the first and the last coordinate, spread 3 : 1, round (1, 7, 1)."""
    means = torch.tensor([[-2.0, 7.0, 1.0], [4.0, 7.0, 1.0], [1.0, 7.0, 1.0], [1.0, 7.0, 2.0], [1.0, 7.0, 0.0]])
    found = map_of(means, lambda f, logits: f, radius=None)
    assert np.allclose(found.centres, [[-3, 0], [3, 0], [0, 0], [0, 1], [0, -1]])
    assert found.share == pytest.approx(1)
    f = torch.tensor([[2.0, -50.0, 4.0], [float("nan"), 7.0, 1.0]])
    places = found.place(Features(f, torch.zeros(2, 5)))
    assert np.allclose(places[0], [1, 3]), "what lies off both axes is not seen"
    assert np.isnan(places[1]).all()


def test_the_share_is_what_two_axes_hold_of_the_variance_of_the_means():
    """By hand: means at +-3, +-2 and +-1 on three axes hold 18 + 8 of 28."""
    means = torch.cat([torch.diag(torch.tensor([3.0, 2.0, 1.0])), -torch.diag(torch.tensor([3.0, 2.0, 1.0]))])
    assert map_of(means, lambda f, logits: f, radius=None).share == pytest.approx(26 / 28)


@pytest.mark.parametrize("means", [torch.ones(3, 4), torch.rand(3, 1), torch.full((3, 4), torch.nan)])
def test_there_is_no_map_where_no_two_axes_are(means):
    assert map_of(means, lambda f, logits: f, radius=None) is None


@pytest.mark.parametrize(
    "detector",
    [
        make_detector("Mahalanobis"),
        make_detector("Mahalanobis++"),
        make_detector("relative Mahalanobis"),
        BAL(training=QUICK),
        BAL(training=QUICK, members=2),
        BAL(training=QUICK, conditioning="centred", evidence="none"),
    ],
    ids=["Mahalanobis", "Mahalanobis++", "relative Mahalanobis", "BAL", "ensemble", "centred"],
)
def test_the_mean_place_of_a_class_is_its_centre_and_most_of_it_lies_in_the_ring(detector):
    """L2 and the cut of the evidence are done before the mean is taken, so the centres are the means of the places."""
    blobs = make_blobs(600)
    found = make_map(detector.fit_features(blobs))
    places = found.place(blobs)
    for label, centre in enumerate(found.centres.numpy()):
        of_class = places[blobs.labels.numpy() == label]
        assert np.allclose(of_class.mean(0), centre, atol=1e-3)
        assert (np.linalg.norm(of_class - centre, axis=1) < found.radius).mean() > 0.7


@pytest.mark.parametrize(
    "detector", [make_detector("energy"), BAL(training=QUICK, conditioning="projection")], ids=["energy", "projection"]
)
def test_a_detector_without_class_means_has_no_map(detector):
    assert make_map(detector.fit_features(make_blobs())) is None


def test_the_ring_is_left_out_where_the_spread_within_classes_is_not_1():
    found = make_map(BAL(training=QUICK, normalisation="identity").fit_features(make_blobs()))
    assert found.radius is None
    assert found.to_json()["dimensions"] == 9, "8 and the evidence"


def test_rows_are_answered_with_their_places(bal_detector, tiny_classifier, tiny_images):
    x = tiny_images[0][:4]
    model = ServedModel(bal_detector)
    expected = model.map.place(extract(tiny_classifier, x, show_progress=False))
    assert np.allclose(model.run([x.numpy()])[0]["map"], expected, rtol=1e-4)
