"""The contract, on every registered detector: shapes, refit, invalid rows, batches, files, wrong use.

Feature detectors are tried on blobs of features; input detectors on a small network over 16-dimensional inputs.
"""

import copy
import dataclasses
import hashlib
import json
import subprocess
import sys
import warnings
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file
from torch import nn

from bal.backbones import Classifier, ClassifierTraining
from bal.bundles import write_bundle
from bal.calibration import conformal_threshold, rows_needed
from bal.detectors import DETECTORS, KNN, Detector, FeatureDetector, load, make_detector
from bal.detectors.files import describe
from bal.detectors.registry import detector_class
from bal.discrimination import GANTraining
from bal.errors import BalError, BalWarning, CalibrationError, DataError, NotFittedError, SettingsError, ShapeError, StorageError
from bal.evaluation import evaluate
from bal.features import Features, extract
from bal.sampling import Epsilon
from bal.seeding import make_generator
from conftest import make_blobs

QUICK_TRAINING = ClassifierTraining(epochs=2, batch_size=32)
QUICK = {  # smaller settings for detectors that train, so that the suite stays quick
    "BAL": {
        "training": GANTraining(epochs=6, batch_size=50, learning_rate_D=1e-3, learning_rate_G=1e-3),
        "hidden_D": (16,),
        "hidden_G": (16,),
    },
    "Generalized ODIN": {"training": QUICK_TRAINING},
    "GCPL": {"training": QUICK_TRAINING},
    "AEC": {"epochs": 60, "hidden": (16,), "code": 8, "learning_rate": 1e-2},
    "kNN": {"k": 5},
    "VOS": {"epochs": 100, "hidden": (32,), "learning_rate": 1e-2},
}


def quick(name: str) -> Detector:
    return make_detector(name, **QUICK.get(name, {}))


@pytest.fixture(scope="module")
def inputs():
    """240 inputs of 3 classes in 16 dimensions, each bright in its own four; 240 outliers bright in the last four."""
    g = make_generator(0)
    labels = torch.arange(240) % 3
    bright = 4 * torch.eye(4).repeat_interleave(4, 1)  # (4, 16): three classes and the outliers
    known = torch.relu(bright[labels] + 0.5 * torch.randn(240, 16, generator=g))
    unknown = torch.relu(bright[3] + 0.5 * torch.randn(240, 16, generator=g))
    return known, labels, unknown


@pytest.fixture(scope="module")
def classifier():
    """A network whose feature is its input and whose head adds up the coordinates of each class, in train mode."""
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(16))
        model[0].bias.zero_()
        model[4].weight.copy_(0.5 * torch.eye(3, 4).repeat_interleave(4, 1))
        model[4].bias.zero_()
    model.train()  # detectors must put it into eval mode themselves, and back
    return Classifier(model)


@pytest.fixture(scope="module")
def fitted(inputs, classifier):
    known, labels, _ = inputs
    return {name: quick(name).fit(classifier, (known, labels), show_progress=False) for name in DETECTORS}


every_detector = pytest.mark.parametrize("name", DETECTORS)
feature_detectors = pytest.mark.parametrize("name", [n for n, kind in DETECTORS.items() if issubclass(kind, FeatureDetector)])
input_detectors = pytest.mark.parametrize("name", [n for n, kind in DETECTORS.items() if not issubclass(kind, FeatureDetector)])


def check_contract(name, inputs, classifier):
    """What any detector must do; also used on a detector that the suite adds itself."""
    known, labels, _ = inputs
    detector = make_detector(name, **QUICK.get(name, {})).fit(classifier, (known, labels), show_progress=False)
    scores = detector.score(known)
    assert scores.shape == (240,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    alone = np.concatenate([detector.score(known[i : i + 1]) for i in range(64)])
    np.testing.assert_allclose(alone, detector.score(known[:64]), rtol=1e-5, atol=1e-5 * np.abs(scores).max())
    again = make_detector(name, **QUICK.get(name, {})).fit(classifier, (known, labels), show_progress=False)
    assert again.score(known).tobytes() == scores.tobytes(), "the same seed, the same bytes"
    return detector


@every_detector
def test_the_contract(name, inputs, classifier):
    check_contract(name, inputs, classifier)


GPUS = [name for name, there in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())) if there]


