"""Each loss of Sec. 4.3 against numbers worked by hand, with logits where D = sigmoid(logit) is 1/4, 1/2 and 3/4."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from bal.discrimination import losses
from bal.errors import DataError
from bal.seeding import make_generator

QUARTER, HALF, THREE_QUARTERS = -math.log(3), 0.0, math.log(3)


def logits(*values):
    return tensor(values, dtype=torch.float64)


def test_vanilla_loss_by_hand():
    """L_t = -mean(log 3/4, log 1/2) - mean(log(1 - 1/4), log(1 - 1/2))."""
    value = losses.vanilla_loss(logits(THREE_QUARTERS, HALF), logits(QUARTER, HALF))
    assert value.item() == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2 * 2)


def test_shuffle_loss_by_hand_as_printed_and_bounded():
    """Printed: log 1/4 - log 3/4 = -log 3. Bounded: -log(1 - 1/4) - log 3/4 = -2 log 3/4."""
    positive, shuffled = logits(THREE_QUARTERS), logits(QUARTER)
    assert losses.shuffle_loss(positive, shuffled, form="printed").item() == pytest.approx(-math.log(3))
    assert losses.shuffle_loss(positive, shuffled, form="bounded").item() == pytest.approx(-2 * math.log(0.75))


def test_uniform_loss_by_hand_as_printed_and_bounded():
    """Printed: 0.7 log 1/4 - log 1/2. Bounded: -0.7 log 3/4 - log 1/2."""
    positive, ood = logits(HALF), logits(QUARTER, QUARTER)
    assert losses.uniform_loss(positive, ood, form="printed").item() == pytest.approx(0.7 * math.log(0.25) - math.log(0.5))
    assert losses.uniform_loss(positive, ood, form="bounded").item() == pytest.approx(-0.7 * math.log(0.75) - math.log(0.5))
    assert losses.uniform_loss(positive, ood, lambda_c=0.0).item() == pytest.approx(-math.log(0.5))


def test_the_weight_of_generated_samples_by_hand():
    """L_t = -log 3/4 - w log(1 - 1/4)."""
    for weight in (0.0, 0.2, 1.0):
        value = losses.vanilla_loss(logits(THREE_QUARTERS), logits(QUARTER), fake_weight=weight)
        assert value.item() == pytest.approx(-(1 + weight) * math.log(0.75))


@pytest.mark.parametrize(("done", "weight"), [(0.0, 0.0), (0.1, 0.5), (0.2, 1.0), (0.9, 1.0)])
def test_the_warm_up_rises_linearly_and_stays(done, weight):
    assert losses.warmed(done, 0.2) == pytest.approx(weight)
    assert losses.warmed(done, 0.0) == 1.0


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("form", ["printed", "bounded"])
def test_the_share_of_hard_samples_weighs_the_mean_of_either_kind(share, form):
    positive, trivial, hard = logits(HALF), logits(QUARTER, HALF), logits(THREE_QUARTERS, HALF)
    weight = losses.share_weights(trivial, hard, share)
    value = losses.uniform_loss(positive, torch.cat([trivial, hard]), form=form, weight=weight)
    means = [losses.negative_term(kind, form).item() for kind in (trivial, hard)]
    assert value.item() == pytest.approx(0.7 * ((1 - share) * means[0] + share * means[1]) - math.log(0.5))


def test_the_gradient_penalty_is_the_squared_slope_by_finite_differences_and_can_be_learnt_from():
    weight = tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64, requires_grad=True)

    def D(f, c):
        return torch.tanh(f @ weight)[torch.arange(len(f)), c]

    f, c, step = tensor([[0.3, 0.1], [-0.2, 0.4]], dtype=torch.float64), tensor([0, 1]), 1e-6
    slopes = torch.stack([(D(f + step * e, c) - D(f - step * e, c)) / (2 * step) for e in torch.eye(2, dtype=torch.float64)], 1)
    penalty = losses.gradient_penalty(D, f, c)
    assert penalty.item() == pytest.approx(slopes.square().sum(1).mean().item(), rel=1e-6)
    assert torch.autograd.grad(penalty, weight)[0].abs().min() > 0
    assert not f.requires_grad


def test_discriminator_loss_is_the_plain_sum():
    """Eq. d_loss2."""
    assert losses.discriminator_loss(tensor(1.0), tensor(2.0), tensor(4.0)).item() == 7.0


def test_generator_loss_by_hand_as_printed_and_bounded():
    """Printed: log(1 - 1/4) + 0.01 * 5. Bounded: -log 1/4 + 0.01 * 5."""
    fake, distance = logits(QUARTER), tensor(5.0)
    assert losses.generator_loss(fake, distance, form="printed").item() == pytest.approx(math.log(0.75) + 0.05)
    assert losses.generator_loss(fake, distance, form="bounded").item() == pytest.approx(-math.log(0.25) + 0.05)


def test_the_printed_negative_term_has_no_floor_and_the_bounded_one_has():
    far = logits(-1e3)
    assert losses.negative_term(far, "printed").item() == pytest.approx(-1e3)
    assert losses.negative_term(far, "bounded").item() == 0.0


@pytest.mark.parametrize("form", ["printed", "bounded"])
def test_both_forms_want_D_lower_on_negatives_and_higher_on_positives(form):
    positive = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    negative = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    (losses.shuffle_loss(positive, negative, form=form) + losses.uniform_loss(positive, negative, form=form)).backward()
    assert (positive.grad < 0).all()  # gradient descent raises D(f; c)
    assert (negative.grad > 0).all()  # and lowers D on negatives


@pytest.mark.parametrize("form", ["printed", "bounded"])
def test_gradients_agree_with_finite_differences(form, generator):
    a, b = (torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(losses.vanilla_loss, (a, b))
    assert torch.autograd.gradcheck(lambda p, q: losses.shuffle_loss(p, q, form=form), (a, b))
    assert torch.autograd.gradcheck(lambda p, q: losses.uniform_loss(p, q, form=form), (a, b))
    assert torch.autograd.gradcheck(lambda p, q: losses.generator_loss(p, q.square().sum(), form=form), (a, b))


@pytest.mark.parametrize("logit", [-1e4, -100.0, 100.0, 1e4])
def test_losses_are_finite_where_the_sigmoid_saturates(logit):
    x = tensor([logit], requires_grad=True)
    total = (
        losses.vanilla_loss(x, x) + losses.shuffle_loss(x, x) + losses.uniform_loss(x, x) + losses.generator_loss(x, tensor(0.0))
    )
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(x.grad).all()


@settings(max_examples=100, deadline=None)
@given(classes=st.integers(2, 120), rows=st.integers(1, 200), seed=st.integers(0, 10_000))
def test_the_shuffled_label_is_a_class_and_never_the_right_one(classes, rows, seed):
    g = make_generator(seed)
    c = torch.randint(classes, (rows,), generator=g)
    shuffled = losses.shuffle_labels(c, classes, g)
    assert (shuffled != c).all()
    assert ((shuffled >= 0) & (shuffled < classes)).all()


def test_the_shuffle_reaches_every_other_class_alike(generator):
    shuffled = losses.shuffle_labels(torch.full((9000,), 2), 4, generator)
    assert shuffled.bincount(minlength=4)[2] == 0
    assert shuffled.bincount(minlength=4)[[0, 1, 3]].min() > 2800


def test_one_class_cannot_be_shuffled(generator):
    with pytest.raises(DataError, match="at least 2 classes"):
        losses.shuffle_labels(torch.zeros(3, dtype=torch.int64), 1, generator)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(1, 4), rows=st.integers(1, 9))
def test_the_min_l1_term_equals_a_loop_over_all_pairs_in_value_and_gradient(seed, classes, rows):
    g = make_generator(seed)
    c = torch.randint(classes, (rows,), generator=g)
    labels = torch.arange(5 * classes) % classes
    anchors = torch.randn(5 * classes, 3, generator=g, dtype=torch.float64)
    fake = torch.randn(rows, 3, generator=g, dtype=torch.float64)

    ours = fake.clone().requires_grad_()
    value = losses.nearest_l1(ours, c, anchors, labels)
    value.backward()

    looped = fake.clone().requires_grad_()
    distances = []
    for i in range(rows):
        same_class = [(anchors[j] - looped[i]).abs().sum() for j in range(len(anchors)) if labels[j] == c[i]]
        distances.append(min(same_class, key=lambda d: d.item()))
    expected = torch.stack(distances).mean()
    expected.backward()

    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(ours.grad, looped.grad)
