import json

import pytest
import torch

from bal.detectors import MaxSoftmax
from bal.experiments.cells import Cell
from bal.experiments.reproduce import Finding
from bal.experiments.tables import Line, TableSpec
from bal.report.page import markdown_table
from bal.report.reproduction import (
    average_table,
    block_table,
    summary_table,
    table_sections,
    write_average,
    write_figure,
    write_reproduction,
    write_table,
)

METRICS = ("accuracy", "fpr95", "detection_error", "auroc", "aupr_in", "aupr_out")


def finding(label, auroc, *, block="A", fpr95=10.0, paper=None, seeds=3, **more):
    line = Line(block, Cell("toy", MaxSoftmax(), label, ("omniglot",)), paper or {})
    values = dict.fromkeys(METRICS, 50.0) | {"auroc": auroc, "fpr95": fpr95}
    mean, std = (values, dict.fromkeys(METRICS, 0.5)) if auroc is not None else ({}, {})
    return Finding(line, mean, std, seeds if mean else 0, 1.0, **more)


FINDINGS = [
    finding("max-softmax", 90.0, fpr95=30.0, paper={"auroc": 91.0}, seeds=1),
    finding("BAL", 95.0, fpr95=12.5, paper={"auroc": 97.0, "fpr95": 5.0}),
    finding("kNN", 95.0, fpr95=20.0),
    finding("BAL", None, block="B", paper={"auroc": 99.0}, reason="no weights"),
]
TABLE = TableSpec("table9", "Table 9", 1, ("auroc", "fpr95"), tuple(f.line for f in FINDINGS), ("A note.",))


def test_the_papers_numbers_and_the_difference_stand_under_ours():
    rows = block_table(FINDINGS[:3], ("auroc", "fpr95")).rows
    assert rows == [
        ["max-softmax", "90.00", "30.00"],
        ["· paper", "91", ""],
        ["· difference", "-1.00", ""],
        ["BAL", "95.00 ± 0.50", "12.50 ± 0.50"],
        ["· paper", "97", "5"],
        ["· difference", "-2.00", "+7.50"],
        ["kNN", "95.00 ± 0.50", "20.00 ± 0.50"],
    ]


def test_the_best_is_marked_ties_included_and_the_lowest_where_low_is_good():
    assert block_table(FINDINGS[:3], ("auroc", "fpr95")).best == {(3, 1), (6, 1), (3, 2)}


def test_a_line_that_was_not_measured_says_so_and_keeps_the_papers_numbers():
    table = block_table(FINDINGS[3:], ("auroc",))
    assert table.rows == [["BAL", "not measured here"], ["· paper", "99"]]
    assert not table.best


def test_runs_that_ended_badly_are_told():
    assert "2 of 3 runs stopped" in block_table([finding("BAL", 50.0, unhealthy=2)], ("auroc",)).rows[0][0]


def test_the_summary_has_a_line_for_each_block():
    rows = summary_table(TABLE, FINDINGS).rows
    assert [row[0] for row in rows] == ["A", "B"]
    assert rows[0][1:5] == ["12.5 / 95.0", "5 / 97", "20.0 / 95.0 kNN", "-"]
    assert rows[0][5] == "30.0 / 90.0", "max-softmax"
    assert rows[1][1:] == ["-", "- / 99", *["-"] * 7], "what was not measured is a dash"


def test_the_average_is_over_blocks_of_detectors_that_are_in_all_of_them(tmp_path):
    """kNN: (20 + 40) / 2 and (95 + 89) / 2; BAL is ahead of it by FPR95 in block C alone, by AUROC there too, and ties in A."""
    findings = [
        *(finding("BAL", 95.0, fpr95=20.0), finding("kNN", 95.0, fpr95=20.0), finding("ViM", 99.0)),
        *(finding("BAL", 90.0, fpr95=30.0, block="C"), finding("kNN", 89.0, fpr95=40.0, block="C")),
        finding("BAL", None, block="D"),
    ]
    assert average_table(findings).rows == [["BAL", "25.00", "92.50", "", ""], ["kNN", "30.00", "92.00", "1 of 2", "1 of 2"]]
    section = write_average(findings, tmp_path)
    assert "these 2 comparisons" in section.text[0]
    assert "| kNN | 30.00 | 92.00 |" in (tmp_path / "average.md").read_text()


def test_blocks_without_numbers_are_named_with_the_reason():
    sections = table_sections(TABLE, FINDINGS)
    assert [section.title for section in sections] == ["Table 9", "A"]
    assert "Not measured here: B. no weights." in sections[0].text
    assert "A note." in sections[0].text


def test_markdown_has_bold_best_cells():
    table = block_table(FINDINGS[1:3], ("fpr95",))
    assert markdown_table(table).splitlines()[:3] == ["| method | FPR95 ↓ |", "| --- | --- |", "| BAL | **12.50 ± 0.50** |"]


def test_files_of_a_table(tmp_path):
    sections = write_table(TABLE, FINDINGS, {"command": "bal reproduce table9"}, tmp_path)
    content = json.loads((tmp_path / "table9.json").read_text())
    assert [line["label"] for line in content["lines"]] == ["max-softmax", "BAL", "kNN", "BAL"]
    assert content["lines"][1]["mean"]["auroc"] == 95.0
    assert content["lines"][1]["paper"] == {"auroc": 97.0, "fpr95": 5.0}
    assert content["lines"][3]["reason"] == "no weights"
    assert content["settings"]["command"] == "bal reproduce table9"
    assert (tmp_path / "table9.md").read_text().startswith("# Table 9\n")
    write_reproduction(sections, {}, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "· difference" in page
    assert "<script" not in page


@pytest.mark.parametrize("name", ["fig4"])
def test_files_of_a_figure(tmp_path, name):
    arrays = {f"points_{n}": torch.rand(30, n) for n in (2, 3)} | {f"labels_{n}": torch.arange(30) % 10 for n in (2, 3)}
    arrays |= {"accuracy_2": torch.tensor(0.9), "accuracy_3": torch.tensor(0.95)}
    write_figure(name, arrays, tmp_path)
    assert (tmp_path / "fig4.svg").read_text().startswith("<svg")
    assert "![Fig. 4: features in 2 and 3 dimensions](fig4.svg)" in (tmp_path / "fig4.md").read_text()
