import pytest
import torch

from bal.backbones import Classifier, ResNet18, ResNet34
from bal.seeding import make_generator


@pytest.mark.parametrize(
    ("channels", "size", "stem", "width", "penultimate", "dim"),
    [(1, 28, "3x3", 4, None, 32), (3, 32, "3x3", 4, 2, 2), (1, 28, "7x7", 8, 3, 3), (3, 32, "7x7", 4, 64, 64)],
)
def test_resnet_has_the_asked_penultimate_size(generator, channels, size, stem, width, penultimate, dim):
    model = ResNet18(channels=channels, classes=7, width=width, stem=stem, penultimate=penultimate, generator=generator)
    f, logits = Classifier(model)(torch.rand(2, channels, size, size))
    assert f.shape == (2, dim)
    assert logits.shape == (2, 7)


def test_full_width_is_the_resnet_18_of_the_literature(generator):
    """11.69 M parameters for ImageNet: 11.69 M - 1000 classes + 10 classes = 11.18 M with the 7x7 stem and 3 channels."""
    model = ResNet18(channels=3, stem="7x7", generator=generator)
    assert sum(p.numel() for p in model.parameters()) == 11_689_512 - 990 * 513


def test_the_same_seed_gives_the_same_weights_and_the_global_generator_is_left_alone():
    state = torch.random.get_rng_state()
    a, b = (ResNet18(width=4, generator=make_generator(3)) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert torch.equal(state, torch.random.get_rng_state())


def test_resnet_34_is_that_of_the_literature(generator):
    """21.80 M parameters with 1,000 classes and the 7x7 stem."""
    model = ResNet34(channels=3, stem="7x7", generator=generator)
    assert sum(p.numel() for p in model.parameters()) == 21_797_672 - 990 * 513
