"""Graphs answer as torch does, in onnxruntime and in torch.export; those that do not are never written."""

import json
import os
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import bal
from bal import export
from bal.backbones import Classifier, DenseNetBC, Normalise, ResNet18
from bal.data.catalog import load_data_set
from bal.detectors import make_detector
from bal.discrimination import GANTraining
from bal.errors import DataError, ExportError, NotFittedError
from bal.experiments.checkpoints import load_checkpoint
from bal.export import export_detector
from bal.features import extract
from bal.seeding import make_generator

SMALL = bal.BAL(hidden_D=(16,), hidden_G=(16,), noise_dim=4, training=GANTraining(epochs=2))


def fitted(classifier, data, **settings):
    detector = replace(SMALL, **settings).fit(classifier, data, show_progress=False)
    return detector.calibrate(data[0], false_alarm=0.1)


def teach(classifier, x, labels):
    """Let the last layer know the classes, by least squares."""
    f = torch.cat([classifier(x)[0], torch.ones(len(x), 1)], 1)
    W = torch.linalg.lstsq(f, 9 * nn.functional.one_hot(labels).float(), driver="gelsd").solution
    with torch.no_grad():
        classifier.head.weight.copy_(W[:-1].T)
        classifier.head.bias.copy_(W[-1])


@pytest.fixture
def tiny_classifier(tiny_classifier, tiny_images):
    teach(tiny_classifier, *tiny_images)
    return tiny_classifier


@pytest.fixture
def detector(tiny_classifier, tiny_images):
    return fitted(tiny_classifier, tiny_images)


def run_onnx(path, x, threshold):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(
        ["label", "confidence", "is_ood", "log_score"], {"input": np.asarray(x), "threshold": np.asarray(threshold, np.float64)}
    )


def run_pt2(path, x, threshold):
    module = torch.export.load(path).module()
    return [out.numpy() for out in module(torch.as_tensor(x), torch.as_tensor(threshold, dtype=torch.float64))]


RUN = {".onnx": run_onnx, ".pt2": run_pt2}
each_format = pytest.mark.parametrize("suffix", [".onnx", pytest.param(".pt2", marks=pytest.mark.filterwarnings("ignore"))])


def large_networks():
    g = make_generator(0)
    resnet = ResNet18(channels=3, classes=3, width=4, generator=g)
    densenet = DenseNetBC(classes=3, depth=10, growth=4, generator=g)
    normalised = Classifier(densenet, preprocess=Normalise((0.4, 0.5, 0.6), (0.2, 0.2, 0.3)))
    return {"ResNet18": Classifier(resnet), "DenseNetBC": normalised}


