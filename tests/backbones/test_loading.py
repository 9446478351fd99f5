import pytest

from bal.backbones import Classifier
from bal.backbones.loading import load_classifier
from bal.errors import DataError

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
