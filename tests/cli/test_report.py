import json
import sys

import numpy as np
import pytest
from PIL import Image

import bal
from bal.backbones import load_classifier
from command import bal_here

REPORT = ("report", "d", "--classifier", "my_model:build", "--test", "test.npz")


@pytest.fixture
def here(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    with np.load("train.npz") as train:
        detector = bal.make_detector("energy").fit(
            load_classifier("my_model:build"), (train["images"], train["labels"]), show_progress=False
        )
    detector.calibrate(train_images(), false_alarm=0.1).save("d", ["ant", "bee", "cow"])
    return lambda *arguments: bal_here(monkeypatch, capsys, *arguments)


def train_images():
    with np.load("train.npz") as train:
        return train["images"]


def test_report_writes_a_page_and_says_what_to_do(here, workspace):
    code, out, _ = here(*REPORT, "--ood", "noise=noise.npz", "--out", "pages/report.html")
    assert code == 0
    html = (workspace / "pages" / "report.html").read_text()
    assert "bal report: energy on test.npz" in html
    assert "bal report d --classifier my_model:build --test test.npz --ood noise=noise.npz" in html
    assert "bee" in html
    assert "report         pages/report.html" in out
    assert "Few test rows." in out


def test_json_has_the_numbers_that_evaluate_has(here, workspace):
    code, out, _ = here(*REPORT, "--ood", "noise=noise.npz", "--json")
    said = json.loads(out)
    _, out, _ = here("evaluate", *REPORT[1:], "--ood", "noise=noise.npz", "--json")
    other = json.loads(out)
    assert code == 0
    assert (workspace / said["report"]).exists()
    assert said["known"]["rows"] == other["rows"] == 40
    assert said["known"]["accuracy"] == other["accuracy"] == 1.0
    assert said["known"]["rejected_share"] == pytest.approx(other["rejected"])
    assert said["oods"]["noise"]["metrics"] == other["oods"]["noise"]["metrics"]
    assert said["alarms"][0]["calibration_rows"] == 80
    assert said["selective"]["energy"]["error_at_coverage"]["0.5"] == 0, "the network labelled the data itself"
    assert any("40 valid ID rows" in item["text"] for item in said["advice"])


@pytest.mark.filterwarnings("default:1 of 121 files")
def test_folders_are_labelled_by_their_names_and_unreadable_files_are_counted(here, workspace, rng):
    for name in ("ant", "cow"):  # no bee: the label of a cow is 2 all the same
        (workspace / "photos" / name).mkdir(parents=True)
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (4, 4), np.uint8)).save(workspace / "photos" / name / f"{i}.png")
    (workspace / "photos" / "cow" / "broken.png").write_bytes(b"no picture")
    code, out, complaint = here(*REPORT[:-1], "photos", "--json")
    said = json.loads(out)
    assert code == 0
    assert "1 of 121 files in photos were left out" in complaint
    assert {name: counts["rows"] for name, counts in said["by_class"].items()} == {"ant": 60, "cow": 60}
    assert said["left_out"] == {"the test data": 1}
    assert any("files of the test data that could not be read: 1" in item["text"] for item in said["advice"])


def test_what_is_missing_is_said(here):
    assert "name it: --classifier my_model:build" in here("report", "d", "--test", "test.npz")[2]
    assert "there is no file" in here(*REPORT[:-1], "nowhere.npz")[2]
    assert "two OOD sets are called 'noise'" in here(*REPORT, "--ood", "noise.npz", "noise.npz")[2]
    code, _, complaint = here(*REPORT, "--out", "test.npz/report.html")
    assert code == 1
    assert "cannot write" in complaint
