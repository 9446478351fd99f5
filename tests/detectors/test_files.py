"""Detectors on disk. That every detector survives the round trip is in test_contract.py."""

import copy
import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

import bal
from bal.bundles import MANIFEST, write_bundle
from bal.detectors import BAL, make_detector
from bal.detectors.files import BEFORE, SCHEMA, describe, read
from bal.discrimination import GANTraining
from bal.errors import DataError, StorageError
from bal.sampling import Epsilon
from bomb import Bomb
from killing import kills_while_saving, seconds_in_a_child

NOBODY = 65534


@pytest.fixture
def detector(tiny_classifier, tiny_images):
    return make_detector("energy", temperature=2.0).fit(tiny_classifier, tiny_images, show_progress=False)


@pytest.mark.parametrize("name", ["detector", "detector.bal"])
def test_names_settings_and_thresholds_come_back(detector, tiny_classifier, tiny_images, tmp_path, name):
    detector.calibrate(tiny_images[0], false_alarm=0.1)
    detector.save(tmp_path / name, class_names=["a", "b", "c"])
    again = bal.load(tmp_path / name, tiny_classifier)
    assert again.class_names_ == ("a", "b", "c")
    assert again.temperature == 2.0
    assert again.predict(tiny_images[0]).to_structured().tobytes() == detector.predict(tiny_images[0]).to_structured().tobytes()
    again.save(tmp_path / "copy.bal")
    assert read(tmp_path / "copy.bal")[0]["class_names"] == ["a", "b", "c"], "names are kept"


def test_the_manifest_tells_people_what_is_inside(detector, tiny_images, tmp_path):
    detector.calibrate(tiny_images[0], false_alarm=0.1).save(tmp_path / "d")
    manifest = json.loads((tmp_path / "d" / MANIFEST).read_text())
    assert (manifest["schema"], manifest["detector"], manifest["settings"]) == (SCHEMA, "energy", {"temperature": 2.0})
    assert (manifest["features"], manifest["classes"], manifest["input_shape"]) == (6, 3, [1, 4, 4])
    assert manifest["calibration"] == {"false_alarm": 0.1, "rows": [60]}
    assert manifest["threshold"] == detector.threshold_.item()
    assert {"bal", "python", "torch", "numpy", "safetensors"} == manifest["versions"].keys()
    assert len(manifest["parts"]["tensors.safetensors"]["sha256"]) == 64


