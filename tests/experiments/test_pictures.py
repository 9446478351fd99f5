import pytest
import torch

from bal.experiments import networks, pictures
from bal.experiments.networks import Store, Trained
from bal.experiments.pictures import GRID, grid_over, picture, three_layers, two_gaussians
from toy_network import write_mnist_like


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BAL_WEIGHTS", str(tmp_path / "weights"))
    write_mnist_like(tmp_path / "data", "mnist", rows=400)
    for size in (2, 3):
        monkeypatch.setitem(networks.NETWORKS, f"resnet18-mnist-{size}", Trained("mnist", 20, width=4, penultimate=size))
    return Store(tmp_path / "store", show_progress=False)


def test_the_toy_classifier_tells_two_gaussians_apart():
    x, c = two_gaussians()
    classifier = three_layers(x, c)
    assert (classifier(x)[1].argmax(1) == c).double().mean() > 0.99


def test_the_grid_covers_more_than_the_points():
    points = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    grid, corners = grid_over(points, 0.5)
    assert grid.shape == (GRID**2, 2)
    assert corners.tolist() == [[-1.0, -2.0], [3.0, 6.0]]
    assert grid[0].tolist() == [-1.0, -2.0]
    assert grid[1].tolist()[0] == -1.0, "the second coordinate runs first"


def test_on_two_gaussians_bal_trusts_the_data_and_not_the_far_corners(store):
    arrays = picture("fig1", store)
    corners = arrays["toy_softmax"].reshape(GRID, GRID)[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.min() > 0.9, "softmax is sure of places where it has seen nothing"
    assert arrays["toy_bal"].reshape(GRID, GRID)[[0, 0, -1, -1], [0, -1, 0, -1]].max() < 0.05
    x = arrays["toy_points"]
    low, high = arrays["toy_corners"]
    cell = ((x - low) / (high - low) * (GRID - 1)).round().long()
    assert arrays["toy_bal"].reshape(GRID, GRID)[cell[:, 0], cell[:, 1]].median() > 0.5
    assert (arrays["mnist_bal"] <= arrays["mnist_softmax"] + 1e-12).all()


def test_hard_ood_lies_nearer_to_the_data_than_trivial_ood(store):
    arrays = picture("fig5", store)
    distance = {
        name: torch.cdist(arrays[name], arrays["known"]).amin(1).mean().item() for name in ("trivial", "hard", "generated")
    }
    assert distance["hard"] < distance["trivial"]
    assert distance["generated"] < distance["trivial"]


def test_a_figure_is_computed_once(store, monkeypatch):
    first = picture("fig4", store)
    monkeypatch.setitem(pictures.PICTURES, "fig4", lambda _: pytest.fail("computed again"))
    again = picture("fig4", store)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert (first["points_2"].shape[1], first["points_3"].shape[1]) == (2, 3)
    monkeypatch.setattr(pictures, "VERSION", 0)
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        picture("fig4", store)
