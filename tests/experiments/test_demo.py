"""The demo from end to end, on a smaller classifier, fewer epochs and fewer detectors."""

import json
from dataclasses import asdict, fields

import pytest

from bal.backbones import ClassifierTraining
from bal.detectors import BAL
from bal.experiments import DemoSettings, Row, ranking, run_demo
from bal.experiments.demo import UNTRAINED

QUICK = DemoSettings(
    seeds=(0, 1),
    threads=1,
    width=4,
    classifier=ClassifierTraining(epochs=1, batch_size=64),
    detectors=("BAL", "max-softmax", "Mahalanobis++"),
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    said = []
    return run_demo(QUICK, out, say=said.append, show_progress=False), out, said


def test_results_json_is_a_list_of_rows(demo):
    runs, out, _ = demo
    rows = json.loads((out / "results.json").read_text())
    assert rows == [asdict(measured.row) for run in runs for measured in run.measured]
    names = ("BAL", "max-softmax", "Mahalanobis++", UNTRAINED)
    assert [(row["detector"], row["seed"]) for row in rows] == [(name, seed) for seed in (0, 1) for name in names]
    for row in rows:
        assert list(row) == [field.name for field in fields(Row)]
        assert (row["id"], row["ood"]) == ("Fashion-MNIST", "MNIST")
        assert all(0 <= row[key] <= 1 for key in ("fpr95", "detection_error", "auroc", "aupr_in", "aupr_out", "accuracy"))


def test_accuracy_is_the_same_with_and_without_bal_to_the_last_digit(demo):
    for run in demo[0]:
        assert len({measured.row.accuracy for measured in run.measured}) == 1


def test_even_the_quick_classifier_is_better_with_bal(demo):
    means = {standing.detector: standing.mean for standing in ranking([m.row for run in demo[0] for m in run.measured])}
    assert means["BAL"]["auroc"] > means["max-softmax"]["auroc"] + 0.02
    assert means["BAL"]["fpr95"] < means["max-softmax"]["fpr95"]


def test_bal_before_training_is_the_radial_start(demo):
    untrained = next(m.detector for m in demo[0][0].measured if m.row.detector == UNTRAINED)
    assert isinstance(untrained, BAL)
    assert (untrained.D_.a.item(), untrained.D_.k.item()) == (8.0, 1.0)
    assert untrained.D_.layers[-1].weight.abs().sum().item() == 0


def test_each_seed_leaves_a_training_log(demo):
    _, out, said = demo
    for seed in (0, 1):
        lines = [json.loads(line) for line in (out / f"training-seed{seed}.jsonl").read_text().splitlines()]
        assert lines[-1]["status"] == "finished"
        assert len(lines) == BAL().training.epochs + 1, "the log is that of the trained BAL"
    assert any("FPR95" in line for line in said)


def test_a_second_run_takes_the_classifier_from_the_first_and_gives_the_same_rows(demo):
    runs, out, _ = demo
    written = {path: path.stat().st_mtime_ns for path in out.glob("classifier-*")}
    again = run_demo(QUICK, out, say=lambda _: None, show_progress=False)
    assert {path: path.stat().st_mtime_ns for path in out.glob("classifier-*")} == written

    def timeless(measured):
        return {key: value for key, value in asdict(measured.row).items() if "seconds" not in key}

    for a, b in zip(runs, again, strict=True):
        assert [timeless(m) for m in a.measured] == [timeless(m) for m in b.measured]