@every_detector
@pytest.mark.skipif(not GPUS, reason="there is no GPU here")
def test_model_and_inputs_may_be_on_a_gpu(name, inputs, classifier, fitted):
    known, labels, unknown = (tensor.to(GPUS[0]) for tensor in inputs)
    there = Classifier(copy.deepcopy(classifier.model).to(GPUS[0]))
    detector = quick(name).fit(there, (known, labels), show_progress=False).calibrate(known, false_alarm=0.1)
    assert evaluate(detector.score(known), detector.score(unknown)).auroc > 0.95


@every_detector
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_network_and_the_inputs_may_have_any_precision(name, dtype, inputs, classifier, tmp_path):
    known, labels, unknown = inputs
    model = copy.deepcopy(classifier.model).to(dtype)
    detector = quick(name).fit(model, (known.to(dtype), labels), show_progress=False)
    detector.save(tmp_path / "d")
    for one in (detector, load(tmp_path / "d", model)):
        assert evaluate(one.score(known), one.score(unknown)).auroc > 0.95
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}, "the user's own network stays as it is"


@every_detector
def test_two_well_separated_blobs_are_told_apart(name, fitted, inputs):
    known, _, unknown = inputs
    auroc = evaluate(fitted[name].score(known), fitted[name].score(unknown)).auroc
    assert auroc > 0.95


@every_detector
def test_the_classifier_is_left_as_found(name, inputs, classifier):
    known, labels, _ = inputs
    before = classifier.fingerprint()
    quick(name).fit(classifier, (known, labels), show_progress=False).score(known)
    assert classifier.fingerprint() == before
    assert all(module.training for module in classifier.model.modules()), "train mode as before"
    assert all(p.grad is None and p.requires_grad for p in classifier.model.parameters())
    assert not classifier.head._forward_hooks


@every_detector
def test_a_refit_forgets(name, inputs, classifier, fitted):
    known, labels, _ = inputs
    other = (1.1 * known[:120], labels[:120])
    fresh = quick(name).fit(classifier, other, show_progress=False).score(known)
    refitted = quick(name).fit(classifier, (known, labels), show_progress=False).fit(classifier, other, show_progress=False)
    assert np.array_equal(fresh, refitted.score(known))


@every_detector
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_invalid_and_never_accepted(name, bad, inputs, fitted):
    """Fault 1."""
    known = inputs[0][:20].clone()
    known[3, 5] = bad
    answer = fitted[name].predict(known, threshold=-np.inf)
    assert not answer.valid[3]
    assert (answer.label[3], answer.confidence[3], answer.score[3]) == (-1, 0.0, -np.inf)
    assert answer.valid.sum() == 19
    assert (np.delete(answer.label, 3) >= 0).all()


@every_detector
def test_rows_that_are_not_finite_are_left_out_of_the_fit_with_a_warning(name, inputs, classifier, fitted):
    known, labels, _ = inputs
    bad = torch.cat([known, torch.full((2, 16), torch.nan)]), torch.cat([labels, labels[:2]])
    with pytest.warns(BalWarning, match="2 of 242 rows"):
        detector = quick(name).fit(classifier, bad, show_progress=False)
    np.testing.assert_allclose(detector.score(known), fitted[name].score(known), rtol=1e-5, atol=1e-6)


@every_detector
def test_predictions_are_classes_or_minus_one_with_a_confidence_that_rises_with_the_score(name, inputs, fitted):
    known, _, unknown = inputs
    answer = fitted[name].predict(torch.cat([known, unknown]))
    accepted = answer.label >= 0
    assert 0.94 <= accepted[:240].mean() <= 0.96 or len(np.unique(answer.score[:240])) < 200
    assert np.array_equal(accepted, answer.score >= fitted[name].threshold_.item())
    assert ((answer.confidence >= 0) & (answer.confidence <= 1)).all()
    order = np.argsort(answer.score)
    assert (np.diff(answer.confidence[order]) >= -1e-12).all()


@every_detector
def test_save_and_load_give_the_same_scores(name, inputs, classifier, fitted, tmp_path):
    known, _, unknown = inputs
    path = tmp_path / "detector.bal"
    fitted[name].save(path)
    loaded = load(path, classifier)
    assert type(loaded) is type(fitted[name])
    assert dataclasses.asdict(loaded) == dataclasses.asdict(fitted[name])
    for x in (known, unknown):
        assert loaded.score(x).tobytes() == fitted[name].score(x).tobytes()
    assert np.array_equal(loaded.predict(known).label, fitted[name].predict(known).label)


