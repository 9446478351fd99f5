"""A calibrated detector of tiny images, and a service round it."""

import pytest

from bal.detectors import BAL, make_detector
from bal.serving.limits import Limits
from bal.serving.model import ServedModel
from bal.serving.service import Service


@pytest.fixture
def energy(tiny_classifier, tiny_images):
    x, c = tiny_images
    detector = make_detector("energy").fit(tiny_classifier, (x, c), show_progress=False).calibrate(x, false_alarm=0.1)
    detector.class_names_ = ("left", "right", "low")
    return detector


@pytest.fixture
def bal_detector(tiny_classifier, tiny_images):
    x, c = tiny_images
    return BAL().fit(tiny_classifier, (x, c), show_progress=False).calibrate(x, false_alarm=0.1)


@pytest.fixture
def make_service(energy):
    return lambda detector=energy, **limits: Service(ServedModel(detector, "tiny"), Limits(**limits))
