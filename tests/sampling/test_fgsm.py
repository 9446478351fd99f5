import pytest
import torch
from torch import nn

from bal.discrimination import ConcatenatingDiscriminator, RadialDiscriminator
from bal.errors import SettingsError
from bal.sampling import (
    Epsilon,
    Generator,
    hard_features,
    hard_pairs,
    push_features,
    push_features_by_sign,
    push_noise,
    push_off,
)
from bal.seeding import make_generator


def linear_D(f, c):
    """logit = 2 f1 - 3 f2: its gradient is (2, -3) everywhere."""
    return f @ torch.tensor([2.0, -3.0])


def test_the_sign_push_by_hand():
    """Eq. fgsm1, right: f - eps sgn(2, -3) = f - eps (1, -1)."""
    pushed = push_features_by_sign(linear_D, torch.tensor([[1.0, 1.0], [0.0, 5.0]]), torch.zeros(2), torch.tensor([[0.5], [2.0]]))
    assert pushed.tolist() == [[0.5, 1.5], [-2.0, 7.0]]


def test_the_gradient_push_by_hand():
    """Eq. fgsm1, left: at logit 0 the sigmoid's slope is 1/4, so dD/df = (2, -3) / 4."""
    pushed = push_features(linear_D, torch.zeros(1, 2), torch.zeros(1), torch.tensor([[4.0]]))
    assert pushed.tolist() == [[-2.0, 3.0]]


@pytest.fixture
def networks():
    g = make_generator(5)
    D = ConcatenatingDiscriminator(dim=4, classes=3, hidden=(16,), generator=g).double()
    G = Generator(dim=4, classes=3, noise_dim=2, hidden=(8,), generator=g).double()
    c = torch.tensor([0, 1, 2, 1, 0])
    return D, G, torch.randn(5, 4, generator=g).double(), torch.randn(5, 2, generator=g).double(), c


def numeric_gradient(function, at, step=1e-6):
    """Central differences of each row's value, row by row."""
    gradient = torch.zeros_like(at)
    for i in range(at.shape[0]):
        for j in range(at.shape[1]):
            up, down = at.clone(), at.clone()
            up[i, j] += step
            down[i, j] -= step
            gradient[i, j] = (function(up)[i] - function(down)[i]) / (2 * step)
    return gradient.detach()


def test_pushes_follow_the_numeric_gradient_of_D(networks):
    D, G, f, z, c = networks
    epsilon = torch.full((5, 1), 0.3, dtype=torch.float64)
    slope_f = numeric_gradient(lambda f: torch.sigmoid(D(f, c)), f)
    torch.testing.assert_close(push_features(D, f, c, epsilon), f - 0.3 * slope_f, atol=1e-8, rtol=0)
    torch.testing.assert_close(push_features_by_sign(D, f, c, epsilon), f - 0.3 * slope_f.sign())
    slope_z = numeric_gradient(lambda z: torch.sigmoid(D(G(z, c), c)), z)  # Eq. fgsm2, the chain through G
    torch.testing.assert_close(push_noise(D, G, z, c, epsilon), z - 0.3 * slope_z, atol=1e-8, rtol=0)


@pytest.mark.parametrize("push", ["sign", "gradient", "noise"])
def test_a_small_push_lowers_D_on_every_row(networks, push):
    D, G, _, z, c = networks
    with torch.no_grad():
        before = D(G(z, c), c)
        after = D(hard_features(D, G, z, c, torch.full((5, 1), 1e-3, dtype=torch.float64), push=push), c)
    assert (after < before).all()


def test_the_push_works_where_the_sigmoid_is_saturated():
    far_inside = torch.zeros(1, 3)
    D = RadialDiscriminator(means=torch.zeros(2, 3), hidden=(4,), generator=make_generator(0))
    with torch.no_grad():
        D.a.fill_(200.0)  # sigmoid(200) is exactly 1 in float32: its gradient is 0, the logit's is not
    f = far_inside + 0.5
    assert torch.equal(push_features_by_sign(D, f, torch.zeros(1, dtype=torch.int64), torch.ones(1, 1)), f + 1)


