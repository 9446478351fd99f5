"""Each figure draws what it is given; that it looks right was seen by eye (docs/results)."""

import pytest
import torch

from bal.experiments.pictures import GRID, PICTURES
from bal.report.paper_figures import CAPTIONS, DRAWINGS, draw_fig1, draw_fig2, draw_fig5, draw_fig6, fig6_text


@pytest.fixture
def draw(generator):
    return lambda *shape: torch.rand(*shape, generator=generator)


def test_every_figure_has_a_drawing_and_a_caption():
    assert PICTURES.keys() == DRAWINGS.keys() == CAPTIONS.keys()


def test_confidence_maps(draw):
    arrays = {}
    for data in ("mnist", "toy"):
        arrays |= {f"{data}_{method}": draw(GRID**2) for method in ("softmax", "bal")}
        arrays |= {f"{data}_corners": torch.tensor([[-1.0, -2.0], [3.0, 4.0]]), f"{data}_points": draw(20, 2)}
    svg = draw_fig1(arrays)
    assert svg.count("<image") >= 8, "a map and the points in each of the four panels"
    assert "ResNet18 on MNIST, BAL" in svg
    assert draw_fig1(arrays) == svg, "the same bytes for the same arrays"


def test_histograms_of_confidence(draw):
    arrays = {f"{name}_{method}": draw(50) for name in ("fashion-mnist", "mnist", "omniglot") for method in ("softmax", "bal")}
    svg = draw_fig2(arrays)
    assert "OOD: MNIST and Omniglot" in svg
    assert "ResNet18 with BAL" in svg


def test_trivial_and_hard_ood(draw):
    svg = draw_fig5({name: draw(30, 2) for name in ("known", "trivial", "generated", "hard")})
    assert "hard OOD: G, then FGSM" in svg


@pytest.fixture
def pets():
    confidences = torch.tensor([0.95, 0.59, 0.60, 0.10])
    arrays = {}
    for name in ("dogs-vs-cats", "dogs-vs-cats-other"):
        arrays |= {
            f"{name}_softmax": confidences,
            f"{name}_bal": confidences / 2,
            f"{name}_predicted": torch.tensor([0, 1, 1, 0]),
        }
        arrays |= {f"{name}_labels": torch.tensor([0, 1, 0, 0]), f"{name}_rows": torch.tensor([0, 1, 2])}
        arrays[f"{name}_images"] = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    return arrays


def test_pictures_are_accepted_at_the_papers_threshold(pets):
    svg = draw_fig6(pets)
    for text in ("cat 0.95", "OOD 0.59", "dog 0.60", "OOD 0.47"):
        assert text in svg


def test_the_words_about_the_pictures_count_them_all(pets):
    text = fig6_text(pets)
    assert "4 pictures of cats and dogs, of which the network names 75.0% rightly" in text
    assert "softmax accepts 50.0% of the cats and dogs and 50.0% of the others; BAL 0.0% and 0.0%." in text
