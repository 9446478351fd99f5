"""Algorithm 1: each step touches its own network alone, the printed losses diverge and say so, a killed run goes on exactly."""

import copy
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bal.discrimination import (
    Algorithm1,
    Callback,
    ConcatenatingDiscriminator,
    GANTraining,
    JsonLines,
    ProgressBar,
    RadialDiscriminator,
    losses,
)
from bal.discrimination.health import UnhealthyError, check_finite, check_health
from bal.errors import SettingsError, StorageError
from bal.features import Uniform, batch_bounds, class_means
from bal.sampling import Epsilon, Generator
from bal.seeding import make_generator
from conftest import make_blobs

QUICK = GANTraining(epochs=3, batch_size=50, learning_rate_D=1e-3, learning_rate_G=1e-3)


def make_training(settings=QUICK, *, seed=0, radial=True, rows=300, **layers):
    features = make_blobs(rows)
    f, c = features.f, features.labels
    g = make_generator(seed)
    D = (
        RadialDiscriminator(means=class_means(f, c, 3), hidden=(16,), generator=g, **layers)
        if radial
        else ConcatenatingDiscriminator(dim=8, classes=3, hidden=(16,), generator=g)
    )
    G = Generator(dim=8, classes=3, noise_dim=4, hidden=(16,), generator=g)
    return Algorithm1(D=D, G=G, f=f, c=c, trivial=Uniform(), settings=settings, generator=g)


def changed(before, module):
    return [name for name, tensor in module.state_dict().items() if not torch.equal(before[name], tensor)]


def test_the_discriminator_step_updates_D_and_nothing_else():
    training = make_training()
    D, G = copy.deepcopy(training.D.state_dict()), copy.deepcopy(training.G.state_dict())
    training.discriminator_step(training.f[:50], training.c[:50])
    assert changed(D, training.D)
    assert changed(G, training.G) == []
    assert all(p.grad is None for p in training.G.parameters())


def test_the_generator_step_updates_G_and_nothing_else():
    training = make_training()
    D, G = copy.deepcopy(training.D.state_dict()), copy.deepcopy(training.G.state_dict())
    average = copy.deepcopy(training.average.state_dict())
    training.generator_step(50)
    assert changed(G, training.G)
    assert changed(D, training.D) == []
    assert changed(average, training.average) == []
    assert all(p.grad is None for p in training.D.parameters())


def by_hand(form, negative):
    """The negative term of L_s and L_u, from D itself."""
    return negative.log().mean() if form == "printed" else -(1 - negative).log().mean()


@pytest.mark.parametrize("push", ["sign", "gradient", "noise"])
@pytest.mark.parametrize(("form", "lambda_c"), [("bounded", 0.7), ("printed", 0.4)])
def test_a_discriminator_step_is_gradient_descent_on_L_t_plus_L_s_plus_L_u(form, lambda_c, push):
    """The same random numbers, drawn again in the order of Algorithm 1, give the same losses and the same Adam step."""
    training = make_training(replace(QUICK, epsilon=Epsilon(std=0.5), form=form, lambda_c=lambda_c, push=push))
    D, G = copy.deepcopy(training.D), training.G
    g = make_generator(0)
    g.set_state(training.generator.get_state())
    f, c = training.f[:50], training.c[:50]
    terms = training.discriminator_step(f, c)

    c_shuffled = losses.shuffle_labels(c, 3, g)
    a, b = batch_bounds(f)
    f_trivial = a + (b - a) * torch.rand(50, 8, generator=g)
    c_trivial = torch.randint(3, (50,), generator=g)
    z = torch.randn(50, 4, generator=g)
    c_z = torch.randint(3, (50,), generator=g)
    epsilon = (0.5 * torch.randn(50, 1, generator=g)).abs()
    fake = G(z, c_z).detach().requires_grad_()
    if push == "noise":
        z.requires_grad_()
        moved = z - epsilon * torch.autograd.grad(torch.sigmoid(D(G(z, c_z), c_z)).sum(), z)[0]
        hard = G(moved, c_z).detach()
    else:
        slope = torch.autograd.grad(torch.sigmoid(D(fake, c_z)).sum(), fake)[0]
        hard = (fake - epsilon * (slope.sign() if push == "sign" else slope)).detach()
    d_f, d_shuffled, d_fake = torch.sigmoid(D(f, c)), torch.sigmoid(D(f, c_shuffled)), torch.sigmoid(D(fake.detach(), c_z))
    d_ood = torch.sigmoid(torch.cat([D(f_trivial, c_trivial), D(hard, c_z)]))
    L_t = -d_f.log().mean() - (1 - d_fake).log().mean()
    L_s = by_hand(form, d_shuffled) - d_f.log().mean()
    L_u = lambda_c * by_hand(form, d_ood) - d_f.log().mean()
    assert terms["L_t"] == pytest.approx(L_t.item(), rel=1e-4)
    assert terms["L_s"] == pytest.approx(L_s.item(), rel=1e-4)
    assert terms["L_u"] == pytest.approx(L_u.item(), rel=1e-4)
    assert terms["L_d"] == pytest.approx((L_t + L_s + L_u).item(), rel=1e-4)

    optimiser = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    (L_t + L_s + L_u).backward()
    optimiser.step()
    for ours, expected in zip(training.D.parameters(), D.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-3)


