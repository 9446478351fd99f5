import pytest
import torch

from bal.backbones import Classifier, DenseNetBC
from bal.errors import SettingsError


def test_depth_100_and_growth_12_is_the_network_of_the_paper(generator):
    """0.77 M parameters (0.8 M in Huang et al., Table 2) and a feature of 342 numbers: 24 -> 216 -> 108 -> 300 -> 150 -> 342."""
    model = DenseNetBC(generator=generator)
    assert sum(p.numel() for p in model.parameters()) == 769_162
    f, logits = Classifier(model)(torch.rand(2, 3, 32, 32))
    assert f.shape == (2, 342)
    assert logits.shape == (2, 10)
    assert (f >= 0).all(), "the feature is behind a ReLU"


def test_a_depth_that_does_not_divide_is_refused(generator):
    with pytest.raises(SettingsError, match=r"6 n \+ 4"):
        DenseNetBC(depth=99, generator=generator)
