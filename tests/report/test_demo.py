"""The demo's page: complete, self-contained, and true to the rows."""

import re

import pytest

from addresses import addresses
from bal.backbones import ClassifierTraining
from bal.experiments import DemoSettings, ranking, run_demo
from bal.report import write_demo_report

SETTINGS = DemoSettings(
    seeds=(0,), threads=1, width=4, classifier=ClassifierTraining(epochs=1), detectors=("BAL", "max-softmax", "energy")
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    runs = run_demo(SETTINGS, out, say=lambda _: None, show_progress=False)
    write_demo_report(runs, SETTINGS, out / "report.html")
    assert (out / "scores.svg").read_text().startswith("<svg")
    return (out / "report.html").read_text(), runs


def test_the_page_asks_for_nothing_outside_itself(page):
    found = addresses(page[0])
    assert found
    assert all(address.startswith(("data:", "#")) for address in found)
    assert "<script" not in page[0]
    assert len(page[0]) < 1_500_000


@pytest.mark.parametrize(
    "title",
    [
        "Results",
        "What to use",
        "Scores",
        "ROC and precision-recall",
        "Training of D and G",
        "two dimensions",
        "Most confident",
        "Accuracy against time",
        "Cost",
        "Every seed",
        "Exact settings",
    ],
)
def test_the_page_has_every_section(page, title):
    assert re.search(f"<h2>[^<]*{title}", page[0])


def test_the_page_shows_the_figures_of_the_rows(page):
    html, runs = page
    for standing in ranking([m.row for m in runs[0].measured]):
        assert f"{100 * standing.mean['auroc']:.2f} ± 0.00" in html
    assert html.count("<svg") == 5
    assert html.count("<img") == 16
    assert "&#34;lambda_c&#34;: 0.7" in html, "the exact settings are there"
