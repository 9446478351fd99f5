import pytest
import torch

from bal.discrimination import (
    RADIAL_START,
    CentredDiscriminator,
    ConcatenatingDiscriminator,
    Ensemble,
    PerClassDiscriminator,
    ProjectionDiscriminator,
    RadialDiscriminator,
)
from bal.discrimination.discriminator import quantile, typical_radius
from bal.seeding import make_generator

MEANS = torch.tensor([[0.0, 0.0], [4.0, 0.0]])


KINDS = {
    "concatenate": ConcatenatingDiscriminator,
    "per-class": PerClassDiscriminator,
    "projection": ProjectionDiscriminator,
    "centred": CentredDiscriminator,
    "radial": RadialDiscriminator,
}


def make(kind, *, means=MEANS, **options):
    sizes = {"means": means} if kind in ("centred", "radial") else {"dim": means.shape[1], "classes": len(means)}
    return KINDS[kind](**sizes, hidden=(8,), generator=make_generator(0), **options)


def test_the_radial_discriminator_starts_as_a_ball_round_each_class_mean():
    a, b = RADIAL_START
    f = torch.tensor([[1.0, 1.0], [1.0, 1.0], [4.0, 2.0]])
    logits = make("radial")(f, torch.tensor([0, 1, 1]))
    # |f - mean|^2 / m: (1 + 1) / 2 = 1, (9 + 1) / 2 = 5, (0 + 4) / 2 = 2
    assert logits.tolist() == pytest.approx([a - b, a - 5 * b, a - 2 * b])


@pytest.mark.parametrize("kind", KINDS)
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


def test_per_class_is_the_output_of_the_label():
    D, f, c = make("per-class"), torch.randn(5, 2, generator=make_generator(1)), torch.tensor([0, 1, 1, 0, 1])
    outputs = D.layers(f)
    assert D(f, c).tolist() == [outputs[i, c[i]].item() for i in range(5)]


def test_projection_is_psi_plus_the_inner_product_with_the_embedding():
    D, f, c = make("projection"), torch.randn(5, 2, generator=make_generator(1)), torch.tensor([0, 1, 1, 0, 1])
    phi = D.layers[:-1](f)  # (5, 8)
    (psi, *e), (bias, *biases) = D.layers[-1].weight, D.layers[-1].bias
    expected = [psi @ phi[i] + bias + e[c[i]] @ phi[i] + biases[c[i]] for i in range(5)]
    torch.testing.assert_close(D(f, c), torch.stack(expected))


def test_centred_sees_the_offset_and_its_mean_square_alone():
    D = make("centred")
    logits = D(torch.tensor([[1.0, 3.0], [5.0, 3.0]]), torch.tensor([0, 1]))  # both (1, 3) from their mean
    torch.testing.assert_close(logits, D.layers(torch.tensor([[1.0, 3.0, 5.0]])).squeeze(1).expand(2))  # (1 + 9) / 2 = 5


@pytest.mark.parametrize(("unit", "r"), [("unit", 1.0), ("mean", 4.0), ("median", 2.0), ("q95", 8.3)])
def test_the_radial_start_counts_in_typical_radii_of_the_id_features(unit, r):
    """Radii 1, 2 and 9: the 95 % quantile lies at 0.9 of the way from 2 to 9."""
    D = make("radial", start=(4.0, 2.0))
    f = torch.tensor([[1.0, 1.0], [2.0, 0.0], [7.0, 3.0]])  # (1 + 1) / 2, (4 + 0) / 2, (9 + 9) / 2
    c = torch.tensor([0, 0, 1])
    if unit != "unit":
        assert typical_radius(D.radius(f, c), unit) == pytest.approx(r)
    D.measure(f, c, unit)
    assert D(f, c).tolist() == pytest.approx([4 - 2 / r, 4 - 4 / r, 4 - 18 / r], rel=1e-5)


def test_the_evidence_stands_outside_the_radius_and_counts_from_the_mean_of_its_class():
    """Last coordinate: 5 where the class has 1 on average, so k * 4."""
    D = make("radial", means=torch.tensor([[0.0, 0.0, 1.0], [4.0, 0.0, 2.0]]), evidence_start=0.25)
    a, b = RADIAL_START
    f = torch.tensor([[1.0, 1.0, 5.0], [4.0, 2.0, 2.0]])
    assert D(f, torch.tensor([0, 1])).tolist() == pytest.approx([a - b + 0.25 * 4, a - 2 * b])
    assert [name for name, _ in D.named_parameters()][:3] == ["a", "b", "k"]
    assert "k" not in dict(make("radial").named_parameters())


def test_an_ensemble_gives_the_mean_logit():
    members = [make("radial", start=(1.0, 0.0)), make("radial", start=(4.0, 1.0))]
    f = torch.tensor([[1.0, 1.0]])  # radius 1
    assert Ensemble(members)(f, torch.tensor([0])).tolist() == pytest.approx([(1 + 3) / 2])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_dropout_and_spectral_norm(kind):
    D = make(kind, dropout=0.5, spectral_norm=True)
    assert any(isinstance(module, torch.nn.Dropout) for module in D.modules())
    assert any("parametrizations" in name for name in D.state_dict())
    f, c = torch.randn(5, 2, generator=make_generator(1)), torch.zeros(5, dtype=torch.int64)
    assert torch.isfinite(D.eval()(f, c)).all()


def test_a_quantile_has_the_bits_of_torchs_own(generator):
    for rows in (*range(1, 40), 997, 60_000):
        values = torch.randn(rows, generator=generator, dtype=torch.float64)
        for q in (0.0, 0.05, 0.3, 0.5, 0.95, 1.0):
            assert torch.equal(quantile(values, q), values.quantile(q)), (rows, q)
    assert quantile(torch.tensor([1.0, torch.nan, 2.0]), 0.1).isnan()


def test_the_typical_radius_of_more_rows_than_torchs_quantile_takes():
    rows = 2**24 + 1
    radius = torch.arange(rows, dtype=torch.float32).flip(0)
    assert typical_radius(radius, "median") == (rows - 1) / 2
