"""Generalized ODIN and GCPL on real images: they classify as well as the network they start from, and leave it alone."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from bal.backbones import Classifier, ClassifierTraining, Normalise, ResNet18, train_classifier
from bal.data import load_sample
from bal.detectors import GCPL, GeneralizedODIN, load
from bal.detectors.trained import copy_with_head
from bal.errors import NotFittedError
from bal.features import extract
from bal.seeding import make_generator


@pytest.fixture(scope="module")
def trained():
    sample, g = load_sample(), make_generator(0)
    model = ResNet18(width=8, stem="7x7", generator=g)
    train_classifier(model, sample.train, ClassifierTraining(epochs=3, batch_size=64), generator=g, show_progress=False)
    return Classifier(model), sample


@pytest.mark.parametrize("kind", [GeneralizedODIN, GCPL])
def test_they_classify_within_one_point_of_the_plain_classifier_on_the_sample(trained, kind):
    classifier, sample = trained
    plain = extract(classifier, sample.test).accuracy()
    detector = kind(training=ClassifierTraining(epochs=2, batch_size=64, learning_rate=3e-4))
    detector.fit(classifier, sample.train, show_progress=False)
    own = (detector.predict(sample.test[0], threshold=-float("inf")).label == sample.test[1]).mean()
    assert own > plain - 0.01


@pytest.mark.parametrize("preprocess", [None, Normalise((0.5,), (0.5,))])
def test_the_copy_shares_nothing_with_the_classifier(tiny_model, preprocess):
    classifier = Classifier(tiny_model, preprocess=preprocess)
    before = copy.deepcopy(tiny_model.state_dict())
    network = copy_with_head(classifier, nn.Linear(6, 5))
    assert network(torch.rand(4, 1, 4, 4)).shape == (4, 5)
    for parameter in network.parameters():
        parameter.data.zero_()
    assert all(torch.equal(before[name], tensor) for name, tensor in tiny_model.state_dict().items())


def test_a_model_that_is_its_own_head_is_replaced_whole():
    network = copy_with_head(Classifier(nn.Linear(4, 3)), nn.Linear(4, 2))
    assert network(torch.rand(5, 4)).shape == (5, 2)


def test_a_setting_that_ends_in_an_underscore_is_not_forgotten_by_the_fit(tiny_model, tiny_images):
    detector = GCPL(lambda_=0.5, training=ClassifierTraining(epochs=1, batch_size=32))
    assert detector.fit(tiny_model, tiny_images, show_progress=False).lambda_ == 0.5


class Pause(nn.Module):
    """Lets another thread in, in the middle of a pass."""

    def forward(self, x):
        time.sleep(0.001)
        return x


@pytest.mark.parametrize("kind", [GeneralizedODIN, GCPL])
def test_two_threads_may_ask_one_detector(tiny_model, tiny_images, tmp_path, kind):
    x, c = tiny_images
    classifier = Classifier(nn.Sequential(Pause(), *tiny_model[:3], Pause(), *tiny_model[3:]))
    fitted = kind(training=ClassifierTraining(epochs=1, batch_size=32)).fit(classifier, (x, c), show_progress=False)
    fitted.save(tmp_path / "d")
    detector = load(tmp_path / "d", classifier)
    parts = [x[i : i + 5] for i in range(0, 60, 5)]
    alone = [fitted.score(part) for part in parts]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(detector.score, parts))
    assert np.array_equal(together, alone)
    assert all(torch.equal(tensor, fitted.state()[name]) for name, tensor in detector.state().items())


@pytest.mark.parametrize("kind", [GCPL, GeneralizedODIN])
def test_to_load_one_without_its_classifier_is_refused_with_the_way_out(kind, tiny_classifier, tiny_images, tmp_path):
    kind(training=ClassifierTraining(epochs=1)).fit(tiny_classifier, tiny_images, show_progress=False).save(tmp_path / "d")
    with pytest.raises(NotFittedError, match=r"is a copy of its classifier; load it with bal.load\(path, classifier\)"):
        load(tmp_path / "d")
