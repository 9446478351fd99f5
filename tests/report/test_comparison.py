import pytest
import torch

from bal.detectors import Energy, MaxSoftmax
from bal.experiments import Row, compare, extract_once, ranking
from bal.report import ranking_table, write_comparison_report
from bal.report.comparison import cost_table


def row(name, auroc, fpr95, score_seconds=1.0):
    return Row(name, "a", "x", 0, fpr95, fpr95, auroc, auroc, auroc, 0.9, 1, 1, score_seconds, 1)


def test_the_best_number_is_marked_whichever_way_it_points():
    table = ranking_table(ranking([row("a", 0.9, 0.3), row("b", 0.8, 0.2), row("c", 0.7, 0.4)]))
    assert [cells[0] for cells in table.rows] == ["a", "b", "c"]
    assert table.best == {(1, 1), (1, 2), (0, 3), (0, 4), (0, 5)}  # b has the lowest FPR95 and error, a the highest areas
    assert table.rows[0][3] == "90.00 ± 0.00"


def test_ties_share_the_mark():
    table = ranking_table(ranking([row("a", 0.90001, 0.3), row("b", 0.9, 0.3)]))
    assert table.best == {(r, column) for r in (0, 1) for column in range(1, 6)}


def test_the_cost_table_has_the_quickest_first():
    table = cost_table(ranking([row("slow", 0.9, 0.1, 3.0), row("quick", 0.5, 0.5, 0.2)]))
    assert [cells[0] for cells in table.rows] == ["quick", "slow"]


@pytest.mark.filterwarnings("ignore:the classifier gets")  # an untrained network is good enough for a page
def test_the_page_of_a_comparison_has_ranking_advice_curves_and_settings(tiny_classifier, tiny_images, tmp_path):
    comparison = extract_once(
        tiny_classifier,
        train=tiny_images,
        test=tiny_images,
        oods={"noise<b>": torch.rand(20, 1, 4, 4), "dark": torch.zeros(20, 1, 4, 4)},
        id_name="quarters",
    )
    measured = compare(comparison, {"energy": Energy(), "max-softmax": MaxSoftmax()})
    write_comparison_report(measured, {"command": "bal compare"}, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    for words in (
        "What to use",
        "Ranking",
        "Accuracy against time",
        "Cost",
        "Every row",
        "Exact settings",
        "bal compare: quarters",
    ):
        assert words in html
    assert html.count("<svg") == 3, "the scatter and the curves of two OOD sets"
    assert "noise&lt;b&gt;" in html, "names are escaped"
