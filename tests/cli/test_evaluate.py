import json
import sys

import numpy as np
import pytest

import bal
from bal.backbones import load_classifier
from command import bal_here

EVALUATE = ("evaluate", "d", "--classifier", "my_model:build", "--test", "test.npz", "--ood", "noise=noise.npz")


@pytest.fixture
def here(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    with np.load("train.npz") as train:
        bal.make_detector("energy").fit(
            load_classifier("my_model:build"), (train["images"], train["labels"]), show_progress=False
        ).save("d")
    return lambda *arguments: bal_here(monkeypatch, capsys, *arguments)


def test_evaluate_measures_a_saved_detector(here):
    code, out, _ = here(*EVALUATE, "--json")
    said = json.loads(out)
    assert code == 0
    assert (said["detector"], said["rows"], said["accuracy"]) == ("energy", 40, 1.0), "the network labelled the data itself"
    detector = bal.load("d", load_classifier("my_model:build"))
    with np.load("test.npz") as test, np.load("noise.npz") as noise:
        known, unknown = detector.predict(test["x"]), detector.predict(noise["images"])
    assert said["rejected"] == pytest.approx((known.label == -1).mean())
    assert said["oods"]["noise"]["accepted"] == pytest.approx((unknown.label >= 0).mean())
    assert said["oods"]["noise"]["metrics"]["auroc"] == bal.evaluate(known.score, unknown.score).auroc


def test_evaluate_prints_a_table_for_people(here):
    code, out, _ = here(*EVALUATE, "again=noise.npz")
    assert code == 0
    assert "accuracy       100.00%" in out
    assert out.count("noise") == 1
    assert "AUROC" in out


def test_ood_data_is_needed(here):
    assert here(*EVALUATE[:-2])[0] == 2
    code, _, complaint = here(*EVALUATE[:-1])
    assert code == 1
    assert "at least one NAME=DATA" in complaint