def test_a_discriminator_step_with_every_option_redone_by_hand():
    """A third of the way through a warm-up over half of 18 steps; two relative steps off real features; R1."""
    settings = replace(
        QUICK,
        fake_weight=0.6,
        warm_up=0.5,
        push_base="real",
        push_steps=2,
        epsilon=Epsilon(relative=True),
        hard_share=0.8,
        r1=0.3,
    )
    training = make_training(settings)
    training.step = 3
    D, G = copy.deepcopy(training.D), training.G
    g = make_generator(0)
    g.set_state(training.generator.get_state())
    f, c = training.f[:50], training.c[:50]
    terms = training.discriminator_step(f, c)

    c_shuffled = losses.shuffle_labels(c, 3, g)
    f_trivial, c_trivial = Uniform().sample(f, c, classes=3, generator=g)
    z, c_z = torch.randn(50, 4, generator=g), torch.randint(3, (50,), generator=g)
    offset = training.f - class_means(training.f, training.c, 3)[training.c]
    epsilon = offset.square().mean().sqrt() * torch.randn(50, 1, generator=g).abs()
    hard = f
    for _ in range(2):
        hard = hard.clone().requires_grad_()
        hard = (hard - epsilon / 2 * torch.autograd.grad(D(hard, c).sum(), hard)[0].sign()).detach()
    d = {"f": D(f, c), "shuffled": D(f, c_shuffled), "fake": D(G(z, c_z).detach(), c_z)}
    d |= {"trivial": D(f_trivial, c_trivial), "hard": D(hard, c)}
    d = {name: torch.sigmoid(logit) for name, logit in d.items()}
    real = f.clone().requires_grad_()
    slope = torch.autograd.grad(D(real, c).sum(), real, create_graph=True)[0]
    L_t = -d["f"].log().mean() - 0.6 * (3 / 9) * (1 - d["fake"]).log().mean()
    L_s = -(1 - d["shuffled"]).log().mean() - d["f"].log().mean()
    negatives = 0.2 * (1 - d["trivial"]).log().mean() + 0.8 * (1 - d["hard"]).log().mean()
    L_u = -0.7 * negatives - d["f"].log().mean()
    L_d = L_t + L_s + L_u + 0.3 * slope.square().sum(1).mean()
    for name, value in (("L_t", L_t), ("L_s", L_s), ("L_u", L_u), ("L_d", L_d)):
        assert terms[name] == pytest.approx(value.item(), rel=1e-4)

    rate = 1e-3 * 0.5 * (1 + math.cos(math.pi * 3 / 18))
    optimiser = torch.optim.Adam(D.parameters(), lr=rate, betas=(0.5, 0.999))
    L_d.backward()
    optimiser.step()
    for ours, expected in zip(training.D.parameters(), D.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-3)


