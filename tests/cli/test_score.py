"""bal score; the stream itself is in tests/serving/test_batch.py."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from bal.cli.score import Score
from bal.serving.batch import ROWS_PER_SHARD
from command import bal_here

FIT = ("fit", "--classifier", "my_model:build", "--train", "train.npz", "--detector", "energy", "--out", "d")
SCORE = ("score", "d", "--classifier", "my_model:build", "--out", "scores", "--format", "csv", "--data", "photos")


def test_a_shard_has_as_many_rows_as_in_python():
    """The number is written twice, so that help does not wait for torch."""
    assert Score.rows_per_shard == ROWS_PER_SHARD


@pytest.fixture
def here(workspace, monkeypatch, capsys, rng):
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    (workspace / "photos").mkdir()
    for i in range(10):
        Image.fromarray(rng.integers(0, 256, (5, 5), np.uint8)).save(workspace / "photos" / f"{i}.png")
    bal_here(monkeypatch, capsys, *FIT)
    return lambda *arguments: bal_here(monkeypatch, capsys, *arguments)


def test_score_writes_shards_and_a_rerun_finds_them(here, workspace):
    code, out, _ = here(*SCORE, "test.npz", "--rows-per-shard", "8")
    assert code == 0
    assert "50" in out
    assert len(list((workspace / "scores").rglob("*.csv"))) == 2 + 5
    code, out, _ = here(*SCORE, "test.npz", "--rows-per-shard", "8", "--json")
    said = json.loads(out)
    assert (code, said["shards"], said["found"], said["rows"], said["errors"]) == (0, 7, 7, 50, 0)


def test_more_errors_than_the_budget_are_exit_code_1_after_all_else_is_done(here, workspace):
    """Fault 8."""
    (workspace / "photos" / "0.png").write_bytes(b"")
    code, out, complaint = here(*SCORE, "--json")
    assert code == 1
    assert "1 of 10 inputs could not be read, more than 1.0%" in complaint
    assert (json.loads(out)["rows"], json.loads(out)["errors"]) == (10, 1)
    assert here(*SCORE)[0] == 1, "a rerun does not forget"
    assert here(*SCORE, "--error-budget", "0.1")[0] == 0


def test_a_file_that_is_cut_is_told_and_exit_code_1(here, workspace):
    whole = (workspace / "test.npz").read_bytes()
    (workspace / "test.npz").write_bytes(whole[: len(whole) // 2])
    code, _, complaint = here(*SCORE, "test.npz")
    assert code == 1
    assert "is not an .npz file" in complaint


def test_what_is_missing_is_said(here, workspace):
    assert "name it: --classifier my_model:build" in here("score", "d", "--data", "photos", "--out", "s")[2]
    assert "there is no detector none" in here("score", "none", *SCORE[2:])[2]
    assert "no file or folder nowhere" in here(*SCORE[:-1], "nowhere")[2]
    assert "at least one folder" in here(*SCORE[:-1])[2]
    (workspace / "d" / "manifest.json").write_text("{}")
    code, _, complaint = here(*SCORE)
    assert code == 1, "fault 11"
    assert "damaged" in complaint


def test_a_refused_folder_inside_the_inputs_is_not_created(here, workspace):
    code, _, complaint = here(*SCORE, "--out", "photos/scores")
    assert code == 1
    assert "lies inside the inputs photos" in complaint
    assert not (workspace / "photos" / "scores").exists(), "it would make photos a folder of classes"
