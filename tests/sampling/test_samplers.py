import math

import pytest
import torch

from bal.features import Uniform
from bal.sampling import CoordinateShuffle, Gaussian, Interpolation, Mixture, RandomScaleGaussian
from bal.sampling.samplers import rows_of_other_classes


@pytest.fixture
def pairs(generator):
    c = torch.arange(3000) % 3
    spread = torch.tensor([1.0, 2.0, 0.5, 1.5])
    f = 10 * torch.eye(3, 4)[c] + spread * torch.randn(3000, 4, generator=generator)
    return f, c


SAMPLERS = [Uniform(), Gaussian(), RandomScaleGaussian(), Interpolation(), CoordinateShuffle()]


@pytest.mark.parametrize("sampler", [*SAMPLERS, Mixture((Uniform(), Gaussian())), Mixture(tuple(SAMPLERS))])
def test_every_sampler_gives_as_many_pairs_as_the_batch_has(pairs, generator, sampler):
    f, c = pairs
    f_hat, c_hat = sampler.fit(f, c).sample(f[:32], c[:32], classes=3, generator=generator)
    assert f_hat.shape == (32, 4)
    assert f_hat.dtype == f.dtype
    assert c_hat.shape == (32,)
    assert ((c_hat >= 0) & (c_hat < 3)).all()
    assert torch.isfinite(f_hat).all()


def test_the_gaussian_sampler_draws_from_the_class_gaussians_when_it_has_one_candidate(pairs, generator):
    f, c = pairs
    f_hat, c_hat = Gaussian(candidates=1).fit(f, c).sample(f, c, classes=3, generator=generator)
    offset = f_hat - 10 * torch.eye(3, 4)[c_hat]
    torch.testing.assert_close(offset.std(0), torch.tensor([1.0, 2.0, 0.5, 1.5]), atol=0.08, rtol=0)


def test_features_that_do_not_vary_within_their_class_are_drawn_at_its_mean(generator):
    f, c = torch.eye(3, 4).repeat(5, 1), torch.arange(15) % 3
    f_hat, c_hat = Gaussian().fit(f, c).sample(f, c, classes=3, generator=generator)
    torch.testing.assert_close(f_hat, torch.eye(3, 4)[c_hat])


def test_more_candidates_mean_lower_density(pairs, generator):
    f, c = pairs
    lengths = []
    for candidates in (1, 20):
        sampler = Gaussian(candidates=candidates).fit(f, c)
        f_hat, c_hat = sampler.sample(f, c, classes=3, generator=generator)
        e = torch.linalg.solve(sampler.factor_, (f_hat - sampler.means_[c_hat]).T)  # f-hat = mean + L e
        lengths.append(e.square().sum(0).mean().item())
    assert lengths[0] == pytest.approx(4, abs=0.3)  # E|e|^2 = dim
    assert lengths[1] > 2 * lengths[0]


def test_random_scales_are_log_uniform_times_the_within_class_spread(pairs, generator):
    f, c = pairs
    sampler = RandomScaleGaussian(low=0.5, high=8.0).fit(f, c)
    assert sampler.spread_ == pytest.approx(math.sqrt((1 + 4 + 0.25 + 2.25) / 4), rel=0.05)
    wide = f[:1].expand(4000, 4)
    f_hat, c_hat = sampler.sample(wide, c[:1].expand(4000), classes=3, generator=generator)
    scale = ((f_hat - wide).square().mean(1).sqrt() / sampler.spread_).log()
    assert torch.all(c_hat == c[0])
    assert scale.median().item() == pytest.approx((math.log(0.5) + math.log(8.0)) / 2, abs=0.15)


def test_a_mixture_takes_turns(pairs, generator):
    f, c = pairs
    near = RandomScaleGaussian(low=1e-4, high=2e-4)
    f_hat, _ = Mixture((near, Uniform())).fit(f, c).sample(f[:100], c[:100], classes=3, generator=generator)
    distance = (f_hat - f[:100]).norm(dim=1)
    assert distance[0::2].max() < 0.01
    assert distance[1::2].min() > 0.1


def test_interpolated_pairs_lie_between_two_classes_and_keep_their_label(generator):
    """Class k sits at the corner 10 e_k: a mixture has 10 (1 - lambda) at its own coordinate and 10 lambda at one other."""
    c = torch.arange(3000) % 3
    f = 10 * torch.eye(3)[c]
    f_hat, c_hat = Interpolation(low=0.2, high=0.6).fit(f, c).sample(f, c, classes=3, generator=generator)
    own = f_hat.gather(1, c.unsqueeze(1)).squeeze(1)
    others = f_hat.sum(1) - own
    assert torch.equal(c_hat, c)
    torch.testing.assert_close(own + others, torch.full((3000,), 10.0))
    assert torch.all((f_hat > 0).sum(1) == 2), "exactly one other class"
    assert 2.0 <= others.min() < 2.1
    assert 5.9 < others.max() <= 6.0
    assert others.mean().item() == pytest.approx(4, abs=0.1)


def test_partners_are_drawn_uniformly_from_the_rows_of_other_classes(generator):
    c = torch.tensor([2, 0, 0, 1, 2, 0])
    drawn = torch.stack([rows_of_other_classes(c, generator) for _ in range(6000)])  # (draws, rows)
    for row, label in enumerate(c.tolist()):
        allowed = [i for i in range(6) if c[i] != label]
        shares = drawn[:, row].bincount(minlength=6) / 6000
        expected = [1 / len(allowed) if i in allowed else 0 for i in range(6)]
        assert shares.tolist() == pytest.approx(expected, abs=0.03)


def test_shuffled_coordinates_keep_their_values_and_lose_their_company(pairs, generator):
    f, c = pairs
    f_hat, c_hat = CoordinateShuffle().fit(f, c).sample(f, c, classes=3, generator=generator)
    assert torch.equal(f_hat.sort(0).values, f.sort(0).values), "each coordinate has the values it had"
    assert torch.equal(c_hat, c)
    assert torch.corrcoef(f[:, :2].T)[0, 1] < -0.3, "two coordinates never both high"
    assert abs(torch.corrcoef(f_hat[:, :2].T)[0, 1].item()) < 0.06
