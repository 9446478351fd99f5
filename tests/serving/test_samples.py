"""Pictures to try."""

import base64

import numpy as np

from bal.data import load_sample
from bal.data.images import decode
from bal.serving.samples import sample_pictures


def test_small_grey_images_can_be_tried_with_one_of_each_class_of_the_sample():
    sample, pictures = load_sample(), sample_pictures((1, 28, 28))
    assert [p["name"] for p in pictures if p["kind"] == "Fashion-MNIST"] == list(sample.classes)
    assert [p["name"] for p in pictures if p["kind"] == "MNIST"] == [f"digit {c}" for c in range(10)]
    image = decode(base64.b64decode(pictures[0]["address"].removeprefix("data:image/png;base64,")), channels=1, name="x")
    rows = np.flatnonzero((sample.test[0] == image[0]).all((1, 2)))
    assert sample.test[1][rows[0]] == 0
    assert rows[0] >= 1000, "not one that the documents calibrate with"


def test_other_inputs_have_no_pictures():
    assert sample_pictures((3, 28, 28)) == sample_pictures((1, 32, 32)) == sample_pictures((784,)) == []
