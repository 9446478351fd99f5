"""The page of bal report: complete, self-contained, and shorter where less is known."""

import re
from dataclasses import replace

import pytest
import torch

from addresses import addresses
from bal.detectors import BAL, make_detector
from bal.evaluation import examine
from bal.evaluation.findings import Counts
from bal.features import extract
from bal.report import Commands, write_detector_report
from bal.report.detector import class_sections

pytestmark = pytest.mark.filterwarnings("ignore:the classifier gets")


@pytest.fixture
def images(generator):
    return torch.rand(300, 1, 4, 4, generator=generator), torch.arange(300) % 3


def page_of(detector, test, oods, path, **options):
    examined = examine(detector, test, oods, show_progress=False)
    write_detector_report(examined, path / "report.html", **options)
    return (path / "report.html").read_text(), examined


def headings(html):
    return re.findall("<h2>(.*?)</h2>", html)


def test_the_page_has_every_section_and_asks_for_nothing_outside_itself(tiny_classifier, images, tmp_path):
    detector = BAL().fit(tiny_classifier, images, show_progress=False).calibrate(images[0], false_alarm=0.1)
    oods = [("noise<b>", torch.rand(50, 1, 4, 4)), ("dark", torch.zeros(20, 1, 4, 4))]
    commands = Commands("d", "my_model:build", "photos/test")
    html, examined = page_of(detector, images, oods, tmp_path, commands=commands, settings={"command": "bal report d"})
    found = headings(html)
    assert found[:8] == [
        "In short",
        "What to do",
        "Accepted and rejected",
        "ID rows by predicted class",
        "ID rows by true class",
        "How well OOD is told from ID",
        "Scores",
        "Coverage against risk",
    ]
    assert found[-1] == "Exact settings"
    assert "noise&lt;b&gt; rejected" in found, "names are escaped"
    assert html.count("<svg") == 3, "a histogram for each OOD set, and the curve"
    assert all(address.startswith(("data:", "#")) for address in addresses(html))
    assert "<script" not in html
    shown = sum(
        map(len, [*examined.known.examples.values(), *(e for o in examined.unknown.values() for e in o.examples.values())])
    )
    assert html.count("<img") == shown > 16
    for words in (
        "bal report: BAL on photos/test",
        "at most 10.0% promised",
        "&#34;command&#34;: &#34;bal report d&#34;",
        "p-value",
        "p1 ",
    ):
        assert words in html
    assert f"{examined.found.selective['max-softmax'].aurc:.4f}" in html
    assert f"{100 * examined.found.oods['dark'].metrics.auroc:.2f}" in html


def test_without_labels_and_ood_the_page_shrinks(tiny_classifier, images, tmp_path):
    detector = make_detector("energy").fit(tiny_classifier, images, show_progress=False)
    html, _ = page_of(detector, images[0], [], tmp_path)
    assert headings(html) == [
        "In short",
        "What to do",
        "Accepted and rejected",
        "ID rows by predicted class",
        "ID rejected",
        "Exact settings",
    ]
    assert "not calibrated: it keeps 95 % of the training rows" in html
    assert "not known, the test data has no labels" in html
    assert "<svg" not in html
    assert "p-value" not in html


def test_features_have_no_pictures_and_the_page_says_why(blobs, outliers, tmp_path):
    detector = make_detector("Mahalanobis").fit_features(blobs).calibrate(blobs, false_alarm=0.1, per_class=True)
    html, _ = page_of(detector, blobs, [("far", outliers)], tmp_path)
    assert "There are none: the inputs are features, not images" in html
    assert "Promises by predicted class" in html
    assert "one for each predicted class" in html
    assert "<img" not in html


def test_features_of_images_have_no_pictures_either(tiny_classifier, images, tmp_path):
    detector = make_detector("energy").fit(tiny_classifier, images, show_progress=False)
    features = extract(tiny_classifier, images, show_progress=False)
    html, _ = page_of(detector, features, [("same", features)], tmp_path)
    assert "Accepted and rejected" in headings(html)
    assert "<img" not in html


def test_rows_that_are_not_finite_are_counted_on_the_page(tiny_classifier, images, tmp_path):
    detector = make_detector("energy").fit(tiny_classifier, images, show_progress=False)
    x = images[0].clone()
    x[:7] = torch.inf
    html, _ = page_of(detector, (x, images[1]), [], tmp_path)
    assert "7 not finite, 0 files not readable" in html
    assert "7 of 300 rows of the test data are not finite" in html


def test_nothing_but_invalid_rows_still_makes_a_page(tiny_classifier, images, tmp_path):
    detector = make_detector("energy").fit(tiny_classifier, images, show_progress=False).calibrate(images[0])
    html, _ = page_of(detector, (torch.full_like(images[0], torch.nan), images[1]), [("noise", images[0])], tmp_path)
    assert "300 not finite" in html
    assert "Coverage against risk" not in html


def test_of_many_classes_the_most_rejected_are_shown(blobs):
    found = examine(make_detector("energy").fit_features(blobs), blobs, [], show_progress=False).found
    groups = {f"class {c}": Counts.of(100, 100 - c) for c in range(60)}
    section = next(class_sections(replace(found, by_predicted=groups)))
    assert [row[0] for row in section.table.rows[:2]] == ["class 59", "class 58"]
    assert len(section.table.rows) == 40
    assert "20 more in --json" in section.text[0]
