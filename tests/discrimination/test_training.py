"""Algorithm 1: each step touches its own network alone, the printed losses diverge and say so, a killed run goes on exactly."""

import copy
import json
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
from bal.discrimination.training import UnhealthyError, check_health
from bal.errors import StorageError
from bal.features import Uniform, batch_bounds, class_means
from bal.sampling import Epsilon, Generator
from bal.seeding import make_generator
from conftest import make_blobs

QUICK = GANTraining(epochs=3, batch_size=50, learning_rate_D=1e-3, learning_rate_G=1e-3)


def make_training(settings=QUICK, *, seed=0, radial=True, rows=300):
    features = make_blobs(rows)
    f, c = features.f, features.labels
    g = make_generator(seed)
    D = (
        RadialDiscriminator(means=class_means(f, c, 3), hidden=(16,), generator=g)
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


def test_a_discriminator_step_is_gradient_descent_on_L_t_plus_L_s_plus_L_u():
    """The same random numbers, drawn again in the order of Algorithm 1, give the same losses and the same Adam step."""
    training = make_training(replace(QUICK, epsilon=Epsilon(std=0.5)))
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
    hard = fake - epsilon * torch.autograd.grad(D(fake, c_z).sum(), fake)[0].sign()
    d_f, d_shuffled, d_fake = torch.sigmoid(D(f, c)), torch.sigmoid(D(f, c_shuffled)), torch.sigmoid(D(fake, c_z))
    d_ood = torch.sigmoid(torch.cat([D(f_trivial, c_trivial), D(hard, c_z)]))
    L_t = -d_f.log().mean() - (1 - d_fake).log().mean()
    L_s = -(1 - d_shuffled).log().mean() - d_f.log().mean()
    L_u = -0.7 * (1 - d_ood).log().mean() - d_f.log().mean()
    assert terms["L_t"] == pytest.approx(L_t.item(), rel=1e-4)
    assert terms["L_s"] == pytest.approx(L_s.item(), rel=1e-4)
    assert terms["L_u"] == pytest.approx(L_u.item(), rel=1e-4)
    assert terms["L_d"] == pytest.approx((L_t + L_s + L_u).item(), rel=1e-4)

    optimiser = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    (L_t + L_s + L_u).backward()
    optimiser.step()
    for ours, expected in zip(training.D.parameters(), D.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-3)


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


HEALTHY = {"D_id": 0.9, "D_shuffled": 0.1, "D_trivial": 0.1, "D_hard": 0.2, "spread": 0.5}


def test_a_collapsed_discriminator_or_generator_is_noticed():
    check_health(HEALTHY)
    with pytest.raises(UnhealthyError, match="no more than its negatives"):
        check_health({**HEALTHY, "D_id": 0.1})
    with pytest.raises(UnhealthyError, match="all alike"):
        check_health({**HEALTHY, "spread": 1e-4})


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