NEW_PROCESS = """
import hashlib, json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file
from torch import nn
from bal.backbones import Classifier
from bal.detectors import load
torch.set_num_threads(1)
weights = load_file(Path(sys.argv[1]) / "weights")
x = weights.pop("x")
model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
model.load_state_dict(weights)
detectors = {path.stem: load(path, Classifier(model)) for path in Path(sys.argv[1]).glob("*.bal")}
print(json.dumps({name: hashlib.sha256(d.score(x).tobytes()).hexdigest() for name, d in detectors.items()}))
"""


def test_a_new_process_reads_every_detector_and_gives_the_same_bytes(inputs, classifier, fitted, tmp_path):
    x = torch.cat([inputs[0], inputs[2]])
    save_file({**classifier.model.state_dict(), "x": x}, tmp_path / "weights")
    for name, detector in fitted.items():
        detector.save(tmp_path / f"{name}.bal")
    command = [sys.executable, "-W", "ignore", "-c", NEW_PROCESS, str(tmp_path)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told == {name: hashlib.sha256(detector.score(x).tobytes()).hexdigest() for name, detector in fitted.items()}
    assert len(told) == len(DETECTORS)


@every_detector
@pytest.mark.parametrize("per_class", [False, True])
def test_calibration_chooses_the_threshold_gives_p_values_and_is_saved(name, per_class, inputs, classifier, fitted, tmp_path):
    known, _, unknown = inputs
    x = torch.cat([known, unknown])
    detector = copy.deepcopy(fitted[name])
    assert np.isnan(detector.predict(x).p_value).all(), "no p-value before calibration"
    answer = detector.calibrate(known[:150], false_alarm=0.1, per_class=per_class).predict(x)
    assert ((answer.p_value > 0) & (answer.p_value <= 1)).all()
    assert np.array_equal(answer.label == -1, answer.p_value <= 0.1)
    assert (answer.label[:150] == -1).sum() <= 15
    detector.save(tmp_path / "detector.bal")
    loaded = load(tmp_path / "detector.bal", classifier)
    assert loaded.predict(x).to_structured().tobytes() == answer.to_structured().tobytes()
    assert loaded.calibration_.false_alarms() == detector.calibration_.false_alarms()
    by_hand = detector.predict(x, threshold=-1e300)
    assert (by_hand.label >= 0).all(), "a threshold of one's own goes before the calibrated one"


@every_detector
def test_calibration_rows_without_a_score_are_refused_by_name_and_the_old_threshold_stays(name, inputs, fitted):
    """Faults 3 and 19."""
    known = inputs[0].clone()
    detector = copy.deepcopy(fitted[name]).calibrate(known, false_alarm=0.1)
    before = detector.predict(known).to_structured().tobytes()
    known[3, 5], known[17, 0] = torch.nan, torch.inf
    with pytest.raises(CalibrationError, match="2 of 240 calibration rows have no finite score: rows 3, 17"):
        detector.calibrate(known)
    with pytest.raises(CalibrationError, match="at least 99 calibration rows, got 20"):
        detector.calibrate(inputs[0][:20], false_alarm=0.01)
    with pytest.raises(CalibrationError, match=r"too few for \{class: rows\} \{0: \d+, 1: \d+, 2: \d+\}"):
        detector.calibrate(inputs[0][:30], per_class=True)
    assert detector.predict(inputs[0]).to_structured().tobytes() == before


def test_a_refit_forgets_the_calibration(inputs, classifier, fitted):
    known, labels, _ = inputs
    detector = quick("energy").fit(classifier, (known, labels), show_progress=False).calibrate(known, per_class=True)
    detector.fit(classifier, (known, labels), show_progress=False)
    assert detector.calibration_ is None
    assert np.array_equal(detector.predict(known).label, fitted["energy"].predict(known).label)


@pytest.fixture(scope="module")
def draws():
    """2,000 times n calibration rows and a new row among 240 of the same data, by number."""
    rng = np.random.default_rng(0)
    return {n: rng.integers(240, size=(2000, n + 1)) for n in (20, 100, 1000)}


@every_detector
@pytest.mark.parametrize("n", [20, 100, 1000])
def test_false_alarms_over_2000_draws_keep_to_the_asked_rate(name, n, inputs, fitted, draws):
    """The promise depends on scores alone, so each draw resamples the detector's own: 240 values, with ties."""
    scores = fitted[name].score(inputs[0])[draws[n]]
    for alpha in (0.01, 0.05, 0.1):
        if n < rows_needed(alpha):
            with pytest.raises(CalibrationError, match=f"at least {rows_needed(alpha)} calibration rows, got {n}"):
                conformal_threshold(scores[:, :n], alpha)
        else:
            rate = (scores[:, n] < conformal_threshold(scores[:, :n], alpha)).mean()
            assert rate <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / 2000)