def test_an_unfitted_detector_is_not_saved(tmp_path):
    with pytest.raises(bal.errors.NotFittedError):
        make_detector("energy").save(tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("names", [["a"], "abc", [1, 2, 3], []])
def test_class_names_must_be_one_for_each_class(detector, tmp_path, names):
    with pytest.raises(DataError, match="class_names must be 3 words"):
        detector.save(tmp_path / "d", class_names=names)


def test_another_classifier_or_preprocessing_is_refused(detector, tiny_model, tmp_path):
    """Fault 16."""
    detector.save(tmp_path / "d")
    other = copy.deepcopy(tiny_model)
    with torch.no_grad():
        other[0].bias[0] += 1e-6
    with pytest.raises(StorageError, match=r"another classifier.*fit again"):
        bal.load(tmp_path / "d", other)
    with pytest.raises(StorageError, match="another classifier"):
        bal.load(tmp_path / "d", bal.Classifier(tiny_model, preprocess=bal.Normalise((0.5,), (0.5,))))
    with pytest.raises(StorageError, match=r"the preprocessing None, this classifier has Sigmoid\(\)"):
        bal.load(tmp_path / "d", bal.Classifier(tiny_model, preprocess=nn.Sigmoid()))


class Scale(nn.Module):
    """A preprocessing whose number is no tensor and is not told by repr."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x * self.by


def test_a_classifier_of_the_same_weights_that_behaves_differently_is_refused(tiny_model, tiny_images, tmp_path):
    """Fault 16: fitted with a ReLU and loaded beside a Tanh, or with another scale of the inputs."""
    fitted = bal.Classifier(tiny_model, preprocess=Scale(1.0))
    make_detector("Mahalanobis").fit(fitted, tiny_images, show_progress=False).save(tmp_path / "d")
    bal.load(tmp_path / "d").save(tmp_path / "again")  # for features alone: the mark stays on
    other = nn.Sequential(*(nn.Tanh() if isinstance(layer, nn.ReLU) else layer for layer in tiny_model))
    for path in (tmp_path / "d", tmp_path / "again"):
        assert bal.load(path, bal.Classifier(tiny_model, preprocess=Scale(1.0))).classifier_ is not None
        for wrong in (bal.Classifier(tiny_model, preprocess=Scale(255.0)), bal.Classifier(other, preprocess=Scale(1.0))):
            with pytest.raises(StorageError, match=r"same weights that behaves differently.*load that one, or fit again"):
                bal.load(path, wrong)


def test_a_file_from_before_there_was_a_probe_is_read(detector, tiny_classifier, tmp_path):
    manifest = describe(detector)
    del manifest["classifier"]["probe"]
    write_bundle(tmp_path / "d", manifest, {"tensors.safetensors": save(detector.state())})
    assert bal.load(tmp_path / "d", tiny_classifier).classifier_ is tiny_classifier


@pytest.mark.parametrize("probe", [5, "x", [["a"]], [[0.0]], {}])
def test_a_probe_that_no_classifier_gave_is_refused(detector, tiny_classifier, tmp_path, probe):
    manifest = describe(detector)
    manifest["classifier"]["probe"] = probe
    write_bundle(tmp_path / "d", manifest, {"tensors.safetensors": save(detector.state())})
    with pytest.raises(StorageError):
        bal.load(tmp_path / "d", tiny_classifier)


def test_to_load_and_save_again_gives_the_same_bytes(detector, tiny_classifier, tmp_path):
    detector.save(tmp_path / "a.bal")
    bal.load(tmp_path / "a.bal", tiny_classifier).save(tmp_path / "b.bal")
    bal.load(tmp_path / "a.bal").save(tmp_path / "c.bal")
    assert len({(tmp_path / name).read_bytes() for name in ("a.bal", "b.bal", "c.bal")}) == 1


def test_a_detector_loaded_without_its_classifier_still_knows_it(detector, tiny_model, tmp_path):
    """Fault 16: to load for features alone and save again must not wash the mark off."""
    detector.save(tmp_path / "d")
    bal.load(tmp_path / "d").save(tmp_path / "again")
    other = copy.deepcopy(tiny_model)
    with torch.no_grad():
        other[0].bias[0] += 1
    with pytest.raises(StorageError, match="another classifier"):
        bal.load(tmp_path / "again", other)
    assert bal.load(tmp_path / "again", tiny_model).classifier_ is not None


def schema_1_world():
    """The classifier and the rows that schema1.safetensors, written by bal 0.1.0 before schema 2, was made with."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape) + 0.1 * i)
    return model, torch.sin(torch.arange(160.0)).reshape(40, 4)


def test_a_file_of_schema_1_is_read_and_saved_as_schema_2(tmp_path):
    """Faults 16 and 17."""
    model, x = schema_1_world()
    old = bal.load(Path(__file__).with_name("schema1.safetensors"), model)
    assert old.temperature == 2.0
    np.testing.assert_allclose(old.score(x[:3]), [4.583818638461594, 2.892481511730352, 2.25756248041946], rtol=1e-6)
    assert old.threshold_.item() == 1.9431443590830684
    assert old.calibration_.false_alarm == 0.1
    old.save(tmp_path / "new")
    assert read(tmp_path / "new")[0]["schema"] == 2
    assert bal.load(tmp_path / "new", model).score(x).tobytes() == old.score(x).tobytes()
    with torch.no_grad():
        model[0].bias[0] += 1
    with pytest.raises(StorageError, match="another classifier"):
        bal.load(Path(__file__).with_name("schema1.safetensors"), model)


def test_a_bal_from_before_its_newer_settings_is_read_as_it_was(tmp_path):
    """older.bal is of bal 0.1.0 before BAL had evidence, a radius, members and a temperature; defaults have moved since."""
    model, x = schema_1_world()
    older = bal.load(Path(__file__).with_name("older.bal"), model)
    assert (older.evidence, older.radius, older.radial_start, older.training.r1) == ("none", "unit", (6.0, 3.0), 0.0)
    np.testing.assert_allclose(older.score(x[:3]), [-0.011298089030584463, -0.09948711393440648, -0.09241654548476015], rtol=1e-6)
    older.save(tmp_path / "new")
    assert bal.load(tmp_path / "new", model).score(x).tobytes() == older.score(x).tobytes()


def test_a_setting_that_no_one_can_know_is_named_with_the_version_that_wrote_the_file(tmp_path):
    manifest, tensors = read(Path(__file__).with_name("older.bal"))
    del manifest["settings"]["training"]["decay"], manifest["sha256"]
    write_bundle(tmp_path / "d", manifest, {"tensors.safetensors": save(tensors)})
    with pytest.raises(StorageError, match=r"d, written by bal 0.1.0, does not hold the setting decay of GANTraining.*fit again"):
        bal.load(tmp_path / "d")


@pytest.mark.parametrize("kind", [BAL, GANTraining, Epsilon])
def test_what_was_done_before_a_setting_is_a_value_that_it_takes(kind):
    assert dataclasses.replace(kind(), **BEFORE[kind.__name__]) is not None


def test_a_newer_schema_is_refused_and_so_is_a_single_file_of_another_kind(detector, tmp_path):
    """Fault 17."""
    write_bundle(tmp_path / "d", {**describe(detector), "schema": SCHEMA + 1}, {"tensors.safetensors": b""})
    with pytest.raises(StorageError, match="update bal"):
        bal.load(tmp_path / "d")
    bal.storage.save_tensors(tmp_path / "cache", {"f": torch.zeros(1)})
    with pytest.raises(StorageError, match="no detector of schema 1"):
        bal.load(tmp_path / "cache")
    with pytest.raises(StorageError, match="there is no detector"):
        bal.load(tmp_path / "none")


def test_a_pickle_is_refused_under_any_name(tmp_path):
    """Fault 10: no reader here unpickles, and there is no fallback that does."""
    bomb = Bomb(tmp_path / "ran")
    torch.save({"a": bomb}, tmp_path / "zip.bal")  # torch.save writes a zip
    (tmp_path / "plain.bal").write_bytes(__import__("pickle").dumps(bomb))
    for name in ("zip.bal", "plain.bal"):
        with pytest.raises(StorageError):
            bal.load(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"detector": "no such"},
        {"detector": "BAL"},
        {"settings": {}},
        {"settings": {"temperature": "hot"}},
        {"settings": None},
        {"class_names": ["a"]},
        {"classifier": {}},
    ],
)
def test_a_manifest_that_lies_under_a_right_seal_is_refused(detector, tiny_classifier, tmp_path, change):
    """Fault 11: whoever forges a bundle gets an error, not a crash and not a detector of another kind."""
    manifest = {**json.loads(json.dumps(describe(detector))), **change}
    write_bundle(tmp_path / "d", manifest, {"tensors.safetensors": save(detector.state())})
    with pytest.raises(bal.errors.BalError):
        bal.load(tmp_path / "d", tiny_classifier)