def test_dropout_is_drawn_by_the_trainings_own_generator_and_only_in_the_update_of_D():
    a, b = make_training(dropout=0.5), make_training(dropout=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        a.run()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(2)
        b.run()
    assert all(torch.equal(x, y) for x, y in zip(a.weights().values(), b.weights().values(), strict=True))
    for D in (a.D, a.average):
        assert torch.equal(D(a.f, a.c), D(a.f, a.c)), "no dropout outside the update"
    assert a.first_losses != make_training().first_losses


def test_spectral_norms_follow_D_and_its_average():
    training = make_training(replace(QUICK, epochs=10, learning_rate_D=1e-2), spectral_norm=True)
    start = training.D.layers[0].parametrizations.weight.original.clone()
    assert training.run().status == "finished"
    assert not torch.allclose(start, training.D.layers[0].parametrizations.weight.original)
    for D in (training.D, training.average):
        assert torch.linalg.matrix_norm(D.layers[0].weight, 2).item() == pytest.approx(1, abs=0.02)


def test_a_strong_gradient_penalty_flattens_D():
    def slope(r1):
        training = make_training(replace(QUICK, epochs=10, learning_rate_D=3e-2, r1=r1))
        training.run()
        return losses.gradient_penalty(training.D, training.f, training.c).item()

    assert slope(10.0) < 0.5 * slope(0.0)


@pytest.mark.parametrize("form", ["bounded", "printed"])
def test_a_generator_step_is_gradient_descent_on_L_g(form):
    """The same random numbers, drawn again, give the same loss and the same Adam step of G: both terms, with their gradients."""
    training = make_training(replace(QUICK, form=form, lambda_=0.3, anchors=7))
    D, G = training.D, copy.deepcopy(training.G)
    g = make_generator(0)
    g.set_state(training.generator.get_state())
    terms = training.generator_step(50)

    z, c = torch.randn(50, 4, generator=g), torch.randint(3, (50,), generator=g)
    fake = G(z, c)
    d = torch.sigmoid(D(fake, c))
    adversarial = (1 - d).log().mean() if form == "printed" else -d.log().mean()
    assert len(training.anchors) == 21, "seven of each of three classes"
    nearest = torch.stack([(training.anchors[training.anchor_labels == c[i]] - fake[i]).abs().sum(1).min() for i in range(50)])
    L_g = adversarial + 0.3 * nearest.mean()
    assert terms["L_g"] == pytest.approx(L_g.item(), rel=1e-4)
    assert terms["distance"] == pytest.approx(nearest.mean().item(), rel=1e-5)

    optimiser = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    L_g.backward()
    optimiser.step()
    for ours, expected in zip(training.G.parameters(), G.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-3)


def test_the_moving_average_by_hand():
    """average <- decay * average + (1 - decay) * D, with decay (1 + step) / (10 + step) until it reaches its setting."""
    training = make_training(replace(QUICK, decay=0.15))
    expected = training.average.b.item()
    for step in range(3):
        training.discriminator_step(training.f[:50], training.c[:50])
        decay = min(0.15, (1 + step) / (10 + step))  # 0.1, then 0.15
        expected = decay * expected + (1 - decay) * training.D.b.item()
        assert training.average.b.item() == pytest.approx(expected, rel=1e-5)
        training.generator_step(50)


def test_the_learning_rates_fall_along_a_half_cosine():
    training = make_training(replace(QUICK, learning_rate_D=0.4, learning_rate_G=0.2))
    total = 3 * 6  # epochs times iterations
    for step, share in ((0, 1.0), (total // 2, 0.5), (total, 0.0)):
        training.step = step
        training.discriminator_step(training.f[:50], training.c[:50])
        training.generator_step(50)
        assert training.optimiser_D.param_groups[0]["lr"] == pytest.approx(0.4 * share)
        assert training.optimiser_G.param_groups[0]["lr"] == pytest.approx(0.2 * share)


@pytest.mark.parametrize(("iterations", "steps"), [(None, 6), (4, 4), (40, 6)])
def test_an_epoch_has_so_many_batches_and_never_a_row_twice(iterations, steps):
    training = make_training(replace(QUICK, epochs=1, iterations=iterations))
    assert training.iterations == steps
    training.run()
    assert training.step == steps


@pytest.mark.parametrize("terms", [("t",), ("t", "s"), ("t", "u"), ("t", "s", "u")])
def test_switched_off_terms_are_zero_and_the_rest_is_the_sum(terms):
    """The combinations of Table 3."""
    training = make_training(replace(QUICK, terms=terms))
    values = training.discriminator_step(training.f[:50], training.c[:50])
    for term in "tsu":
        assert (values[f"L_{term}"] != 0) == (term in terms)
    assert values["L_d"] == pytest.approx(sum(values[f"L_{term}"] for term in terms), rel=1e-5)


def test_training_separates_id_from_every_kind_of_negative():
    training = make_training(replace(QUICK, epochs=20))
    result = training.run()
    last = result.history[-1]
    assert result.status == "finished"
    assert len(result.history) == result.epochs == 20
    assert last["D_id"] > 0.9
    assert max(last["D_shuffled"], last["D_trivial"]) < 0.1


def test_the_average_follows_D_and_a_decay_of_zero_is_D_itself():
    training = make_training(replace(QUICK, decay=0.0))
    training.run()
    assert changed(training.D.state_dict(), training.average) == []
    slow = make_training(replace(QUICK, decay=0.999))
    slow.run()
    assert changed(slow.D.state_dict(), slow.average)


def test_the_printed_losses_diverge_and_the_result_says_so():
    """Fault 20: detected, stopped, the last healthy weights kept, said in the result."""
    printed = GANTraining(
        epochs=200, batch_size=50, learning_rate_D=1e-2, learning_rate_G=1e-3, form="printed", epsilon=Epsilon(absolute=False)
    )
    training = make_training(printed, radial=False)
    result = training.run()
    assert result.status == "diverged"
    assert "L_d reached -" in result.message
    assert "went back to the weights of epoch" in result.message
    assert 0 < result.epochs < 200
    replay = make_training(replace(printed), radial=False)
    for epoch in range(result.epochs):
        replay._epoch(epoch, [])
    assert changed(replay.D.state_dict(), training.D) == [], "the weights are those of the last healthy epoch"


def test_the_bounded_losses_do_not_diverge_under_the_same_settings():
    bounded = GANTraining(
        epochs=50, batch_size=50, learning_rate_D=1e-2, learning_rate_G=1e-3, form="bounded", epsilon=Epsilon(absolute=False)
    )
    assert make_training(bounded, radial=False).run().status == "finished"


class Poison(Callback):
    """Puts a NaN into D in the middle of the second epoch."""

    def __init__(self, training):
        self.training, self.steps = training, 0

    def on_step(self, terms):
        self.steps += 1
        if self.steps == 9:  # six steps an epoch
            with torch.no_grad():
                self.training.D.b.fill_(torch.nan)


def test_a_nan_in_D_stops_the_training_with_the_weights_of_the_last_healthy_epoch():
    training = make_training()
    result = training.run(callbacks=[Poison(training)])
    assert (result.status, result.epochs) == ("diverged", 1)
    assert "nan" in result.message
    assert all(torch.isfinite(p).all() for p in training.average.parameters())


def test_divergence_in_the_first_epoch_goes_back_to_the_start():
    training = make_training()
    start = training.weights()
    with torch.no_grad():
        training.G.layers[-1].bias.fill_(torch.inf)
    assert training.run().status == "diverged"
    assert "the start" in training.run().message
    assert all(torch.equal(start[f"D.{k}"], v) for k, v in training.D.state_dict().items())


HEALTHY = {"D_id": 0.9, "D_shuffled": 0.1, "D_trivial": 0.1, "D_hard": 0.95, "spread": 0.5}


EVERY_TERM = ("t", "s", "u")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"D_trivial": 0.9}, "no more than D_trivial"),
        ({"D_shuffled": 0.95}, "no more than D_shuffled"),
        ({"D_id": float("nan")}, "no more than"),
        ({"spread": 1e-4}, "all alike"),
        ({"spread": float("nan")}, "all alike"),
    ],
)
def test_a_collapsed_discriminator_or_generator_is_noticed(change, words):
    check_health(HEALTHY, EVERY_TERM, [HEALTHY], last=False)
    with pytest.raises(UnhealthyError, match=words):
        check_health({**HEALTHY, **change}, EVERY_TERM, [HEALTHY], last=False)