@pytest.mark.parametrize("name", ["energy", "Mahalanobis"])
def test_false_alarms_of_calibrate_and_predict_themselves_keep_to_the_asked_rate(name):
    """2,000 draws of fresh ID rows through the whole detector: 20 to calibrate by, one to judge."""
    detector = quick(name).fit_features(make_blobs(90))
    new = make_blobs(2000 * 21, seed=1)
    new = new.rows(torch.randperm(len(new), generator=make_generator(2)))
    alarms = []
    for start in range(0, len(new), 21):
        detector.calibrate(new.rows(slice(start, start + 20)), false_alarm=0.1)
        alarms.append(detector.predict(new.rows(slice(start + 20, start + 21))).label[0] == -1)
    expected = 2 / 21
    assert abs(np.mean(alarms) - expected) <= 3 * np.sqrt(expected * (1 - expected) / 2000)


@every_detector
def test_state_is_tensors_and_holds_no_row_of_another_fit(name, fitted):
    state = fitted[name].state()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    assert {"sizes", "threshold_", "ranks_"} <= state.keys()


@every_detector
@pytest.mark.filterwarnings("ignore:Initializing zero-element")  # an auto-encoder of inputs that are not known
def test_a_file_that_lacks_a_tensor_is_refused_when_it_is_loaded_or_does_without(name, inputs, classifier, fitted, tmp_path):
    """Fault 11: the digests are right, so only the content can tell."""
    detector = copy.deepcopy(fitted[name]).calibrate(inputs[0], false_alarm=0.1, per_class=True)
    state, manifest, scores = detector.state(), describe(detector), detector.score(inputs[0])
    modules = {key.partition(".")[0] + "." for key in state if "." in key}
    refused = set()
    for missing in [*state, *modules]:
        rest = {key: tensor for key, tensor in state.items() if key != missing and not (missing[-1] == "." and missing in key)}
        write_bundle(tmp_path / "d.bal", manifest, {"tensors.safetensors": save(rest)})
        try:
            other = load(tmp_path / "d.bal", classifier)
        except StorageError:
            refused.add(missing)
        else:
            assert other.predict(inputs[0]).score.tobytes() == scores.tobytes(), missing
    assert {"sizes", "threshold_", "ranks_", "calibration_rows", "calibration_scores", *modules} <= refused


def test_a_file_whose_tensors_are_not_what_they_should_be_is_refused(inputs, classifier, fitted, tmp_path):
    """Fault 11."""
    detector = copy.deepcopy(fitted["Mahalanobis"]).calibrate(inputs[0], false_alarm=0.1, per_class=True)
    state, manifest, nan = detector.state(), describe(detector), torch.tensor(torch.nan)
    reserved = ("calibration_", "classifier_", "sizes_", "spec_", "class_names_", "belongs_to_", "__class__", "__dict__", "x.y")
    changes = [{key: torch.zeros(1)} for key in reserved]
    changes += [{key: torch.zeros(0)} for key in ("threshold_", "ranks_", "means_", "factor_", "sizes")]
    changes += [{"threshold_": nan}, {"ranks_": nan.expand(1001)}, {"threshold_": torch.zeros(2)}, {"means_": torch.zeros(3, 4)}]
    changes += [{"false_alarm": torch.tensor(2.0)}, {"calibration_scores": nan.expand(240)}]
    changes += [{"calibration_rows": torch.tensor([120, 120])}, {"calibration_rows": torch.tensor([1])}]
    for change in changes:
        tensors = {key: tensor.contiguous() for key, tensor in {**state, **change}.items()}
        write_bundle(tmp_path / "d.bal", manifest, {"tensors.safetensors": save(tensors)})
        with pytest.raises(StorageError):
            load(tmp_path / "d.bal", classifier)


@every_detector
def test_unfitted_use_is_refused(name, inputs):
    with pytest.raises(NotFittedError, match="not fitted"):
        quick(name).score(inputs[0])


