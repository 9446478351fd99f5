import pytest
import torch

from bal.backbones import Classifier, ClassifierTraining, ResNet18, train_classifier
from bal.errors import DataError
from bal.features import extract
from bal.seeding import make_generator

SETTINGS = ClassifierTraining(epochs=30, batch_size=20, learning_rate=5e-3)


def test_training_lowers_the_loss_and_learns_the_classes(tiny_images):
    g = make_generator(0)
    model = ResNet18(width=4, classes=3, generator=g)
    losses = train_classifier(model, tiny_images, SETTINGS, generator=g)
    assert len(losses) == 30
    assert losses[-1] < 0.3 * losses[0]
    assert not model.training
    assert extract(Classifier(model), tiny_images).accuracy() > 0.95


def test_the_same_seed_trains_the_same_weights(tiny_images):
    """Fault 25."""
    models = []
    for _ in range(2):
        g = make_generator(1)
        models.append(ResNet18(width=2, classes=3, generator=g))
        train_classifier(models[-1], tiny_images, ClassifierTraining(epochs=2, batch_size=20), generator=g)
    a, b = (model.state_dict() for model in models)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("data", "words"), [("x", "needs labels"), ("empty", "empty")])
def test_training_needs_labelled_rows(tiny_images, data, words):
    g = make_generator(0)
    x, c = tiny_images
    with pytest.raises(DataError, match=words):
        train_classifier(ResNet18(width=2, generator=g), x if data == "x" else (x[:0], c[:0]), SETTINGS, generator=g)
