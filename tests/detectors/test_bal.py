import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from bal.detectors import BAL, load, log_max_softmax
from bal.detectors.bal import make_sampler
from bal.discrimination import Algorithm1, Callback, GANTraining
from bal.errors import BalWarning, NotFittedError, SettingsError, StorageError
from bal.features import Features, Uniform
from bal.sampling import CoordinateShuffle, Epsilon, Gaussian, Interpolation, RandomScaleGaussian
from bal.storage import digest

SMALL = BAL(
    hidden_D=(16,),
    hidden_G=(16,),
    noise_dim=4,
    training=GANTraining(epochs=4, batch_size=50, learning_rate_D=1e-3, learning_rate_G=1e-3),
)


def test_the_score_is_the_log_of_p1_times_p2(blobs):
    """Inference of Algorithm 1, with the probabilities themselves where they do not saturate."""
    detector = replace(SMALL).fit_features(blobs)
    f = blobs.f[:20] * 0.4  # between the classes, where neither factor is 1
    logits = 0.05 * blobs.logits[:20]
    p1, c_hat = torch.softmax(logits.double(), 1).max(1)
    with torch.no_grad():
        p2 = torch.sigmoid(detector.D_(detector.normalise(f, logits), c_hat).double())
    np.testing.assert_allclose(detector.score(Features(f, logits)), torch.log(p1 * p2).numpy(), rtol=1e-6)
    np.testing.assert_allclose(detector.predict(Features(f, logits)).confidence, (p1 * p2).numpy(), rtol=1e-6)


def test_scores_have_no_ties_where_p1_saturates(blobs):
    """Every p1 is exactly 1 in float32 here; what is left of the score still tells all rows apart."""
    sure = Features(blobs.f, 10 * blobs.logits, blobs.labels)
    assert (torch.softmax(sure.logits, 1).max(1).values == 1).all()
    scores = replace(SMALL).fit_features(sure).score(sure)
    assert len(np.unique(scores)) == len(scores)


def test_log_max_softmax_by_hand_and_far_beyond_float_range():
    values = log_max_softmax(torch.tensor([[0.0, 0.0, 0.0], [math.log(3), 0.0, -1e9], [1e30, 0.0, 0.0]]))
    assert values.tolist() == pytest.approx([-math.log(3), math.log(0.75), 0.0])


def test_the_default_scores_as_before_on_any_machine(blobs):
    """Scores of the recipe of docs/recipe.md, so that no change of it goes unseen."""
    scores = BAL().fit_features(blobs).score(blobs)[:3]
    np.testing.assert_allclose(scores, [-0.067991, -0.003628, -0.436303], rtol=1e-3)


GEOMETRIES = ["identity", "standardise", "l2", "whiten", "l2+standardise", "l2+whiten"]
BEYOND = [("l2+whiten", "per-class"), ("l2+whiten", "projection"), ("l2+whiten", "centred")]
BEYOND += [("l2+whiten+residual", "radial"), ("l2+residual+whiten", "radial")]


@pytest.mark.parametrize(("normalisation", "conditioning"), [*product(GEOMETRIES, ["radial", "concatenate"]), *BEYOND])
def test_every_geometry_and_conditioning_trains(blobs, normalisation, conditioning):
    training = replace(SMALL.training, epochs=25, learning_rate_D=1e-2)
    settings = replace(SMALL, normalisation=normalisation, conditioning=conditioning, training=training)
    detector = settings.fit_features(blobs)
    assert detector.result_.status == "finished"
    assert np.isfinite(detector.score(blobs)).all()


@pytest.mark.parametrize(
    "sampler", ["uniform", "gaussian", "random-scale", "uniform+random-scale", "gaussian+interpolation+coordinate-shuffle"]
)
@pytest.mark.parametrize("push", ["sign", "gradient", "noise"])
def test_every_sampler_and_push_trains(blobs, sampler, push):
    settings = replace(SMALL, sampler=sampler, training=replace(SMALL.training, push=push))
    assert settings.fit_features(blobs).result_.status == "finished"


def test_another_seed_is_another_detector(blobs):
    a = replace(SMALL).fit_features(blobs).score(blobs)
    b = replace(SMALL, seed=1).fit_features(blobs).score(blobs)
    assert not np.array_equal(a, b)