@each_format
def test_the_graph_answers_as_torch_does_for_any_number_of_rows(detector, tiny_images, tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    done = export_detector(detector, path, data=tiny_images)
    assert (done.random.rows, done.real.rows) == (21, 60)
    assert max(done.random.largest, done.real.largest) < 1e-4
    for rows in (1, 3, 17):
        x = tiny_images[0][:rows]
        label, confidence, is_ood, score = RUN[suffix](path, x, detector.threshold_)
        expected = detector.predict(x)
        np.testing.assert_array_equal(is_ood, label == -1)
        np.testing.assert_allclose(score, expected.score, rtol=2e-5, atol=1e-4)
        np.testing.assert_allclose(confidence, expected.confidence, rtol=0, atol=1e-4)
        clear = np.abs(expected.score - detector.threshold_.item()) > 1e-4
        np.testing.assert_array_equal(label[clear], expected.label[clear])
        assert (label.dtype, is_ood.dtype, label.shape) == (np.int64, np.bool_, (rows,))


@each_format
@pytest.mark.parametrize("name", ["ResNet18", "DenseNetBC"])
def test_the_networks_of_the_paper_can_be_exported(name, suffix, tiny_images, tmp_path):
    classifier = large_networks()[name]
    x, labels = tiny_images
    x = x.repeat(1, 3, 1, 1).repeat_interleave(4, 2).repeat_interleave(4, 3)  # 3 x 16 x 16
    x = x + 0.1 * torch.rand(x.shape, generator=make_generator(1))
    teach(classifier, x, labels)
    detector = fitted(classifier, (x, labels))
    before = classifier.fingerprint()
    done = export_detector(detector, tmp_path / f"model{suffix}", data=x)
    assert done.real.largest < 1e-4
    label, *_, score = RUN[suffix](tmp_path / f"model{suffix}", x[:5], -np.inf)
    assert score.mean() > -5
    np.testing.assert_array_equal(label, detector.predict(x[:5], threshold=-np.inf).label)
    np.testing.assert_allclose(score, detector.score(x[:5]), rtol=0, atol=1e-4)
    assert classifier.fingerprint() == before
    assert all(module.training for module in classifier.model.modules())


def check_parity(classifier, x, labels, path):
    """The file answers as torch does on the rows it was fitted on."""
    detector = fitted(classifier, (x, labels))
    done = export_detector(detector, path, data=x)
    assert done.real.rows == len(x)
    assert done.real.largest < 1e-4
    label, confidence, is_ood, score = RUN[path.suffix](path, x, detector.threshold_)
    expected = detector.predict(x)
    np.testing.assert_allclose(score, expected.score, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(confidence, expected.confidence, rtol=0, atol=1e-4)
    clear = np.abs(expected.score - detector.threshold_.item()) > 1e-4
    np.testing.assert_array_equal(label[clear], expected.label[clear])
    np.testing.assert_array_equal(is_ood, label == -1)


@each_format
def test_a_resnet18_of_full_size_answers_the_same(tmp_path, suffix):
    g = make_generator(0)
    classifier, labels = Classifier(ResNet18(channels=3, classes=3, generator=g)), torch.arange(21) % 3
    x = 0.2 * torch.rand(21, 3, 32, 32, generator=g)
    x[torch.arange(21), labels] += 0.7  # red, green, blue
    with torch.no_grad():
        teach(classifier, x, labels)
    check_parity(classifier, x, labels, tmp_path / f"model{suffix}")


@pytest.mark.skipif(
    not (os.environ.get("BAL_WEIGHTS") and os.environ.get("BAL_DATA")),
    reason="BAL_WEIGHTS and BAL_DATA name no real weights and data",
)
@each_format
def test_the_papers_densenet_with_its_real_weights_answers_the_same_on_real_images(tmp_path, suffix):
    images, labels = load_data_set("cifar10", "test")
    rows = np.concatenate([np.flatnonzero(labels == c)[:2] for c in range(10)])
    x = torch.from_numpy(images[rows]).float() / 255
    check_parity(load_checkpoint("densenet-cifar10"), x, torch.from_numpy(labels[rows]), tmp_path / f"model{suffix}")


def test_the_threshold_is_an_input(detector, tiny_images, tmp_path):
    path, x = tmp_path / "model.onnx", tiny_images[0][:20]
    export_detector(detector, path)
    score = run_onnx(path, x, 0.0)[3]
    between = float(np.median(score)) + 1e-9
    classes = run_onnx(path, x, -np.inf)[0]
    assert (classes >= 0).all()
    np.testing.assert_array_equal(run_onnx(path, x, between)[0], np.where(score >= between, classes, -1))
    assert (run_onnx(path, x, 0.0)[0] == -1).all()
    assert (run_onnx(path, x, np.nan)[0] == -1).all()


@each_format
def test_rows_that_are_not_finite_are_never_accepted(detector, tiny_images, tmp_path, suffix):
    """Whatever the threshold, and without harm to the rows beside them."""
    path = tmp_path / f"model{suffix}"
    export_detector(detector, path)
    x = tiny_images[0][:4].clone()
    x[0, 0, 0, 0], x[1, 0, 3, 3], x[2] = torch.nan, torch.inf, -torch.inf
    label, confidence, is_ood, score = RUN[suffix](path, x, -np.inf)
    assert label[:3].tolist() == [-1, -1, -1]
    assert is_ood.tolist() == [True, True, True, False]
    assert confidence[:3].tolist() == [0, 0, 0]
    assert (score[:3] == -np.inf).all()
    np.testing.assert_allclose(score[3:], detector.score(tiny_images[0][3:4]), atol=1e-4)


def test_numbers_that_overflow_in_the_network_are_never_accepted(detector, tmp_path):
    export_detector(detector, tmp_path / "model.onnx")
    label, confidence, *_ = run_onnx(tmp_path / "model.onnx", np.full((1, 1, 4, 4), 3e38, np.float32), -np.inf)
    assert (label.item(), confidence.item()) == (-1, 0)


def test_the_weights_in_the_file_ask_for_no_gradients_and_those_outside_stay_as_they_were(detector, tmp_path):
    export_detector(detector, tmp_path / "model.pt2")
    assert all(weight.requires_grad for weight in detector.classifier_.model.parameters())


def test_thresholds_for_each_class_are_a_vector(tiny_classifier, tiny_images, tmp_path):
    x = tiny_images[0]
    with torch.no_grad():
        own = tiny_classifier(x)[1].argmax(1)
    shift = torch.tensor([0.0, 0.0, 1.0])
    detector = fitted(tiny_classifier, tiny_images)
    detector.threshold_ = detector.threshold_ - shift.double()
    export_detector(detector, tmp_path / "model.onnx", data=x)
    everything, nothing = -np.inf, 0.0
    label = run_onnx(tmp_path / "model.onnx", x, [everything, nothing, everything])[0]
    np.testing.assert_array_equal(label, np.where(own == 1, -1, own))


def test_the_file_says_what_it_is(detector, tmp_path):
    detector.class_names_ = ("ant", "bee", "cow")
    export_detector(detector, tmp_path / "model.onnx")
    said = {prop.key: prop.value for prop in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(said["bal.threshold"]) == detector.threshold_.item()
    assert json.loads(said["bal.false_alarm"]) == 0.1
    assert json.loads(said["bal.class_names"]) == ["ant", "bee", "cow"]
    assert said["bal.fingerprint"] == detector.classifier_.fingerprint()
    export_detector(detector, tmp_path / "model.pt2")
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        name = next(name for name in archive.namelist() if name.endswith("bal.json"))
        assert json.loads(archive.read(name)) == said


@each_format
@pytest.mark.parametrize(
    ("output", "change", "words"),
    [
        (3, lambda score: 1.001 * score, "log confidence of the graph is .* off that of torch"),
        (0, lambda label: torch.where(label >= 0, (label + 1) % 3, label), "same labels"),
        (1, lambda confidence: confidence / 2 + 0.3, "same confidence"),
        (3, lambda score: score.nan_to_num(neginf=-5.0), "which rows are invalid"),
    ],
)
def test_a_graph_that_disagrees_is_not_written(detector, tmp_path, monkeypatch, suffix, output, change, words):
    right = export.Guarded.forward

    def wrong(self, x, threshold):
        answers = list(right(self, x, threshold))
        answers[output] = change(answers[output])
        return tuple(answers)

    monkeypatch.setattr(export.Guarded, "forward", wrong)
    with pytest.raises(ExportError, match=words):
        export_detector(detector, tmp_path / f"model{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:BAL collapsed")
@pytest.mark.parametrize(
    "settings",
    [
        {"conditioning": "concatenate", "normalisation": "identity"},
        {"conditioning": "centred", "members": 2},
        {"conditioning": "projection", "spectral_norm": True, "normalisation": "l2+whiten+residual"},
        {"conditioning": "radial", "evidence": "length", "dropout": 0.2, "prior_quantile": 0.1, "temperature": 2.0},
    ],
    ids=lambda settings: settings["conditioning"],
)
def test_every_kind_of_bal_can_be_exported(tiny_classifier, tiny_images, tmp_path, settings):
    export_detector(fitted(tiny_classifier, tiny_images, **settings), tmp_path / "model.onnx", data=tiny_images)


def test_a_loaded_detector_gives_the_same_file(detector, tiny_classifier, tiny_images, tmp_path):
    detector.save(tmp_path / "d")
    export_detector(detector, tmp_path / "a.onnx")
    export_detector(bal.load(tmp_path / "d", tiny_classifier), tmp_path / "b.onnx")
    x = tiny_images[0]
    for one, other in zip(run_onnx(tmp_path / "a.onnx", x, -1.0), run_onnx(tmp_path / "b.onnx", x, -1.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_token_ids_can_be_exported(tmp_path):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, ids):
            return self.head(self.embedding(ids).mean(1))

    ids = torch.randint(9, (60, 5), generator=make_generator(0))
    detector = fitted(Classifier(Tokens()), (ids, torch.arange(60) % 3))
    export_detector(detector, tmp_path / "model.onnx", data=ids)
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", ids, 0.0)[3], detector.score(ids), atol=1e-4)


def test_what_cannot_be_exported_is_refused(detector, tiny_classifier, tiny_images, tmp_path):
    with pytest.raises(DataError, match=r"must end in \.onnx or \.pt2"):
        export_detector(detector, tmp_path / "model.zip")
    with pytest.raises(NotFittedError, match="not fitted"):
        export_detector(bal.BAL(), tmp_path / "model.onnx")
    energy = make_detector("energy").fit(tiny_classifier, tiny_images, show_progress=False)
    with pytest.raises(ExportError, match="only BAL can be exported, not energy"):
        export_detector(energy, tmp_path / "model.onnx")
    features = replace(extract(tiny_classifier, tiny_images, show_progress=False), spec=None)
    alone = replace(SMALL).fit_features(features)
    with pytest.raises(NotFittedError, match="no classifier"):
        export_detector(alone, tmp_path / "model.onnx")
    alone.classifier_ = tiny_classifier
    with pytest.raises(DataError, match="shape of inputs is not known"):
        export_detector(alone, tmp_path / "model.onnx")
    export_detector(alone, tmp_path / "model.pt2", data=tiny_images)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]


def test_a_network_whose_steps_depend_on_values_is_refused(tiny_images, tmp_path):
    class Fickle(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            return self.head(x.flatten(1) if x.sum() > 0 else -x.flatten(1))

    classifier = Classifier(Fickle())
    teach(classifier, *tiny_images)
    detector = fitted(classifier, tiny_images)
    with pytest.raises(ExportError, match="cannot be traced"):
        export_detector(detector, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
