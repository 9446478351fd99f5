import json
from pathlib import Path

import pytest

from bal.backbones import ClassifierTraining
from bal.detectors import make_detector
from command import bal_here


@pytest.fixture
def detector(tiny_classifier, tiny_images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    detector = make_detector("energy").fit(tiny_classifier, tiny_images, show_progress=False)
    detector.calibrate(tiny_images[0], false_alarm=0.1, per_class=False).save("d", class_names=["ant", "bee", "cow"])
    return detector


def test_info_tells_what_a_detector_is(detector, monkeypatch, capsys):
    code, out, _ = bal_here(monkeypatch, capsys, "info", "d")
    assert code == 0
    for words in (
        "energy (temperature=1.0)",
        "1 x 4 x 4",
        "ant, bee, cow",
        "at most 0.1 of new ID data",
        "by 60 rows",
        "schema         2",
    ):
        assert words in out
    code, out, _ = bal_here(monkeypatch, capsys, "info", "d", "--json")
    assert json.loads(out)["class_names"] == ["ant", "bee", "cow"]


def test_info_reads_schema_1(monkeypatch, capsys):
    """Fault 17."""
    old = Path(__file__).parent.parent / "detectors" / "schema1.safetensors"
    code, out, _ = bal_here(monkeypatch, capsys, "info", old)
    assert code == 0
    assert "schema         1" in out


def test_info_refuses_a_damaged_detector(detector, tmp_path, monkeypatch, capsys):
    """Fault 11."""
    part = next((tmp_path / "d").glob("tensors-*"))
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    code, _, complaint = bal_here(monkeypatch, capsys, "info", "d")
    assert code == 1
    assert "tensors.safetensors does not match its SHA-256" in complaint


@pytest.fixture
def gcpl(tiny_classifier, tiny_images, tmp_path, monkeypatch):
    """A detector that is a copy of its classifier, saved as ``gcpl``."""
    monkeypatch.chdir(tmp_path)
    tiny_classifier.source = "my_model:build"
    detector = make_detector("GCPL", training=ClassifierTraining(epochs=1))
    detector.fit(tiny_classifier, tiny_images, show_progress=False).save("gcpl")


def test_info_needs_no_classifier(gcpl, monkeypatch, capsys):
    code, out, _ = bal_here(monkeypatch, capsys, "info", "gcpl")
    assert code == 0
    for words in ("GCPL (lambda_=0.01", "1 x 4 x 4", "classes        3", "my_model:build", "not calibrated"):
        assert words in out


def test_a_command_that_reads_inputs_asks_for_the_classifier_by_name(gcpl, monkeypatch, capsys):
    code, _, complaint = bal_here(monkeypatch, capsys, "score", "gcpl", "--data", "x.npz", "--out", "s")
    assert code == 1
    assert "gcpl reads inputs by a classifier; name it: --classifier my_model:build" in complaint
