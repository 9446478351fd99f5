import json

from bal.experiments.study import StudyRun
from bal.report.study import promise_and_truth, variant_table, write_study


def run(variant, network, seed, promise, truth, status="finished"):
    return StudyRun(variant, network, seed, {"blur": (promise, 0.5)}, {"svhn": (truth, 0.25)}, status, 1.0)


RUNS = [
    run("plain", "a", 0, 0.80, 0.70),
    run("plain", "a", 1, 0.82, 0.74),
    run("plain", "b", 0, 0.90, 0.90, "diverged"),
    run("better", "a", 0, 0.95, 0.90),
    run("better", "b", 0, 0.85, 0.80),
]


def test_variants_are_ranked_by_their_stand_ins_with_networks_weighing_the_same():
    table = variant_table(RUNS)
    assert table.rows == [
        ["better", "90.00", "85.00", "25.00", "0", "95.00 / 90.00", "85.00 / 80.00"],
        ["plain", "85.50", "81.00", "25.00", "1", "81.00 / 72.00 ± 2.83", "90.00 / 90.00"],
    ]


def test_the_figure_tells_the_rank_correlation_of_each_network():
    svg = promise_and_truth(RUNS, "better")
    assert "a: rank correlation 1.00" in svg
    assert "b: rank correlation 1.00" in svg


def test_files_of_a_study(tmp_path):
    write_study(RUNS, {"command": "x"}, tmp_path, marked="better")
    assert len(json.loads((tmp_path / "study.json").read_text())) == 5
    assert "over 5 runs: a 1.00, b 1.00" in (tmp_path / "study.html").read_text()
    assert (tmp_path / "study.svg").read_text().startswith("<svg")