def test_a_discriminator_may_take_its_time_but_must_have_learnt_in_the_end():
    ignorant = {**HEALTHY, "D_id": 0.5, "D_trivial": 0.5}
    check_health(ignorant, EVERY_TERM, [ignorant], last=False)
    with pytest.raises(UnhealthyError, match="no more than D_trivial"):
        check_health(ignorant, EVERY_TERM, [ignorant], last=True)


def test_negatives_that_no_term_taught_do_not_count():
    check_health({**HEALTHY, "D_shuffled": 0.99}, ("t", "u"), [], last=True)
    check_health({**HEALTHY, "D_trivial": 0.99}, ("t", "s"), [], last=True)


class Collapse(Callback):
    """From the second epoch on, G forgets its noise or D gives everything the same answer."""

    def __init__(self, training, network):
        self.training, self.network = training, network

    def on_epoch(self, record):
        with torch.no_grad():
            if self.network == "G":
                self.training.G.layers[0].weight[:, : self.training.G.noise_dim] = 0.0
            else:
                self.training.D.a.fill_(0.0)
                self.training.D.b.fill_(-0.2)  # the ball turned inside out


@pytest.mark.parametrize("network", ["D", "G"])
def test_a_training_that_collapses_stops_with_the_last_healthy_weights(network):
    """Fault 20."""
    settings = replace(QUICK, epochs=5, learning_rate_D=1e-6, learning_rate_G=1e-9)
    training = make_training(settings)
    result = training.run(callbacks=[Collapse(training, network)])
    assert (result.status, result.epochs) == ("collapsed", 1)
    alone = make_training(settings)
    alone._epoch(0, [])
    assert changed(alone.D.state_dict(), training.D) == []
    assert changed(alone.G.state_dict(), training.G) == []