@every_detector
def test_inputs_of_another_shape_are_refused(name, inputs, fitted):
    """Fault 5."""
    with pytest.raises(ShapeError, match=r"\(N, 16\), got \(2, 17\)"):
        fitted[name].score(torch.zeros(2, 17))


@every_detector
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, c: x, "needs labels"),
        (lambda x, c: (x[:0], c[:0]), "empty"),
        (lambda x, c: (x, torch.zeros_like(c)), r"\{1: 0, 2: 0\}"),
        (lambda x, c: (x[:4], c[:4]), r"\{1: 1, 2: 1\}"),
        (lambda x, c: (x, c + 1), "labels must be 0 to 2"),
        (lambda x, c: (torch.full_like(x, torch.nan), c), "no row is finite"),
    ],
    ids=["no labels", "empty", "one class", "one row of a class", "foreign labels", "all NaN"],
)
def test_training_sets_without_a_boundary_to_learn_are_refused(name, change, words, inputs, classifier):
    """Fault 18."""
    with pytest.raises(DataError, match=words):
        quick(name).fit(classifier, change(*inputs[:2]), show_progress=False)


@every_detector
def test_a_refused_refit_keeps_the_old_detector_and_a_broken_one_leaves_none(name, inputs, classifier, monkeypatch):
    known, labels, _ = inputs
    detector = quick(name).fit(classifier, (known, labels), show_progress=False)
    scores = detector.score(known)
    with pytest.raises(DataError):
        detector.fit(classifier, (known, labels + 1), show_progress=False)
    assert np.array_equal(detector.score(known), scores)

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(detector), "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        detector.fit(classifier, (known, labels), show_progress=False)
    with pytest.raises(NotFittedError):
        detector.score(known)


@feature_detectors
def test_feature_detectors_read_features_and_need_no_classifier_then(name, inputs, classifier, fitted):
    known, labels, unknown = inputs
    features = extract(classifier, (known, labels))
    detector = quick(name).fit_features(features)
    assert np.array_equal(detector.score(extract(classifier, unknown)), fitted[name].score(unknown))
    with pytest.raises(NotFittedError, match="no classifier to read inputs with"):
        detector.score(unknown)
    with pytest.raises(ShapeError, match=r"features must be \(N, 16\), got \(2, 9\)"):
        detector.score(Features(torch.zeros(2, 9), torch.zeros(2, 3)))
    with pytest.raises(ShapeError, match=r"logits must be \(N, 3\), got \(2, 4\)"):
        detector.score(Features(torch.zeros(2, 16), torch.zeros(2, 4)))


@feature_detectors
def test_features_alone_go_from_fit_to_calibrated_answers_and_files(name, inputs, classifier, tmp_path):
    known, labels, unknown = inputs
    train, held_out = extract(classifier, (known, labels)), extract(classifier, known)
    own = Features(train.f.numpy(), train.logits.numpy(), labels.numpy(), head=train.head)  # arrays, no model
    detector = quick(name).fit_features(own).calibrate(held_out, false_alarm=0.1)
    detector.save(tmp_path / "d")
    answer = load(tmp_path / "d").predict(extract(classifier, unknown))
    assert answer.to_structured().tobytes() == detector.predict(extract(classifier, unknown)).to_structured().tobytes()
    assert (answer.label == -1).mean() > 0.5


@pytest.mark.parametrize("name", ["ODIN", "AEC"])
def test_an_input_detector_loaded_without_its_classifier_says_that_it_needs_one(name, inputs, fitted, tmp_path):
    fitted[name].save(tmp_path / "d")
    with pytest.raises(NotFittedError, match="no classifier to read inputs with"):
        load(tmp_path / "d").score(inputs[0])


@input_detectors
def test_input_detectors_refuse_features(name, inputs, classifier, fitted):
    with pytest.raises(DataError, match="needs the inputs themselves"):
        fitted[name].score(extract(classifier, inputs[0]))


head_detectors = pytest.mark.parametrize("name", ["ViM", "fDBD", "NCI", "ReAct", "ASH", "SCALE", "DICE"])


@head_detectors
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_head_detectors_refuse_weights_that_are_not_finite(name, bad, inputs, classifier):
    train = extract(classifier, inputs[:2], show_progress=False)
    for part in (0, 1):
        head = [tensor.numpy().copy() for tensor in train.head]
        head[part][0] = bad
        with pytest.raises(DataError, match="weights of the last layer are not finite"):
            quick(name).fit_features(Features(train.f, train.logits, train.labels, head=head))


