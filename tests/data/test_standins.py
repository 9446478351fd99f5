import pytest
import torch

from bal.data.standins import STAND_INS, blur, channel_swap, inversion, jigsaw, mean_of_two, stand_ins
from bal.errors import ShapeError


@pytest.fixture
def images(generator):
    return torch.rand(12, 3, 6, 6, generator=generator)


@pytest.mark.parametrize("name", STAND_INS)
def test_every_stand_in_is_as_many_images_in_range_that_are_not_the_same(name, images, generator):
    made = STAND_INS[name](images, generator)
    assert made.shape == images.shape
    assert made.min() >= 0
    assert made.max() <= 1
    assert not any(torch.equal(a, b) for a, b in zip(made, images, strict=True))


def test_jigsaw_keeps_every_pixel(images, generator):
    made = jigsaw(images, generator)
    assert torch.equal(made.flatten(2).sort(2).values, images.flatten(2).sort(2).values)


def test_stand_ins_by_hand(generator):
    x = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 4, 4)
    assert torch.equal(mean_of_two(x, generator), torch.full((2, 1, 4, 4), 0.5))
    assert torch.equal(inversion(x, generator), 1 - x)
    assert torch.allclose(blur(x, generator), x), "a flat image has nothing to blur"
    colour = torch.arange(3.0).view(1, 3, 1, 1)
    assert channel_swap(colour, generator).flatten().tolist() == [2.0, 0.0, 1.0]


def test_grey_images_have_no_channels_to_swap_and_vectors_no_stand_ins(generator):
    assert "channel swap" not in stand_ins(torch.rand(3, 1, 8, 8), generator)
    with pytest.raises(ShapeError, match="made from images"):
        stand_ins(torch.rand(3, 8), generator)