@pytest.mark.parametrize("part", ["detector", "settings", "classifier"])
def test_a_manifest_that_lacks_a_part_is_refused_with_and_without_a_classifier(detector, tiny_classifier, tmp_path, part):
    """Fault 11."""
    manifest = {name: value for name, value in describe(detector).items() if name != part}
    write_bundle(tmp_path / "d", manifest, {"tensors.safetensors": save(detector.state())})
    for classifier in (None, tiny_classifier):
        with pytest.raises(StorageError, match=rf"d holds no detector that can be rebuilt \('{part}'\); save it again"):
            bal.load(tmp_path / "d", classifier)


def test_tensors_that_lie_in_their_own_header_are_refused(detector, tmp_path):
    """Fault 11: the digest is that of the damaged part, so only the header can tell."""
    content = bytearray(__import__("safetensors.torch").torch.save(detector.state()))
    content[:8] = (2**40).to_bytes(8, "little")
    write_bundle(tmp_path / "d", describe(detector), {"tensors.safetensors": bytes(content)})
    with pytest.raises(StorageError, match="no tensors that can be read"):
        bal.load(tmp_path / "d")


@pytest.mark.parametrize("name", ["detector", "detector.bal"])
def test_kill_9_at_50_random_moments_of_saving_leaves_one_whole_detector(detector, tiny_images, tmp_path, rng, name):
    """Fault 12."""
    path = tmp_path / name
    strict, lax = (copy.deepcopy(detector).calibrate(tiny_images[0], false_alarm=rate) for rate in (0.5, 0.05))
    thresholds = {d.threshold_.item() for d in (strict, lax)}
    folder = tmp_path if path.suffix else path
    for _ in kills_while_saving(lambda: strict.save(path), lambda: lax.save(path), folder, rng):
        loaded = bal.load(path)
        assert loaded.threshold_.item() in thresholds
        assert loaded.calibration_.threshold() == loaded.threshold_.item(), "parts of one save only"
    assert bal.load(path).threshold_.item() == strict.threshold_.item()


@pytest.mark.parametrize("name", ["detector", "detector.bal"])
def test_a_read_only_folder_is_said_and_the_old_detector_kept(detector, tiny_images, tmp_path, name):
    """Fault 13: root may write anywhere, so a child that is nobody tries it, from inside the folder."""
    folder = tmp_path / "closed"
    detector.save(folder / name)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    newer = copy.deepcopy(detector).calibrate(tiny_images[0], false_alarm=0.5)
    places = [folder / name, folder] if (folder / name).is_dir() else [folder]

    def save_as_nobody():
        os.chdir(folder)  # the folders above are for root alone
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        with pytest.raises(StorageError, match=r"cannot write.*Permission denied"):
            newer.save(name)

    for place in places:
        place.chmod(0o555)
    try:
        seconds_in_a_child(save_as_nobody)
    finally:
        for place in reversed(places):
            place.chmod(0o700)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    newer.save(folder / name)
    assert bal.load(folder / name).threshold_.item() == newer.threshold_.item(), "once it may be written, it is"
