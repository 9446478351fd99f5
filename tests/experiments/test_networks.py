from dataclasses import replace

import pytest
import torch

from bal.backbones import ClassifierTraining
from bal.experiments import networks
from bal.experiments.networks import NETWORKS, OnFeatures, Store, Trained, find_network, network_path
from toy_network import Toy, write_mnist_like

SMALL = Trained("mnist", epochs=40, width=4)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAL_DATA", str(tmp_path / "data"))
    write_mnist_like(tmp_path / "data", "mnist", rows=400)
    return Store(tmp_path / "store", show_progress=False)


def test_a_network_is_trained_once_and_kept(store):
    classifier = SMALL.classifier(store)
    x, c = SMALL.inputs(store, "mnist", "test")
    features = store.extract(classifier, (x, c))
    assert features.accuracy() > 0.9
    stamp = network_path(store, "mnist-full").stat().st_mtime_ns
    assert SMALL.classifier(store).fingerprint() == classifier.fingerprint()
    assert network_path(store, "mnist-full").stat().st_mtime_ns == stamp


def test_another_recipe_trains_anew(store):
    first = SMALL.classifier(store).fingerprint()
    assert replace(SMALL, epochs=1).classifier(store).fingerprint() != first


def test_a_damaged_file_is_trained_anew(store):
    first = SMALL.classifier(store).fingerprint()
    network_path(store, "mnist-full").write_bytes(b"cut")
    assert SMALL.classifier(store).fingerprint() == first


def test_the_papers_preset_is_the_papers(store):
    recipe = NETWORKS["resnet18-mnist"].recipe("paper")
    assert (recipe["width"], recipe["stem"], recipe["training"]["epochs"]) == (64, "3x3", 300)


def test_presets_do_not_share_files(store):
    assert network_path(store, "x") != network_path(replace(store, preset="paper"), "x")


@pytest.mark.parametrize("size", [2, 64])
def test_a_new_penultimate_layer_has_its_size_and_works(store, size):
    network = OnFeatures(Toy(), "toy", penultimate=size, training=ClassifierTraining(epochs=20, batch_size=64))
    classifier = network.classifier(store)
    assert (classifier.dim, classifier.classes) == (size, 3)
    assert store.extract(classifier, network.inputs(store, "mnist", "test")).accuracy() > 0.95


def test_the_head_alone_gives_the_networks_own_logits(store):
    body = SMALL.classifier(store)
    network = OnFeatures(SMALL, "mnist")
    x, c = SMALL.inputs(store, "mnist", "test")
    features = store.extract(body, (x, c))
    f, labels = network.inputs(store, "mnist", "test")
    assert torch.equal(f, features.f)
    assert labels.tolist() == c.tolist()
    assert torch.allclose(network.classifier(store)(f)[1], features.logits, atol=1e-5)


def test_classes_can_be_chosen_and_are_numbered_from_0(store):
    network = OnFeatures(Toy(), "toy", classes=(0, 2), training=ClassifierTraining(epochs=5, batch_size=64))
    f, c = network.inputs(store, "mnist", "train")
    assert (len(f), c.unique().tolist()) == (200, [0, 1])
    assert network.classifier(store).classes == 2
    assert len(network.inputs(store, "omniglot", "test")[0]) == 200, "data sets of others are not filtered"


def test_features_of_a_network_are_found_by_name(monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "toy", Toy())
    assert find_network("toy") == Toy()
    assert find_network("toy/features") == OnFeatures(Toy(), "toy")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_every_network_has_a_recipe(name, preset):
    assert find_network(name).recipe(preset)
    assert find_network(name).data in {"mnist", "fashion-mnist", "cifar10", "cifar100", "svhn"}