def test_weights_that_are_not_finite_are_never_kept():
    with pytest.raises(UnhealthyError, match=r"G\.x are not finite"):
        check_finite({"D.x": torch.ones(2), "G.x": torch.tensor([1.0, torch.nan])})


def test_a_resumed_run_diverges_by_the_same_limit(tmp_path):
    printed = replace(QUICK, epochs=300, learning_rate_D=1e-2, form="printed", epsilon=Epsilon(absolute=False))
    whole = make_training(printed, radial=False).run()
    with pytest.raises(Stop):
        make_training(printed, radial=False).run(checkpoint=tmp_path / "c", callbacks=[StopAfter(20)])
    assert make_training(printed, radial=False).run(checkpoint=tmp_path / "c") == whole
    assert whole.status == "diverged"


class Ends(Callback):
    ended = None

    def on_end(self, status, message):
        self.ended = status


def test_callbacks_hear_of_the_end_however_it_comes():
    ends = Ends()
    with pytest.raises(Stop):
        make_training().run(callbacks=[ends, StopAfter(4)])
    assert ends.ended == "interrupted"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": -1}, "epochs must be a whole number of 0 or more"),
        ({"epochs": 1.5}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"learning_rate_D": -0.1}, "learning_rate_D"),
        ({"learning_rate_G": float("nan")}, "learning_rate_G"),
        ({"lambda_c": -5}, "lambda_c"),
        ({"decay": 2}, "decay must be a number from 0 to 1"),
        ({"anchors": 0}, "anchors"),
        ({"iterations": 0}, "iterations"),
        ({"form": "Printed"}, "did you mean 'printed'"),
        ({"push": "sgn"}, "push must be one of"),
        ({"fake_weight": -1}, "fake_weight"),
        ({"warm_up": 1.5}, "warm_up must be a number from 0 to 1"),
        ({"push_base": "fake"}, "push_base must be one of"),
        ({"push_steps": 0}, "push_steps"),
        ({"hard_share": 2}, "hard_share"),
        ({"r1": -0.1}, "r1"),
        ({"push": "noise", "push_base": "real"}, "which no real feature has"),
        ({"push": "noise", "epsilon": Epsilon(relative=True)}, "not relative"),
        ({"terms": ()}, "terms"),
        ({"terms": ("x",)}, "terms"),
    ],
)
def test_nonsense_settings_are_refused_at_once(settings, words):
    with pytest.raises(SettingsError, match=words):
        GANTraining(**settings)


