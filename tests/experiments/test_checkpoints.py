import os

import pytest
import torch

from bal.data.catalog import load_data_set
from bal.errors import DataError, StorageError
from bal.experiments.checkpoints import CHECKPOINTS, load_checkpoint
from bal.features import extract

# accuracy on the first 2,000 test images as documented with the weights; see docs/results for CIFAR-100 and SVHN
ACCURACY = {
    "densenet-cifar10": 0.9460,
    "densenet-cifar100": 0.7605,
    "densenet-svhn": 0.9590,
    "resnet20-cifar10": 0.9165,
    "resnet56-cifar10": 0.9295,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_saved_weights_of_each_network_are_read_back(name, tmp_path, monkeypatch):
    monkeypatch.setenv("BAL_WEIGHTS", str(tmp_path))
    checkpoint = CHECKPOINTS[name]
    model = checkpoint.build()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(1)
    torch.save(model.state_dict(), tmp_path / checkpoint.file)
    classifier = load_checkpoint(name)
    assert all((tensor == 1).all() for tensor in classifier.model.state_dict().values())
    assert classifier.preprocess.mean.flatten().tolist() == pytest.approx(checkpoint.normalisation[0])


def test_channels_last_gives_the_same_features(tmp_path, monkeypatch):
    monkeypatch.setenv("BAL_WEIGHTS", str(tmp_path))
    checkpoint = CHECKPOINTS["resnet20-cifar10"]
    torch.save(checkpoint.build().state_dict(), tmp_path / checkpoint.file)
    classifier = load_checkpoint("resnet20-cifar10")
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    f, _ = classifier(x)
    classifier.model.to(memory_format=torch.contiguous_format)
    assert torch.allclose(f, classifier(x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_weights_that_are_not_there_are_named_with_the_way_out(folder, monkeypatch):
    monkeypatch.delenv("BAL_WEIGHTS", raising=False)
    if folder:
        monkeypatch.setenv("BAL_WEIGHTS", folder)
    with pytest.raises(DataError, match=r"densenetbc100_cifar10\.pt; set BAL_WEIGHTS"):
        load_checkpoint("densenet-cifar10")


def test_weights_of_another_network_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("BAL_WEIGHTS", str(tmp_path))
    torch.save(CHECKPOINTS["resnet20-cifar10"].build().state_dict(), tmp_path / CHECKPOINTS["resnet56-cifar10"].file)
    with pytest.raises(StorageError, match="missing"):
        load_checkpoint("resnet56-cifar10")


@pytest.mark.skipif(
    not (os.environ.get("BAL_WEIGHTS") and os.environ.get("BAL_DATA")),
    reason="BAL_WEIGHTS and BAL_DATA name no real weights and data",
)
@pytest.mark.parametrize("name", ACCURACY)
def test_real_checkpoints_are_as_accurate_as_they_were(name):
    images, labels = load_data_set(CHECKPOINTS[name].data, "test")
    features = extract(load_checkpoint(name), (images[:2000], labels[:2000]), batch_size=16)
    assert features.accuracy() == pytest.approx(ACCURACY[name], abs=0.003)
