"""bal fit, bal calibrate, and the whole way from a fit to scores in a new process."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import bal
from bal.backbones import load_classifier
from command import bal as shell
from command import bal_here

FIT = ("fit", "--classifier", "my_model:build", "--train", "train.npz", "--detector", "energy", "--out", "d")


@pytest.fixture
def here(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    return lambda *arguments: bal_here(monkeypatch, capsys, *arguments)


def test_fit_calibrates_and_saves(here, workspace):
    code, out, _ = here(*FIT, "--calibrate", "test.npz", "--false-alarm", "0.1", "--json")
    assert code == 0
    said = json.loads(out)
    detector = bal.load("d", load_classifier("my_model:build"))
    assert (said["path"], said["detector"], said["threshold"]) == ("d", "energy", detector.threshold_.item())
    assert said["false_alarms"][0]["rows"] == 40
    assert detector.belongs_to_["source"] == "my_model:build"
    x = np.load("test.npz")["x"]
    assert (detector.predict(x).label == -1).mean() <= 0.1


def test_fit_tells_people_what_it_saved(here):
    code, out, _ = here(*FIT)
    assert code == 0
    assert "d (energy)" in out
    assert "keeps 95 % of the training rows; not calibrated" in out


def test_calibrate_changes_the_threshold_of_a_saved_detector(here):
    here(*FIT)
    before = bal.load("d").threshold_.item()
    calibrate = ("calibrate", "d", "--data", "test.npz", "--false-alarm", "0.5", "--json")
    code, _, complaint = here(*calibrate)
    assert code == 1
    assert "name it: --classifier my_model:build" in complaint, "a file may not have code run by itself"
    code, out, _ = here(*calibrate, "--classifier", "my_model:build")
    assert code == 0
    assert json.loads(out)["threshold"] == bal.load("d").threshold_.item() != before
    code, _, complaint = here(*calibrate, "--classifier", "my_model:build", "--false-alarm", "0.001")
    assert code == 1
    assert "needs at least 999 calibration rows, got 40" in complaint
    assert bal.load("d").calibration_.false_alarm == 0.5, "the old file is kept"


def test_another_classifier_is_refused(here, workspace):
    """Fault 16."""
    here(*FIT)
    (workspace / "other_model.py").write_text("from torch import nn\ndef build(): return nn.Sequential(nn.Linear(16, 3))\n")
    code, _, complaint = here("calibrate", "d", "--data", "test.npz", "--classifier", "other_model:build")
    assert code == 1
    assert "another classifier" in complaint


def test_an_exported_program_takes_the_place_of_the_module(here, workspace):
    here(*FIT)
    model = load_classifier("my_model:build").model.eval()
    program = torch.export.export(model, (torch.rand(2, 1, 4, 4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, "net.pt2")
    assert here("calibrate", "d", "--data", "test.npz", "--classifier", "net.pt2")[0] == 0


def test_names_of_folders_become_the_names_of_classes(here, workspace, rng):
    for c, name in enumerate(("ant", "bee", "cow")):
        (workspace / "photos" / name).mkdir(parents=True)
        for i in range(4):
            size = 6 + i  # all sizes differ
            Image.fromarray(rng.integers(80 * c, 80 * c + 80, (size, size), np.uint8)).save(
                workspace / "photos" / name / f"{i}.png"
            )
    arguments = [{"train.npz": "photos"}.get(argument, argument) for argument in FIT]
    code, _, complaint = here(*arguments)
    assert code == 1
    assert "give the shape that all are to have" in complaint
    code, out, _ = here(*arguments, "--shape", "1", "4", "4", "--json")
    assert code == 0
    assert json.loads(out)["class_names"] == ["ant", "bee", "cow"]
    assert bal.load("d").class_names_ == ("ant", "bee", "cow")


def test_a_folder_that_cannot_be_written_and_an_unknown_detector_are_refused_before_the_fit(here, workspace):
    """Fault 13."""
    (workspace / "file").write_text("")
    code, _, complaint = here(*FIT[:-1], "file/d")
    assert code == 1
    assert "cannot write" in complaint
    code, _, complaint = here(*FIT, "--detector", "enrgy")
    assert code == 1
    assert "did you mean 'energy'" in complaint
    assert "energy draws no random numbers" in here(*FIT, "--seed", "1")[2]
    assert "--per-class needs --calibrate" in here(*FIT, "--per-class")[2]
    assert here("fit", "--train", "train.npz")[0] == 2, "wrong arguments"


def test_settings_of_the_detector_can_be_set(here):
    arguments = [{"energy": "BAL"}.get(argument, argument) for argument in FIT]
    quick = ("--set", "hidden_D=[8]", "hidden_G=[8]", "training.epochs=1", "sampler=uniform", "--seed", "3")
    code, _, complaint = here(*arguments, *quick)
    assert code == 0, complaint
    detector = bal.load("d")
    assert (detector.hidden_D, detector.training.epochs, detector.sampler, detector.seed) == ((8,), 1, "uniform", 3)
    assert detector.training.lambda_c == bal.BAL().training.lambda_c, "the others stay"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.epoch=1", "names are normalisation"),
        ("training", "takes NAME=VALUE"),
        ("seed.x=1", "training.epochs"),
        ("training.epochs=-1", "epochs"),
        ("sampler=gauss", "sampler"),
    ],
)
def test_settings_that_there_are_not_are_refused(here, change, words):
    code, _, complaint = here(*[{"energy": "BAL"}.get(argument, argument) for argument in FIT], "--set", change)
    assert code == 1
    assert words in complaint
    assert "Traceback" not in complaint


def test_features_can_be_kept_for_the_next_fit(here, workspace, monkeypatch):
    assert here(*FIT, "--cache", "kept")[0] == 0
    first = bal.load("d").threshold_
    monkeypatch.setattr("bal.features.extraction.run", lambda *_, **__: pytest.fail("the network ran again"))
    assert here(*FIT, "--cache", "kept")[0] == 0
    assert bal.load("d").threshold_ == first
    assert "leave it out, or --engine ray" in here(*FIT, "--cache", "kept", "--engine", "ray")[2]


def test_what_was_learnt_is_saved_even_where_the_calibration_fails(here):
    code, _, complaint = here(*FIT, "--calibrate", "test.npz", "--false-alarm", "0.001")
    assert code == 1
    assert "needs at least 999 calibration rows, got 40" in complaint
    assert "go on with: bal calibrate d --classifier my_model:build --data test.npz" in complaint
    assert bal.load("d").calibration_ is None


@pytest.mark.parametrize("rate", ["0", "1", "nan", "7"])
def test_a_rate_that_is_none_is_refused_before_the_fit(here, workspace, rate):
    code, _, complaint = here(*FIT, "--false-alarm", rate)
    assert code == 1
    assert "false" in complaint
    assert not (workspace / "d").exists()


def test_fit_calibrate_save_load_in_a_new_process_and_score_give_the_same_bytes(workspace, monkeypatch):
    """Faults 11 and 21: what the shell writes is what Python computes, to the last bit."""
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    classifier = load_classifier("my_model:build")
    with np.load("train.npz") as train, np.load("test.npz") as test:
        data, x = (train["images"], train["labels"]), test["x"]
    training = bal.discrimination.GANTraining(epochs=2)
    detector = bal.BAL(training=training).fit(classifier, data, show_progress=False).calibrate(x, false_alarm=0.1)
    detector.save("d.bal")
    result = shell(
        *("score", "d.bal", "--classifier", "my_model:build", "--data", "test.npz", "--out", "s", "--format", "jsonl", "--json"),
        cwd=workspace,
        OMP_NUM_THREADS="1",
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 40
    (file,) = (workspace / "s").rglob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    answer = detector.predict(x)
    for name in ("score", "confidence", "p_value"):
        assert np.array([row[name] for row in rows]).tobytes() == getattr(answer, name).tobytes()
    assert [row["label"] for row in rows] == answer.label.tolist()