def test_the_same_seed_gives_the_same_bytes():
    """Fault 25."""
    a, b, other = make_training(), make_training(), make_training(seed=1)
    for training in (a, b, other):
        training.run()
    assert all(torch.equal(x, y) for x, y in zip(a.weights().values(), b.weights().values(), strict=True))
    assert not torch.equal(a.weights()["D.b"], other.weights()["D.b"])


class Stop(Exception):
    pass


class StopAfter(Callback):
    def __init__(self, steps):
        self.steps = steps

    def on_step(self, terms):
        self.steps -= 1
        if self.steps == 0:
            raise Stop


def test_a_run_with_every_option_is_resumed_exactly(tmp_path):
    settings = replace(QUICK, fake_weight=0.5, warm_up=0.5, push_base="real", push_steps=2, hard_share=0.3, r1=0.1)
    layers = {"dropout": 0.2, "spectral_norm": True}
    whole = make_training(settings, **layers)
    whole.run()
    with pytest.raises(Stop):
        make_training(settings, **layers).run(checkpoint=tmp_path / "c", callbacks=[StopAfter(8)])
    resumed = make_training(settings, **layers)
    resumed.run(checkpoint=tmp_path / "c")
    assert all(torch.equal(x, y) for x, y in zip(whole.weights().values(), resumed.weights().values(), strict=True))
    with pytest.raises(StorageError, match="belongs to another run"):
        make_training(settings, dropout=0.3, spectral_norm=True).run(checkpoint=tmp_path / "c")


@pytest.mark.parametrize("steps", [1, 6, 8, 17])
def test_a_run_interrupted_anywhere_ends_in_the_weights_of_an_uninterrupted_one(tmp_path, steps):
    whole = make_training()
    expected = whole.run()
    log = tmp_path / "log.jsonl"
    with pytest.raises(Stop):
        make_training().run(checkpoint=tmp_path / "c", callbacks=[JsonLines(log), StopAfter(steps)])
    resumed = make_training()
    result = resumed.run(checkpoint=tmp_path / "c", callbacks=[JsonLines(log), ProgressBar()])
    assert all(torch.equal(x, y) for x, y in zip(whole.weights().values(), resumed.weights().values(), strict=True))
    assert result == expected
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row.get("epoch") for row in rows] == [1, 2, 3, None], "each epoch once"
    assert rows[-1]["status"] == "finished"


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from dataclasses import replace
from test_training import QUICK, make_training
training = make_training(replace(QUICK, epochs=40))
result = training.run(checkpoint=Path(sys.argv[2]))
from bal.storage import digest
print(result.status, digest(training.weights()))
"""


def kill_after_the_next_checkpoint(command, environment, checkpoint):
    """Start the training and kill it with no warning once it has written a new checkpoint."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    with subprocess.Popen(command, env=environment) as process:
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was still training"


def test_kill_9_in_mid_training_and_resume_gives_the_same_final_weights(tmp_path):
    """Fault 14, in real processes, killed twice."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here.parent)}

    def command(name):
        return [sys.executable, "-c", SCRIPT, str(here), str(tmp_path / name)]

    def finish(name):
        return subprocess.run(command(name), env=environment, capture_output=True, text=True, check=True).stdout

    for _ in range(2):
        kill_after_the_next_checkpoint(command("killed"), environment, tmp_path / "killed")
    assert finish("killed") == finish("whole")


@pytest.mark.parametrize("change", ["settings", "data", "seed"])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change):
    make_training().run(checkpoint=tmp_path / "c")
    other = {
        "settings": lambda: make_training(replace(QUICK, lambda_c=0.5)),
        "data": lambda: make_training(rows=303),
        "seed": lambda: make_training(seed=1),
    }[change]()
    with pytest.raises(StorageError, match="belongs to another run"):
        other.run(checkpoint=tmp_path / "c")