def test_the_literal_reading_of_the_paper_runs_and_its_divergence_is_reported(blobs):
    """Fault 20: printed losses; a warning, a status, and scores that can still be used."""
    paper = BAL.paper()
    detector = replace(paper, training=replace(paper.training, epochs=400, batch_size=50))
    with pytest.warns(BalWarning, match="BAL diverged: L_d reached -"):
        detector.fit_features(blobs)
    assert detector.result_.status == "diverged"
    assert np.isfinite(detector.score(blobs)).all()


def test_the_papers_settings_are_those_it_prints():
    s = BAL.paper()
    assert (s.training.lambda_c, s.training.lambda_, s.training.form) == (0.7, 0.01, "printed")
    assert (s.normalisation, s.conditioning, s.sampler) == ("identity", "concatenate", "uniform")
    assert s.training.anchors is None
    assert not s.training.epsilon.absolute


class StopAfterTwoEpochs(Callback):
    last = 2

    def __init__(self):
        self.epochs = 0

    def on_epoch(self, record):
        self.epochs += 1
        if self.epochs == self.last:
            raise KeyboardInterrupt


class StopInTheSecondMember(StopAfterTwoEpochs):
    last = 6  # of four epochs each


class CountEpochs(Callback):
    epochs = 0

    def on_epoch(self, record):
        self.epochs += 1


def test_a_fit_that_was_stopped_goes_on_from_its_checkpoint(blobs, tmp_path):
    whole = replace(SMALL).fit_features(blobs)
    stopped = replace(SMALL)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit_features(blobs, checkpoint=str(tmp_path / "bal"), callbacks=[StopAfterTwoEpochs()])
    with pytest.raises(NotFittedError):
        stopped.score(blobs)
    rest = CountEpochs()
    resumed = replace(SMALL).fit_features(blobs, checkpoint=tmp_path / "bal", callbacks=[rest])
    assert rest.epochs == 2, "four epochs in all, two of them before the stop"
    assert np.array_equal(whole.score(blobs), resumed.score(blobs))
    assert resumed.result_ == whole.result_


@pytest.mark.parametrize(
    "change",
    [
        {"sampler": "gaussian"},
        {"hidden_D": (8,)},
        {"conditioning": "concatenate"},
        {"noise_dim": 5},
        {"seed": 1},
        {"radius": "mean"},
        {"evidence": "length"},
        {"dropout": 0.1},
        {"spectral_norm": True},
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(blobs, tmp_path, change):
    replace(SMALL).fit_features(blobs, checkpoint=tmp_path / "bal")
    with pytest.raises(StorageError, match="another run"):
        replace(SMALL, **change).fit_features(blobs, checkpoint=tmp_path / "bal")


def test_inference_uses_the_moving_average_of_D(blobs, monkeypatch):
    trainings = []
    run = Algorithm1.run

    def spy(self, **kwargs):
        trainings.append(self)
        return run(self, **kwargs)

    monkeypatch.setattr(Algorithm1, "run", spy)
    detector = replace(SMALL).fit_features(blobs)
    assert detector.D_ is trainings[0].average
    assert detector.D_ is not trainings[0].D


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("uniform", Uniform),
        ("gaussian", Gaussian),
        ("random-scale", RandomScaleGaussian),
        ("interpolation", Interpolation),
        ("coordinate-shuffle", CoordinateShuffle),
    ],
)
def test_each_sampler_name_means_its_sampler(name, kind):
    assert type(make_sampler(name)) is kind
    mixed = make_sampler("uniform+random-scale")
    assert [type(part) for part in mixed.samplers] == [Uniform, RandomScaleGaussian]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"conditioning": "Radial"}, "did you mean 'radial'"),
        ({"normalisation": "zca"}, "normalisation must be one of"),
        ({"sampler": "unifrom"}, "did you mean 'uniform'"),
        ({"sampler": "uniform+gausian"}, "every part of sampler must be one of .* did you mean 'gaussian'"),
        ({"sampler": ""}, "sampler"),
        ({"radius": "max"}, "radius must be one of"),
        ({"radial_start": 6.0}, "radial_start must be a tuple"),
        ({"radial_start": (6.0, -3.0)}, "radial_start must be a number of 0 or more"),
        ({"evidence": "energie"}, "did you mean 'energy'"),
        ({"evidence_start": float("nan")}, "evidence_start"),
        ({"dropout": 1.0}, "dropout must be a number from 0 to 0.99"),
        ({"spectral_norm": "yes"}, "spectral_norm must be True or False"),
        ({"members": 0}, "members"),
        ({"members": 101}, "members"),
        ({"prior_quantile": 5}, "prior_quantile must be a number from 0 to 1"),
        ({"temperature": 0}, "temperature"),
        ({"hidden_D": 16}, "tuple of widths"),
        ({"hidden_G": (0,)}, "hidden_G must be a whole number of 1 or more"),
        ({"noise_dim": 0}, "noise_dim"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**64}, "seed"),
    ],
)
def test_nonsense_settings_are_refused_at_once(settings, words):
    with pytest.raises(SettingsError, match=words):
        BAL(**settings)


