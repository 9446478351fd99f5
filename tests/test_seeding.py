import torch
from torch import nn

from bal.seeding import make_generator, seeded


def test_construction_depends_on_the_generator_alone_and_leaves_the_global_one():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    with seeded(make_generator(4)):
        a = nn.Linear(3, 3)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    with seeded(make_generator(4)):
        b = nn.Linear(3, 3)
    assert torch.equal(a.weight, b.weight)


def test_two_networks_of_one_generator_differ():
    g = make_generator(0)
    with seeded(g):
        a = nn.Linear(3, 3)
    with seeded(g):
        b = nn.Linear(3, 3)
    assert not torch.equal(a.weight, b.weight)
