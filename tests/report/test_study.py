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
    assert table.rows == [  # better: sqrt(5 x 15); plain: sqrt(sqrt(20 x 18) x 10)
        ["better", "8.66", "14.14", "25.00", "0", "5.00 / 10.00", "15.00 / 20.00"],
        ["plain", "13.77", "16.71", "25.00", "1", "18.97 / 27.93 ± 2.83", "10.00 / 10.00"],
    ]


def test_the_figure_tells_the_rank_correlation_of_each_network():
    svg = promise_and_truth(RUNS, "better")
    assert svg.count("rank correlation 1.00") == 2


def test_files_of_a_study(tmp_path):
    write_study(RUNS, {"command": "x"}, tmp_path, marked="better")
    assert len(json.loads((tmp_path / "study.json").read_text())) == 5
    assert "over 5 runs: a 1.00, b 1.00; of the variants, each over all networks: 1.00" in (tmp_path / "study.html").read_text()
    assert (tmp_path / "study.svg").read_text().startswith("<svg")
