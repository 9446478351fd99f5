import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bal.errors import BalError
from bal.features import NormalisationName, class_means, evidence_of, make_normalisation, unit_rows, within_spread
from bal.features.normalisation import SHRINKAGE, Residual
from bal.seeding import make_generator

NAMES = get_args(NormalisationName)


def skewed(rows=400, dim=6, classes=3, seed=0):
    g = make_generator(seed)
    mix = torch.randn(dim, dim, generator=g)
    c = torch.arange(rows) % classes
    return 5 * torch.randn(classes, dim, generator=g)[c] + torch.randn(rows, dim, generator=g) @ mix, c


def test_whitening_makes_the_within_class_covariance_the_identity_up_to_the_shrinkage():
    f, c = skewed()
    y = make_normalisation("whiten", 6).fit(f, c)(f).double().numpy()
    c = c.numpy()
    centred = np.concatenate([y[c == k] - y[c == k].mean(0) for k in range(3)])
    within = centred.T @ centred / len(y)
    raw = np.concatenate([(f[c == k] - f[c == k].mean(0)).double().numpy() for k in range(3)])
    values = np.linalg.eigvalsh(raw.T @ raw / len(raw))
    expected = np.sort(values / (values + SHRINKAGE * values.mean()))  # what shrinkage leaves of each variance 1
    np.testing.assert_allclose(np.linalg.eigvalsh(within), expected, atol=1e-5)


def test_standardising_gives_mean_0_and_deviation_1_and_leaves_constant_coordinates():
    f, c = skewed()
    f[:, 2] = 7.0
    y = make_normalisation("standardise", 6).fit(f, c)(f)
    moving = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(y[:, moving].std(0, correction=0), 1, atol=1e-5)
    assert torch.all(y[:, 2] == 0)


@pytest.mark.parametrize("name", ["identity", "standardise", "whiten"])
def test_affine_steps_can_be_undone(name):
    f, c = skewed()
    step = make_normalisation(name, 6).fit(f, c)
    torch.testing.assert_close(step.inverse(step(f)), f, rtol=1e-3, atol=1e-3)


def test_l2_says_that_it_cannot_be_undone():
    with pytest.raises(BalError, match="cannot be undone"):
        make_normalisation("l2+whiten", 2).inverse(torch.zeros(1, 2))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 1.0, 1e4]), with_evidence=st.booleans())
def test_every_normalisation_is_finite_even_on_dead_and_repeated_features(name, seed, scale, with_evidence):
    g = make_generator(seed)
    f = scale * torch.relu(torch.randn(10, 6, generator=g))
    f[:, 0], f[3] = 0.0, f[4]  # a dead neuron, a repeated row
    step = make_normalisation(name, 6 - with_evidence, with_evidence=with_evidence).fit(f, torch.arange(10) % 2)
    assert torch.isfinite(step(torch.cat([f, torch.zeros(1, 6)]))).all()


@pytest.mark.parametrize("name", ["l2+whiten", "l2+whiten+residual", "l2+residual+whiten"])
@pytest.mark.parametrize("with_evidence", [False, True])
def test_a_saved_normalisation_gives_the_same_features(name, with_evidence):
    f, c = skewed()
    fitted, fresh = (make_normalisation(name, 6 - with_evidence, with_evidence=with_evidence) for _ in range(2))
    fitted.fit(f, c)
    assert fresh(f).shape == (400, 6 + fresh.added)
    fresh.load_state_dict(fitted.state_dict())
    assert torch.equal(fresh(f), fitted(f))


def test_class_means_by_hand():
    f = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
    assert class_means(f, torch.tensor([0, 0, 2]), 3).tolist() == [[2.0, 0.0], [0.0, 0.0], [0.0, 5.0]]


