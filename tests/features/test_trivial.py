import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bal.features import Uniform, batch_bounds
from bal.seeding import make_generator


def test_bounds_by_hand():
    """Eqs. bound1 to bound4 on three features of two dimensions."""
    a, b = batch_bounds(torch.tensor([[1.0, -2.0], [0.5, 4.0], [3.0, 0.0]]))
    assert a.tolist() == [0.5, -2.0]
    assert b.tolist() == [3.0, 4.0]


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(1, 40), dim=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_the_bounds_contain_the_batch_tightly_and_trivial_ood_stays_inside(rows, dim, seed):
    g = make_generator(seed)
    f = 10 * torch.randn(rows, dim, generator=g)
    a, b = batch_bounds(f)
    assert (a <= f).all()
    assert (f <= b).all()
    assert ((f == a).any(0) & (f == b).any(0)).all(), "each bound is reached by some feature"
    f_hat, c_hat = Uniform().fit(f, torch.zeros(rows)).sample(f, torch.zeros(rows), classes=5, generator=g)
    assert f_hat.shape == f.shape
    slack = 1e-5 * (b - a).abs().max()
    assert (a - slack <= f_hat).all()
    assert (f_hat <= b + slack).all()
    assert c_hat.shape == (rows,)
    assert ((c_hat >= 0) & (c_hat < 5)).all()


def test_trivial_ood_is_uniform_in_the_box_with_uniform_labels(generator):
    f = torch.tensor([[0.0, -1.0], [2.0, 3.0]]).repeat(5000, 1)
    f_hat, c_hat = Uniform().sample(f, torch.zeros(10_000), classes=4, generator=generator)
    torch.testing.assert_close(f_hat.mean(0), torch.tensor([1.0, 1.0]), atol=0.05, rtol=0)  # middle of the box
    torch.testing.assert_close(f_hat.var(0), torch.tensor([4 / 12, 16 / 12]), atol=0.05, rtol=0)  # width^2 / 12
    assert c_hat.bincount(minlength=4).min() > 2300
