import json
import sys

import numpy as np
import onnxruntime
import pytest

from command import bal_here

EXPORT = ("export", "d", "--classifier", "my_model:build", "--out")


@pytest.fixture
def here(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    fit = ("fit", "--classifier", "my_model:build", "--train", "train.npz", "--calibrate", "test.npz", "--out")
    bal_here(monkeypatch, capsys, *fit, "d")
    bal_here(monkeypatch, capsys, *fit, "e", "--detector", "energy")
    return lambda *arguments: bal_here(monkeypatch, capsys, *arguments)


def test_export_writes_a_graph_that_runs(here, workspace):
    code, out, complaint = here(*EXPORT, "model.onnx", "--data", "test.npz", "--json")
    assert (code, complaint) == (0, "")
    said = json.loads(out)
    assert said["parity"]["real"]["rows"] == 40
    assert said["parity"]["real"]["largest"] < 1e-4
    x = np.load(workspace / "test.npz")["x"]
    session = onnxruntime.InferenceSession(workspace / "model.onnx", providers=["CPUExecutionProvider"])
    label, is_ood = session.run(["label", "is_ood"], {"input": x, "threshold": np.array(said["threshold"])})
    assert is_ood.mean() <= 0.1
    assert ((label == -1) == is_ood).all()


def test_export_tells_how_well_the_graph_agrees(here):
    code, out, _ = here(*EXPORT, "model.pt2")
    assert code == 0
    assert "random inputs  21 rows" in out


def test_what_cannot_be_exported_is_exit_code_1(here, workspace):
    code, _, complaint = here(*EXPORT, "model.tflite")
    assert (code, "must end in .onnx or .pt2" in complaint) == (1, True)
    code, _, complaint = here("export", "e", "--classifier", "my_model:build", "--out", "model.onnx")
    assert (code, "only BAL can be exported" in complaint) == (1, True)
    assert not (workspace / "model.onnx").exists()