def test_the_residual_is_the_distance_off_the_principal_plane():
    """ID features lie in the plane of the first two axes but for a little noise along the third; the fourth never varies."""
    g = make_generator(0)
    f = torch.randn(2000, 4, generator=g) * torch.tensor([3.0, 2.0, 0.1, 0.0])
    c = torch.arange(2000) % 2
    step = Residual(4).fit(f, c)
    y = step(f)
    assert torch.equal(y[:, :4], f)
    assert torch.equal(step.inverse(y), f)
    assert y[:, 4].mean().item() == pytest.approx(0, abs=1e-3)
    assert y[:, 4].std().item() == pytest.approx(within_spread(f, c), rel=1e-2)
    off = step.distance(torch.tensor([[5.0, -7.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0]]) + f.mean(0))
    assert off.tolist() == pytest.approx([0, 5], abs=0.05)


def test_a_residual_that_hardly_varies_is_not_blown_up():
    f = torch.randn(100, 3, generator=make_generator(0)) * torch.tensor([1.0, 1.0, 0.0])
    step = Residual(3).fit(f, torch.arange(100) % 2)
    assert step(torch.tensor([[0.0, 0.0, 1.0]]))[0, 3].item() <= 1 / SHRINKAGE + 1


def test_evidence_by_hand():
    f, logits = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 1.0, 1.0]])
    assert evidence_of("energy", f, logits).item() == pytest.approx(1 + math.log(3))
    assert evidence_of("length", f, logits).item() == pytest.approx(math.log(5))
    assert evidence_of("none", f, logits).shape == (1, 0)
    assert torch.isfinite(evidence_of("length", torch.zeros(1, 2), logits)).all()


def test_the_evidence_stays_by_itself_and_is_cut_at_the_most_of_id():
    """It is 0, 2 in one class and 4, 6 in the other: mean 3, and 1 off the mean of its class everywhere."""
    f = torch.tensor([[1.0, 0.0, 0.0], [0.0, 9.0, 2.0], [-7.0, 0.0, 4.0], [0.0, 2.0, 6.0]])
    step = make_normalisation("l2", 2, with_evidence=True).fit(f, torch.tensor([0, 0, 1, 1]))
    y = step(f)
    assert y[:, 2].tolist() == pytest.approx([-3, -1, 1, 3])
    torch.testing.assert_close(y[:, :2], torch.nn.functional.normalize(f[:, :2]))
    assert step(torch.tensor([[1.0, 0.0, 1e9], [1.0, 0.0, -7.0]]))[:, 2].tolist() == pytest.approx([3, -10])


def test_evidence_is_undone_with_the_rest():
    f, c = skewed()
    step = make_normalisation("whiten", 5, with_evidence=True).fit(f, c)
    torch.testing.assert_close(step.inverse(step(f)), f, rtol=1e-3, atol=1e-3)


def test_evidence_that_never_varies_is_not_blown_up():
    f = torch.randn(100, 5, generator=make_generator(0))
    f[:, -1] = 2.0 + 1e-7 * f[:, -1]
    y = make_normalisation("identity", 4, with_evidence=True).fit(f, torch.arange(100) % 2)(f)
    assert y[:, 4].abs().max().item() < 1e-2


def test_the_within_class_spread_against_a_loop():
    f, c = skewed()
    squares = [((f[c == k] - f[c == k].mean(0)) ** 2).sum().item() for k in range(3)]
    assert within_spread(f, c) == pytest.approx(math.sqrt(sum(squares) / f.numel()), rel=1e-5)


def test_rows_of_length_1_have_the_bits_of_torchs_own_unless_their_length_overflows(generator):
    f = torch.randn(500, 33, generator=generator) * 10 ** torch.linspace(-8, 17, 500).unsqueeze(1)
    f[7] = 0
    for ordinary in (f, f[:, :-1], f.T, f.double()):
        assert torch.equal(unit_rows(ordinary), torch.nn.functional.normalize(ordinary, dim=1))
    huge = torch.tensor([[1e20, 1e20], [3e38, 0.0], [-3e38, 3e38]])
    half = math.sqrt(0.5)
    torch.testing.assert_close(unit_rows(huge), torch.tensor([[half, half], [1.0, 0.0], [-half, half]]))


def test_l2_keeps_the_direction_of_a_huge_feature():
    """Its square is more than float32 holds."""
    l2 = make_normalisation("l2", 2)
    torch.testing.assert_close(l2(torch.tensor([[3e20, 4e20]])), torch.tensor([[0.6, 0.8]]))
