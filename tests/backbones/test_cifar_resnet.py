import pytest
import torch

from bal.backbones import CifarResNet, Classifier
from bal.backbones.cifar_resnet import PaddedShortcut
from bal.errors import SettingsError


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (56, 853_018)])
def test_the_parameters_are_those_of_he_et_al(generator, depth, parameters):
    """0.27 M and 0.85 M in their Table 6."""
    model = CifarResNet(depth=depth, generator=generator)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert Classifier(model)(torch.rand(2, 3, 32, 32))[0].shape == (2, 64)


def test_the_shortcut_takes_every_second_pixel_and_pads_channels_on_both_sides():
    x = torch.arange(2 * 4 * 4.0).reshape(1, 2, 4, 4)
    y = PaddedShortcut(2, 2)(x)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert y[:, [0, 3]].abs().sum() == 0


def test_a_depth_that_does_not_divide_is_refused(generator):
    with pytest.raises(SettingsError, match=r"6 n \+ 2"):
        CifarResNet(depth=21, generator=generator)
