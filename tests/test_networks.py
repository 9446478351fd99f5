import copy

import pytest
import torch
from torch import nn

from bal.networks import mlp
from bal.seeding import make_generator, seeded


def make(**options):
    with seeded(make_generator(0)):
        return mlp(6, (16, 8), 2, **options)


def test_plain_layers_have_neither_norm_nor_dropout():
    kinds = [type(layer) for layer in make()]
    assert kinds == [nn.Linear, nn.LeakyReLU, nn.Linear, nn.LeakyReLU, nn.Linear]


def test_dropout_follows_every_hidden_layer():
    kinds = [type(layer) for layer in make(layer_norm=True, dropout=0.3)]
    hidden = [nn.Linear, nn.LayerNorm, nn.LeakyReLU, nn.Dropout]
    assert kinds == [*hidden, *hidden, nn.Linear]


def test_spectral_norm_makes_the_largest_singular_value_of_hidden_layers_1():
    layers = make(spectral_norm=True)
    x = torch.randn(4, 6, generator=make_generator(1))
    for _ in range(50):  # a power iteration in each call in training mode
        layers(x)
    values = [torch.linalg.matrix_norm(layer.weight.detach(), 2).item() for layer in layers if isinstance(layer, nn.Linear)]
    assert values[:2] == pytest.approx([1, 1], abs=1e-3)
    assert values[2] != pytest.approx(1, abs=1e-3), "the last layer is free"


def test_layers_with_spectral_norm_can_be_copied_and_do_not_change_in_use():
    layers = make(spectral_norm=True, dropout=0.5).eval()
    x = torch.randn(4, 6, generator=make_generator(1))
    twin = copy.deepcopy(layers)
    assert torch.equal(layers(x), layers(x))
    assert torch.equal(layers(x), twin(x))
    fresh = mlp(6, (16, 8), 2, spectral_norm=True, dropout=0.5).eval()
    fresh.load_state_dict(layers.state_dict())
    assert torch.equal(layers(x), fresh(x))
