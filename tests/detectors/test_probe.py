import copy
import math

import pytest
import torch
from torch import nn

from bal.backbones import Classifier, DenseNetBC
from bal.detectors.probe import LOGITS, behaves_alike, made_up, probe
from bal.features import InputSpec

SPEC = InputSpec((6,), True, -2.0, 3.0)


def network(activation=nn.ReLU, classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), activation(), nn.Dropout(0.5), nn.Linear(8, classes))


@pytest.mark.parametrize("low", [-2.0, 0.0, -1e38])
def test_made_up_inputs_have_the_shape_and_range_of_the_fit_and_are_always_the_same(low):
    x = made_up(InputSpec((3, 8, 8), True, low, 1e38 if low < -9 else 3.0))
    assert x.shape == (2, 3, 8, 8)
    assert x.dtype == torch.float32
    assert low <= x.min() < x.max() <= (1e38 if low < -9 else 3.0)
    assert torch.equal(made_up(SPEC), made_up(SPEC))
    assert made_up(InputSpec((), True)).tolist() == pytest.approx([0.618034, 0.236068])


def test_made_up_token_ids_are_zero_and_one():
    x = made_up(InputSpec((20,), False))
    assert x.dtype == torch.int64
    assert x.unique().tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_same_network_behaves_alike_in_any_mode_and_precision(dtype):
    classifier = Classifier(network().to(dtype))
    told = probe(classifier, SPEC)
    assert len(told) == 2
    assert behaves_alike(Classifier(copy.deepcopy(classifier.model).eval()), SPEC, told)
    assert behaves_alike(Classifier(copy.deepcopy(classifier.model).float()), SPEC, told), "rounding is no other behaviour"


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.Sigmoid, nn.Identity])
def test_another_activation_does_not(activation):
    told = probe(Classifier(network()), SPEC)
    assert not behaves_alike(Classifier(network(activation)), SPEC, told)


def test_many_logits_are_not_all_kept():
    assert {len(row) for row in probe(Classifier(network(classes=1000)), SPEC)} == {LOGITS}


def test_a_network_that_works_in_other_parts_behaves_alike(generator):
    classifier, spec = Classifier(DenseNetBC(depth=16, growth=4, generator=generator)), InputSpec((3, 32, 32), True, 0.0, 1.0)
    assert behaves_alike(Classifier(classifier.model.to(memory_format=torch.channels_last)), spec, probe(classifier, spec))


class Fussy(nn.Module):
    """Does something to the inputs that a file cannot keep."""

    def __init__(self, what):
        super().__init__()
        self.what, self.layer = what, nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(self.what(x))


def refuse(x):
    raise KeyError("no made-up inputs")


@pytest.mark.parametrize("what", [refuse, torch.rand_like, lambda x: x * math.nan], ids=["error", "random", "NaN"])
def test_a_network_without_a_lasting_answer_has_no_probe(what):
    assert probe(Classifier(Fussy(what)), SPEC) is None


def test_a_network_that_cannot_take_the_inputs_any_more_behaves_differently():
    told = probe(Classifier(network()), SPEC)
    assert not behaves_alike(Classifier(nn.Sequential(nn.Flatten(0), *network())), SPEC, told)


def test_without_known_inputs_there_is_no_probe():
    assert probe(Classifier(network()), None) is None
