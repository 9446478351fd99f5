import pytest
import torch
from torch import nn

from bal.backbones import Classifier
from bal.evaluation import search_odin


@pytest.fixture
def network(tiny_images):
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    return Classifier(model)


def test_the_search_uses_id_data_alone_and_gives_a_setting_of_the_grid(network, tiny_images):
    odin = search_odin(network, tiny_images, temperatures=(1.0, 100.0), epsilons=(0.0, 1e-3), rows=30)
    assert odin.temperature in (1.0, 100.0)
    assert odin.epsilon in (0.0, 1e-3)
    again = search_odin(network, tiny_images, temperatures=(1.0, 100.0), epsilons=(0.0, 1e-3), rows=30)
    assert (odin.temperature, odin.epsilon) == (again.temperature, again.epsilon)


def test_with_ood_data_the_choice_is_the_best_on_it(network, tiny_images):
    odin = search_odin(network, tiny_images, ood_data=torch.rand(30, 1, 4, 4), temperatures=(1.0,), epsilons=(0.0, 1e-3))
    assert odin.temperature == 1.0
