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


@pytest.mark.parametrize(("rows", "sizes"), [(16, [8, 8]), (17, [8, 9]), (18, [8, 8, 2])])
def test_a_last_batch_of_one_row_joins_the_one_before_it(rows, sizes):
    """Batch norm has no variance of one row."""
    model, seen = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)), []
    model.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    data = torch.randn(rows, 4), torch.arange(rows) % 3
    train_classifier(model, data, ClassifierTraining(epochs=1, batch_size=8), generator=make_generator(0))
    assert seen == sizes


def test_batches_of_one_row_that_were_asked_for_are_kept():
    model, seen = torch.nn.Linear(4, 3), []
    model.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    data = torch.randn(3, 4), torch.arange(3)
    train_classifier(model, data, ClassifierTraining(epochs=1, batch_size=1), generator=make_generator(0))
    assert seen == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_inputs_are_given_in_the_precision_of_the_network(dtype):
    model, data = torch.nn.Linear(4, 3).to(torch.bfloat16), (torch.randn(12, 4).to(dtype), torch.arange(12) % 3)
    train_classifier(model, data, ClassifierTraining(epochs=1, batch_size=4), generator=make_generator(0))
    assert model.weight.dtype == torch.bfloat16
