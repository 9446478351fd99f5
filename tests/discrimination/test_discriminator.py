import pytest
import torch

from bal.discrimination import ConcatenatingDiscriminator, RadialDiscriminator
from bal.discrimination.discriminator import RADIAL_START
from bal.seeding import make_generator

MEANS = torch.tensor([[0.0, 0.0], [4.0, 0.0]])


def make(kind):
    if kind == "radial":
        return RadialDiscriminator(means=MEANS, hidden=(8,), generator=make_generator(0))
    return ConcatenatingDiscriminator(dim=2, classes=2, hidden=(8,), generator=make_generator(0))


def test_the_radial_discriminator_starts_as_a_ball_round_each_class_mean():
    a, b = RADIAL_START
    f = torch.tensor([[1.0, 1.0], [1.0, 1.0], [4.0, 2.0]])
    logits = make("radial")(f, torch.tensor([0, 1, 1]))
    # |f - mean|^2 / m: (1 + 1) / 2 = 1, (9 + 1) / 2 = 5, (0 + 4) / 2 = 2
    assert logits.tolist() == pytest.approx([a - b, a - 5 * b, a - 2 * b])


@pytest.mark.parametrize("kind", ["radial", "concatenate"])
def test_the_answer_depends_on_the_label_and_a_row_on_itself_alone(kind):
    D = make(kind)
    f = torch.randn(6, 2, generator=make_generator(1))
    zeros, ones = torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    assert D(f, zeros).shape == (6,)
    assert not torch.allclose(D(f, zeros), D(f, ones))
    torch.testing.assert_close(D(f[2:3], zeros[:1]), D(f, zeros)[2:3])


def test_learning_bends_the_ball():
    D = make("radial")
    f, c = torch.randn(64, 2, generator=make_generator(2)), torch.zeros(64, dtype=torch.int64)
    right = (f[:, 0] > 0).float()  # a half plane, which no ball round 0 can follow
    optimiser = torch.optim.Adam(D.parameters(), lr=1e-2)
    for _ in range(200):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(D(f, c), right)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1