def test_pushes_leave_no_gradients_in_the_networks(networks):
    D, G, f, z, c = networks
    epsilon = torch.ones(5, 1, dtype=torch.float64)
    push_features(D, f, c, epsilon), push_noise(D, G, z, c, epsilon)
    module: nn.Module
    for module in (D, G):
        assert all(p.grad is None for p in module.parameters())


def test_epsilon_is_a_gaussian_number_for_each_sample(generator):
    plain = Epsilon(mean=1.0, std=2.0, absolute=False).sample(20_000, generator, torch.device("cpu"))
    assert plain.shape == (20_000, 1)
    assert plain.mean().item() == pytest.approx(1.0, abs=0.05)
    assert plain.std().item() == pytest.approx(2.0, abs=0.05)
    folded = Epsilon().sample(20_000, generator, torch.device("cpu"))
    assert folded.min().item() >= 0
    assert folded.mean().item() == pytest.approx((2 / torch.pi) ** 0.5, abs=0.02)  # mean of |N(0, 1)|


def test_several_steps_share_the_length_of_one_and_follow_a_slope_that_turns():
    """The straight way down a linear D is as long; D = cos(pi f) has its valley at 1, which half steps cross."""
    start, c, epsilon = torch.tensor([[0.9, 0.0]]), torch.zeros(1), torch.tensor([[2.0]])
    torch.testing.assert_close(push_off(linear_D, start, c, epsilon, push="sign", steps=4), torch.tensor([[-1.1, 2.0]]))
    zigzag = push_off(lambda f, c: torch.cos(torch.pi * f).sum(1), start[:, :1], c, epsilon, push="sign", steps=4)
    assert zigzag.item() == pytest.approx(0.9), "to 1.4 and back, twice"


@pytest.mark.parametrize("push", ["sign", "gradient", "noise"])
def test_two_steps_are_one_step_of_half_the_length_done_twice(networks, push):
    D, G, _, z, c = networks
    half = torch.full((5, 1), 0.2, dtype=torch.float64)
    if push == "noise":
        expected = G(push_noise(D, G, push_noise(D, G, z, c, half), c, half), c)
    else:
        once = push_features_by_sign if push == "sign" else push_features
        expected = once(D, once(D, G(z, c), c, half), c, half)
    torch.testing.assert_close(hard_features(D, G, z, c, 2 * half, push=push, steps=2), expected)


def test_hard_pairs_start_from_generated_or_from_real_features_and_keep_their_labels(networks):
    D, G, f, z, c = networks
    epsilon, c_f = torch.full((5, 1), 0.1, dtype=torch.float64), torch.tensor([2, 2, 1, 0, 0])
    generated, c_z = hard_pairs(D, G, (f, c_f), (z, c), epsilon, push="sign", base="generated", steps=1)
    torch.testing.assert_close(generated, push_features_by_sign(D, G(z, c), c, epsilon))
    assert torch.equal(c_z, c)
    real, c_real = hard_pairs(D, G, (f, c_f), (z, c), epsilon, push="sign", base="real", steps=1)
    torch.testing.assert_close(real, push_features_by_sign(D, f, c_f, epsilon))
    assert torch.equal(c_real, c_f)


def test_a_relative_epsilon_counts_in_within_class_spreads():
    """Classes at 0 and 100, each +-3 round its mean: the spread is 3, however far apart the classes are."""
    f, c = torch.tensor([[-3.0], [3.0], [97.0], [103.0]]), torch.tensor([0, 0, 1, 1])
    assert Epsilon().unit(f, c) == 1.0
    assert Epsilon(relative=True).unit(f, c) == pytest.approx(3.0)
    plain = Epsilon().sample(7, make_generator(0), torch.device("cpu"))
    assert torch.equal(Epsilon().sample(7, make_generator(0), torch.device("cpu"), unit=3.0), 3 * plain)
    with pytest.raises(SettingsError, match="relative must be True or False"):
        Epsilon(relative="yes")