@head_detectors
def test_head_detectors_say_that_they_need_the_last_layer(name):
    with pytest.raises(DataError, match="needs the weights of the last layer"):
        quick(name).fit_features(Features(torch.randn(12, 4), 9 * torch.eye(3).repeat(4, 1), torch.arange(12) % 3))


def test_numbers_so_large_that_a_score_overflows_are_invalid(inputs, classifier, fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = fitted["Mahalanobis"].predict(inputs[0][:2] * 1e30, threshold=-np.inf)
    assert answer.valid.sum() == 0 or np.isfinite(answer.score[answer.valid]).all()


def test_labels_below_chance_are_warned_of(inputs, classifier):
    known, labels, _ = inputs
    with pytest.warns(BalWarning, match="less than by chance"):
        quick("energy").fit(classifier, (known, (labels + 1) % 3), show_progress=False)


@pytest.mark.parametrize(("name", "threshold"), [("energy", np.nan), ("max-softmax", 0.5), ("BAL", 0.5), ("BAL", np.nan)])
def test_a_threshold_that_would_reject_everything_is_refused(inputs, fitted, name, threshold):
    with pytest.raises(DataError, match="would reject everything"):
        fitted[name].predict(inputs[0], threshold=threshold)
    fitted["energy"].predict(inputs[0], threshold=0.5)


@pytest.mark.parametrize("name", ["energy", "BAL"])
@pytest.mark.parametrize("threshold", ["a", "-3", [1.0, 2.0], np.array([-1.0, -2.0]), np.zeros(240), True, 1j, {}, 10**400])
def test_a_threshold_that_is_no_single_number_is_refused(inputs, fitted, name, threshold):
    with pytest.raises(DataError, match="must be a single number"):
        fitted[name].predict(inputs[0], threshold=threshold)
    with pytest.raises(DataError, match="must be a single number"):
        fitted[name].decide(fitted[name].scored(inputs[0]), threshold=threshold)


@pytest.mark.parametrize("kind", [int, np.float32, np.array, torch.tensor])
def test_a_threshold_may_be_any_kind_of_number(inputs, fitted, kind):
    expected = fitted["energy"].predict(inputs[0], threshold=7.0).label
    assert np.array_equal(fitted["energy"].predict(inputs[0], threshold=kind(7.0)).label, expected)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("energy", {"temperature": 0}),
        ("ODIN", {"temperature": -1}),
        ("ODIN", {"epsilon": -1e-3}),
        ("ReAct", {"percentile": 900}),
        ("ASH", {"percentile": -900}),
        ("SCALE", {"percentile": float("nan")}),
        ("DICE", {"sparsity": 2}),
        ("GEN", {"M": 0}),
    ],
)
def test_nonsense_settings_are_refused_at_once(name, settings):
    with pytest.raises(SettingsError):
        make_detector(name, **settings)


def numeric_settings():
    """(class, setting, whether it is whole, whether None is a choice) of all detectors and of the settings inside their own."""
    kinds = list(DETECTORS.values())
    for kind in kinds:
        hints = get_type_hints(kind)
        for item in dataclasses.fields(kind):
            parts = set(get_args(hints[item.name])) or {hints[item.name]}
            if parts & {int, float}:
                yield pytest.param(kind, item.name, float not in parts, type(None) in parts, id=f"{kind.__name__}-{item.name}")
            elif dataclasses.is_dataclass(hints[item.name]) and hints[item.name] not in kinds:
                kinds.append(hints[item.name])


@pytest.mark.parametrize(("kind", "name", "whole", "optional"), list(numeric_settings()))
def test_every_numeric_setting_refuses_nonsense(kind, name, whole, optional):
    nonsense = [float("nan"), float("inf"), "3", True, 10**400, [1], (float("nan"),), (-1,), *([2.5] if whole else [])]
    nonsense += [] if optional else [None]
    nonsense += [] if (kind, name) == (Epsilon, "mean") else [-1]  # a mean alone may be negative
    for value in nonsense:
        with pytest.raises(SettingsError, match=name):
            kind(**{name: value})


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("Generalized ODIN", {"similarity": "euclidian"}, "did you mean 'euclidean'"),
        ("ViM", {"principal": 0}, "principal must be a whole number of 1 or more or None"),
        ("AEC", {"batch_size": 0}, "batch_size"),
        ("AEC", {"epochs": 0}, "epochs"),
        ("VOS", {"candidates": 0}, "candidates"),
        ("GCPL", {"gamma": 0.0}, "gamma"),
    ],
)
def test_settings_that_no_fit_can_use_are_refused_at_once(name, settings, words):
    with pytest.raises(SettingsError, match=words):
        make_detector(name, **settings)


