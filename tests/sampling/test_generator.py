import torch

from bal.sampling import Generator
from bal.seeding import make_generator


def test_the_generator_depends_on_noise_and_label_and_on_its_seed_alone():
    G = Generator(dim=5, classes=3, noise_dim=4, hidden=(8, 8), generator=make_generator(0))
    twin = Generator(dim=5, classes=3, noise_dim=4, hidden=(8, 8), generator=make_generator(0))
    z = G.noise(6, make_generator(1))
    zeros, ones = torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    assert G(z, zeros).shape == (6, 5)
    assert torch.equal(G(z, zeros), twin(z, zeros))
    assert not torch.allclose(G(z, zeros), G(z, ones))
    assert not torch.allclose(G(z, zeros), G(z + 1, zeros))


def test_noise_is_standard_normal(generator):
    G = Generator(dim=2, classes=2, noise_dim=10, hidden=(2,), generator=generator)
    z = G.noise(5000, generator)
    assert z.shape == (5000, 10)
    assert abs(z.mean().item()) < 0.02
    assert abs(z.std().item() - 1) < 0.02
