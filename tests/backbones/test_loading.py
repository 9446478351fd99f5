import copy
import os

import pytest
import torch

from bal.backbones import Classifier, load_classifier, load_weights
from bal.errors import DataError, StorageError

MODULE = """
from torch import nn
from bal import Classifier
def module(): return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
def wrapped(): return Classifier(module(), head="0")
"""


def test_a_function_of_the_current_folder_gives_the_classifier(tmp_path, monkeypatch):
    (tmp_path / "loading_example.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_classifier("loading_example:module"), Classifier)
    assert load_classifier("loading_example:module").classes == 4
    assert load_classifier("loading_example:wrapped").classes == 3


@pytest.mark.parametrize("name", ["", "x", ":y", "x:"])
def test_a_name_without_both_parts_is_refused(name):
    with pytest.raises(DataError, match=r"package\.module:function"):
        load_classifier(name)


@pytest.fixture
def saved(tiny_model, tmp_path):
    torch.save(tiny_model.state_dict(), tmp_path / "w.pt")
    return tmp_path / "w.pt"


def fresh(tiny_model):
    other = copy.deepcopy(tiny_model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    return other


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_foreign_weights_are_loaded_under_their_own_or_mapped_names(tiny_model, saved, tmp_path):
    model = fresh(tiny_model)
    load_weights(model, saved)
    assert same(model, tiny_model)
    foreign = {"state_dict": {f"module.net.{name}": tensor for name, tensor in tiny_model.state_dict().items()}}
    torch.save(foreign, tmp_path / "foreign.pt")
    model = fresh(tiny_model)
    load_weights(model, str(tmp_path / "foreign.pt"), key_map={"module.net.": ""})
    assert same(model, tiny_model)


def test_weights_of_another_network_are_refused_and_nothing_is_changed(tiny_model, saved, tmp_path):
    state = torch.load(saved, weights_only=True)
    broken = {
        "missing": {k: v for k, v in state.items() if k != "7.bias"},
        "left over": {**state, "extra.weight": torch.zeros(1)},
        "of another shape": {**state, "7.bias": torch.zeros(5)},
    }
    for words, content in broken.items():
        torch.save(content, tmp_path / "x.pt")
        model = fresh(tiny_model)
        before = copy.deepcopy(model)
        with pytest.raises(StorageError, match=f"1 {words}"):
            load_weights(model, tmp_path / "x.pt")
        assert same(model, before)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def test_code_in_a_file_is_never_run(tiny_model, tmp_path):
    """Fault 10."""
    torch.save({"7.bias": Evil(tmp_path / "owned")}, tmp_path / "evil.pt")
    with pytest.raises(StorageError, match="nothing of it was run"):
        load_weights(tiny_model, tmp_path / "evil.pt")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"garbage" * 50])
def test_damaged_files_are_refused(tiny_model, tmp_path, content):
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        load_weights(tiny_model, tmp_path / "x.pt")
    with pytest.raises(StorageError, match="there is no file"):
        load_weights(tiny_model, tmp_path / "none.pt")


def test_a_file_that_is_no_state_dict_is_refused(tiny_model, tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "x.pt")
    with pytest.raises(StorageError, match="holds no state_dict"):
        load_weights(tiny_model, tmp_path / "x.pt")
