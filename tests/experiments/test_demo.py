"""The demo from end to end, on a smaller classifier and fewer epochs."""

import json
from dataclasses import asdict, fields

import numpy as np
import pytest

from bal.backbones import ClassifierTraining
from bal.experiments import DemoSettings, Row, run_demo, summary

QUICK = DemoSettings(seeds=(0, 1), width=4, classifier=ClassifierTraining(epochs=1, batch_size=64))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    said = []
    return run_demo(QUICK, out, say=said.append, show_progress=False), out, said


def test_results_json_is_a_list_of_rows(demo):
    runs, out, _ = demo
    rows = json.loads((out / "results.json").read_text())
    assert rows == [asdict(measured.row) for run in runs for measured in run.measured]
    assert [(row["detector"], row["seed"]) for row in rows] == [("max-softmax", 0), ("BAL", 0), ("max-softmax", 1), ("BAL", 1)]
    for row in rows:
        assert list(row) == [field.name for field in fields(Row)]
        assert row["id"] == "Fashion-MNIST"
        assert row["ood"] == "MNIST"
        assert all(0 <= row[key] <= 1 for key in ("fpr95", "detection_error", "auroc", "aupr_in", "aupr_out", "accuracy"))


def test_accuracy_is_the_same_with_and_without_bal_to_the_last_digit(demo):
    for run in demo[0]:
        softmax, ours = (measured.row.accuracy for measured in run.measured)
        assert ours == softmax


def test_even_the_quick_classifier_is_better_with_bal(demo):
    numbers = dict(summary(demo[0]))
    assert numbers["BAL"]["auroc"][0] > numbers["max-softmax"]["auroc"][0] + 0.02
    assert numbers["BAL"]["fpr95"][0] < numbers["max-softmax"]["fpr95"][0]


def test_the_summary_is_mean_and_sample_deviation(demo):
    values = [run.measured[1].row.auroc for run in demo[0]]
    mean, deviation = dict(summary(demo[0]))["BAL"]["auroc"]
    assert mean == pytest.approx(np.mean(values))
    assert deviation == pytest.approx(abs(values[0] - values[1]) / 2**0.5)


def test_each_seed_leaves_a_training_log(demo):
    _, out, said = demo
    for seed in (0, 1):
        lines = [json.loads(line) for line in (out / f"training-seed{seed}.jsonl").read_text().splitlines()]
        assert lines[-1]["status"] == "finished"
        assert len(lines) == QUICK.bal.training.epochs + 1
    assert any("FPR95" in line for line in said)


def test_a_second_run_takes_the_classifier_from_the_first_and_gives_the_same_rows(demo):
    runs, out, _ = demo
    written = {path: path.stat().st_mtime_ns for path in out.glob("classifier-*")}
    again = run_demo(QUICK, out, say=lambda _: None, show_progress=False)
    assert {path: path.stat().st_mtime_ns for path in out.glob("classifier-*")} == written
    for a, b in zip(runs, again, strict=True):
        assert [asdict(m.row) | {"seconds": 0} for m in a.measured] == [asdict(m.row) | {"seconds": 0} for m in b.measured]