def test_synthetic_features_stand_beside_the_id_features(blobs):
    detector = replace(SMALL).fit_features(blobs)
    groups = detector.synthetic(blobs, rows=40)
    shapes = {name: tuple(f.shape) for name, f in groups.items()}
    assert shapes == dict.fromkeys(("ID", "trivial", "generated", "hard"), (40, 9)), "8 coordinates and the energy"
    assert all(torch.isfinite(f).all() for f in groups.values())


FASTER = replace(SMALL.training, learning_rate_D=1e-2)  # for what does not start as a ball
OPTIONS = {
    "per class": {"conditioning": "per-class", "training": FASTER},
    "projection": {"conditioning": "projection", "training": FASTER},
    "centred": {"conditioning": "centred", "training": FASTER},
    "radius": {"radial_start": (5.0, 2.0), "radius": "q95"},
    "length": {"evidence": "length", "evidence_start": 0.5},
    "no evidence": {"evidence": "none"},
    "residual": {"normalisation": "l2+residual+whiten"},
    "layers": {"dropout": 0.2, "spectral_norm": True},
    "prior": {"prior_quantile": 0.05, "temperature": 2.0},
    "members": {"members": 3, "spectral_norm": True},
    "push": {"training": replace(SMALL.training, push_base="real", push_steps=2, epsilon=Epsilon(std=2.0, relative=True))},
    "weights": {"training": replace(SMALL.training, fake_weight=0.2, warm_up=0.5, hard_share=0.2, r1=0.1)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_saved_loaded_and_resumed_to_the_last_bit(blobs, outliers, tmp_path, name):
    settings = replace(SMALL, **OPTIONS[name])
    whole = replace(settings).fit_features(blobs)
    assert whole.result_.status == "finished"
    with pytest.raises(KeyboardInterrupt):
        replace(settings).fit_features(blobs, checkpoint=tmp_path / "bal", callbacks=[StopAfterTwoEpochs()])
    resumed = replace(settings).fit_features(blobs, checkpoint=tmp_path / "bal")
    whole.save(tmp_path / "detector")
    loaded = load(tmp_path / "detector")
    assert loaded.training == settings.training
    plain = replace(SMALL).fit_features(blobs)
    for features in (blobs, outliers):
        assert np.array_equal(resumed.score(features), whole.score(features))
        assert np.array_equal(loaded.score(features), whole.score(features))
        assert np.array_equal(whole.score(features), whole.score(features)), "scoring changes nothing"
        assert not np.array_equal(whole.score(features), plain.score(features)), "the option has an effect"
    made, again = (detector.synthetic(blobs, rows=30) for detector in (whole, loaded))
    assert all(torch.equal(made[kind], again[kind]) for kind in made)


@pytest.mark.parametrize("radius", ["mean", "median", "q95"])
def test_the_ball_starts_in_units_of_the_id_radius(blobs, radius):
    """With a - b at radius r: the typical ID feature has the same logit in every geometry, though radii differ by far."""
    for normalisation in ("identity", "l2", "l2+whiten"):
        geometry = {"normalisation": normalisation, "radius": radius, "evidence": "none"}
        start = replace(SMALL, radial_start=(6.0, 3.0), training=GANTraining(epochs=0), **geometry).fit_features(blobs)
        with torch.no_grad():
            logits = start.D_(start.normalise(blobs.f, blobs.logits), blobs.labels).double()
        typical = {"mean": logits.mean(), "median": logits.quantile(0.5), "q95": logits.quantile(0.05)}[radius]
        assert typical.item() == pytest.approx(6 - 3, abs=1e-3)


def test_the_energy_tells_what_direction_and_softmax_do_not(blobs):
    """Logits lower by 5 for every class: the same p1 and the same radius, yet less ID by k times the lost energy."""
    start = replace(SMALL, training=GANTraining(epochs=0), evidence_start=0.5)
    faint = Features(blobs.f, blobs.logits - 5)
    blind, seeing = replace(start, evidence="none").fit_features(blobs), replace(start).fit_features(blobs)
    np.testing.assert_allclose(blind.score(faint), blind.score(blobs), atol=1e-4)
    assert (seeing.score(faint) < seeing.score(blobs)).all()
    energy = torch.logsumexp(blobs.logits, 1)
    within = torch.cat([energy[blobs.labels == k] - energy[blobs.labels == k].mean() for k in range(3)])
    lost = seeing.p2_logit(blobs.f, blobs.logits) - seeing.p2_logit(faint.f, faint.logits)
    expected = 0.5 * 5 / within.square().mean().sqrt().item()
    assert lost.tolist() == pytest.approx([expected] * len(lost), rel=1e-3)


def test_the_length_may_take_the_place_of_the_energy(blobs):
    """The same directions at a quarter of the length: invisible after L2 normalisation, less ID with the length."""
    seeing = replace(SMALL, training=GANTraining(epochs=0), evidence="length").fit_features(blobs)
    assert (seeing.score(Features(blobs.f / 4, blobs.logits)) < seeing.score(blobs)).all()


def test_absurd_evidence_counts_no_more_than_the_most_of_id(blobs):
    """An unknown direction with logits of a million must not get in by its energy."""
    seeing = replace(SMALL, training=GANTraining(epochs=0)).fit_features(blobs)
    strange = Features(blobs.f.roll(3, 1), 1e6 * blobs.logits)
    assert seeing.score(strange).max() < np.quantile(seeing.score(blobs), 0.05)


def test_the_prior_and_the_temperature_act_on_the_logit_of_D(blobs):
    plain = replace(SMALL).fit_features(blobs)
    with torch.no_grad():
        logits = plain.D_(plain.normalise(blobs.f, blobs.logits), blobs.labels).double().numpy()
    shift = np.quantile(logits, 0.05)
    settled = replace(SMALL, prior_quantile=0.05, temperature=2.0).fit_features(blobs)
    p2 = 1 / (1 + np.exp(-(logits - shift) / 2.0))
    np.testing.assert_allclose(settled.log_p2(blobs.f, blobs.logits).exp().numpy(), p2, rtol=1e-6)
    assert (p2 < 0.5).mean() == pytest.approx(0.05, abs=0.01)


def test_members_are_trained_apart_and_p2_has_their_mean_logit(blobs):
    three = replace(SMALL, members=3).fit_features(blobs)
    one = replace(SMALL).fit_features(blobs)
    first, second, third = three.D_.members
    assert digest(first.state_dict()) == digest(one.D_.state_dict()), "the first has the seed itself"
    assert len({digest(D.state_dict()) for D in (first, second, third)}) == 3
    assert digest(three.G_.state_dict()) == digest(one.G_.state_dict())
    f = three.normalise(blobs.f, blobs.logits)
    with torch.no_grad():
        mean = (first(f, blobs.labels) + second(f, blobs.labels) + third(f, blobs.labels)).double() / 3
    torch.testing.assert_close(three.log_p2(blobs.f, blobs.logits), torch.nn.functional.logsigmoid(mean), rtol=1e-5, atol=1e-6)
    again = replace(SMALL, members=3).fit_features(blobs)
    assert np.array_equal(again.score(blobs), three.score(blobs))


def test_an_ensemble_stopped_in_its_second_member_keeps_the_first(blobs, tmp_path):
    settings, rest = replace(SMALL, members=3), CountEpochs()
    with pytest.raises(KeyboardInterrupt):
        replace(settings).fit_features(blobs, checkpoint=tmp_path / "bal", callbacks=[StopInTheSecondMember()])
    resumed = replace(settings).fit_features(blobs, checkpoint=tmp_path / "bal", callbacks=[rest])
    assert rest.epochs == 6, "two of the second member, four of the third"
    assert np.array_equal(resumed.score(blobs), replace(settings).fit_features(blobs).score(blobs))


def test_a_member_that_diverges_is_reported(blobs, monkeypatch):
    run, calls = Algorithm1.run, []

    def second_diverges(self, **kwargs):
        calls.append(self)
        result = run(self, **kwargs)
        return replace(result, status="diverged", message="by order") if len(calls) == 2 else result

    monkeypatch.setattr(Algorithm1, "run", second_diverges)
    with pytest.warns(BalWarning, match="BAL diverged: by order"):
        detector = replace(SMALL, members=3).fit_features(blobs)
    assert detector.result_.status == "diverged"