def test_vim_refuses_a_subspace_that_leaves_no_residual(inputs, classifier):
    with pytest.raises(SettingsError, match="principal must be a whole number from 1 to 15"):
        make_detector("ViM", principal=16).fit(classifier, inputs[:2], show_progress=False)


def test_a_fitted_detector_can_be_copied(inputs, fitted):
    twin = copy.deepcopy(fitted["BAL"])
    assert np.array_equal(twin.score(inputs[0]), fitted["BAL"].score(inputs[0]))


@every_detector
def test_a_replica_has_the_same_tensors_in_the_same_memory_and_modules_of_its_own(name, inputs, classifier, fitted):
    detector, other = fitted[name], fitted[name].replica(classifier.replica())
    assert other.classifier_ is not classifier
    for key, tensor in detector.state().items():
        if key.endswith("_") or "." in key:
            assert other.state()[key].data_ptr() == tensor.data_ptr()
    modules, others = (
        {module for value in vars(each).values() if isinstance(value, nn.Module) for module in value.modules()}
        for each in (detector, other)
    )
    assert len(modules) == len(others)
    assert not modules & others
    assert other.score(inputs[0][:8]).tobytes() == detector.score(inputs[0][:8]).tobytes()


def test_a_detector_may_be_named_by_its_class():
    assert type(make_detector("VirtualOutliers")) is type(make_detector("VOS"))


def test_a_detector_of_another_classifier_is_refused(inputs, fitted, tmp_path):
    """Fault 16."""
    fitted["energy"].save(tmp_path / "d")
    other = Classifier(nn.Sequential(nn.Linear(16, 12), nn.Linear(12, 3)))
    with pytest.raises(StorageError, match="another classifier"):
        load(tmp_path / "d", other)


def test_a_plain_module_is_wrapped(inputs, classifier):
    known, labels, _ = inputs
    by_module = quick("energy").fit(classifier.model, (known, labels), show_progress=False)
    assert np.array_equal(by_module.score(known), quick("energy").fit(classifier, (known, labels)).score(known))


@feature_detectors
def test_features_may_be_fitted_with_a_plain_module_to_read_inputs_by(name, inputs, classifier, fitted):
    features = extract(classifier, inputs[:2], show_progress=False)
    detector = quick(name).fit_features(features, classifier=classifier.model)
    assert np.array_equal(detector.score(inputs[0]), fitted[name].score(inputs[0]))
    with pytest.raises(BalError, match="must be a torch"):
        detector.fit_features(features, classifier="resnet")


@pytest.mark.parametrize(("typed", "meant"), [("mahalanobis+", "Mahalanobis"), ("knnn", "kNN"), ("max softmax", "max-softmax")])
def test_an_unknown_name_is_answered_with_did_you_mean(typed, meant):
    with pytest.raises(BalError, match=rf"no detector '{typed.replace('+', '.')}'.*did you mean.*{meant}"):
        detector_class(typed)
    with pytest.raises(BalError, match="known: BAL, max-softmax"):
        detector_class("zzzzzzzz")


@dataclasses.dataclass(eq=False)
class Sharpness(FeatureDetector):
    """A new detector: the gap between the two largest logits. One class, one registry line, nothing else."""

    def _fit(self, f, logits, c):
        self.typical_gap_ = self.gap(logits).median()

    def gap(self, logits):
        top = logits.double().topk(2, 1).values
        return top[:, 0] - top[:, 1]

    def _score(self, f, logits):
        return self.gap(logits) / self.typical_gap_


def test_adding_a_detector_takes_one_class_and_one_registry_line(inputs, classifier, monkeypatch, tmp_path):
    monkeypatch.setitem(DETECTORS, "sharpness", Sharpness)
    detector = check_contract("sharpness", inputs, classifier)
    detector.save(tmp_path / "d")
    assert np.array_equal(load(tmp_path / "d", classifier).score(inputs[0]), detector.score(inputs[0]))


def test_knn_refuses_a_k_that_the_bank_does_not_have(inputs, classifier):
    with pytest.raises(DataError, match="k must be 1 to 240"):
        KNN(k=241).fit(classifier, inputs[:2], show_progress=False)
