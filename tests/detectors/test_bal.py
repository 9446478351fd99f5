import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bal.detectors import BAL, log_max_softmax
from bal.detectors.bal import make_sampler
from bal.discrimination import Algorithm1, Callback, GANTraining
from bal.errors import BalWarning, NotFittedError, SettingsError, StorageError
from bal.features import Features, Uniform
from bal.sampling import Gaussian, RandomScaleGaussian

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
        p2 = torch.sigmoid(detector.D_(detector.normalisation_(f), c_hat).double())
    np.testing.assert_allclose(detector.score(Features(f, logits)), torch.log(p1 * p2).numpy(), rtol=1e-6)
    np.testing.assert_allclose(detector.predict(Features(f, logits)).confidence, (p1 * p2).numpy(), rtol=1e-6)


def test_scores_have_no_ties_where_float32_saturates(blobs):
    """The probabilities of logits 40 and 60 apart are both exactly 1 in float32 and float64."""
    logits = torch.tensor([[40.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    assert torch.softmax(logits, 1).max(1).values.tolist() == [1.0, 1.0]
    lower, higher = replace(SMALL).fit_features(blobs).score(Features(blobs.f[:1].repeat(2, 1), logits))
    assert lower < higher


def test_log_max_softmax_by_hand_and_far_beyond_float_range():
    values = log_max_softmax(torch.tensor([[0.0, 0.0, 0.0], [math.log(3), 0.0, -1e9], [1e30, 0.0, 0.0]]))
    assert values.tolist() == pytest.approx([-math.log(3), math.log(0.75), 0.0])


@pytest.mark.parametrize("normalisation", ["identity", "standardise", "l2", "whiten", "l2+standardise", "l2+whiten"])
@pytest.mark.parametrize("conditioning", ["radial", "concatenate"])
def test_every_geometry_and_conditioning_trains(blobs, normalisation, conditioning):
    training = replace(SMALL.training, epochs=25, learning_rate_D=1e-2)
    settings = replace(SMALL, normalisation=normalisation, conditioning=conditioning, training=training)
    detector = settings.fit_features(blobs)
    assert detector.result_.status == "finished"
    assert np.isfinite(detector.score(blobs)).all()


@pytest.mark.parametrize("sampler", ["uniform", "gaussian", "random-scale", "uniform+random-scale"])
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
    def __init__(self):
        self.epochs = 0

    def on_epoch(self, record):
        self.epochs += 1
        if self.epochs == 2:
            raise KeyboardInterrupt


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
    "change", [{"sampler": "gaussian"}, {"hidden_D": (8,)}, {"conditioning": "concatenate"}, {"noise_dim": 5}, {"seed": 1}]
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


@pytest.mark.parametrize(("name", "kind"), [("uniform", Uniform), ("gaussian", Gaussian), ("random-scale", RandomScaleGaussian)])
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
    assert {name: tuple(f.shape) for name, f in groups.items()} == dict.fromkeys(("ID", "trivial", "generated", "hard"), (40, 8))
    assert all(torch.isfinite(f).all() for f in groups.values())
