import io
import json
import pickle
import warnings
import zipfile
from contextlib import suppress

import pytest
import torch
from torch import nn

from bal import Classifier
from bal.backbones import load_classifier
from bal.backbones.exported import SAMPLE
from bal.detectors import make_detector
from bal.errors import HeadError, ShapeError, StorageError
from bomb import Bomb


def export(model, path, *, rows=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("rows")},) if rows is None else None
        program = torch.export.export(model, (torch.rand(rows or 2, 1, 4, 4),), dynamic_shapes=shapes)
        torch.export.save(program, path)
    return str(path)


@pytest.fixture
def program(tiny_model, tmp_path):
    return export(tiny_model.eval(), tmp_path / "net.pt2")


def test_an_exported_program_gives_the_features_and_logits_of_its_network(program, tiny_model, tiny_images):
    exported, eager = load_classifier(program), Classifier(tiny_model)
    assert (exported.head_name, exported.dim, exported.classes) == ("7", 6, 3)
    assert exported.source == program
    for ours, theirs in zip(exported(tiny_images[0]), eager(tiny_images[0]), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_it_has_the_fingerprint_of_its_network_so_a_detector_may_be_used_with_either(program, tiny_model, tiny_images, tmp_path):
    import bal

    assert load_classifier(program).fingerprint() == Classifier(tiny_model).fingerprint()
    make_detector("ODIN").fit(tiny_model, tiny_images, show_progress=False).save(tmp_path / "d")
    by_export, by_module = (bal.load(tmp_path / "d", c).score(tiny_images[0]) for c in (load_classifier(program), tiny_model))
    assert abs(by_export - by_module).max() < 1e-5


def test_a_fixed_batch_is_refused_with_a_reason(tiny_model, tmp_path, tiny_images):
    classifier = load_classifier(export(tiny_model.eval(), tmp_path / "net.pt2", rows=2))
    with pytest.raises(ShapeError, match="cannot take inputs of shape"):
        classifier(tiny_images[0])


def test_a_head_without_bias_and_a_softmax_at_the_end_are_read(tmp_path, tiny_images):
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3, bias=False), nn.Softmax(1)).eval()
    classifier = load_classifier(export(model, tmp_path / "net.pt2"))
    torch.testing.assert_close(classifier(tiny_images[0])[1], Classifier(model)(tiny_images[0])[1])


def test_a_program_exported_in_training_mode_or_without_a_linear_layer_is_refused(tiny_model, tmp_path):
    with pytest.raises(HeadError, match=r"training mode; call model\.eval"):
        load_classifier(export(tiny_model.train(), tmp_path / "training.pt2"))
    with pytest.raises(HeadError, match="no linear layer"):
        load_classifier(export(nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten()), tmp_path / "conv.pt2"))


def test_what_is_no_exported_program_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"there is no file .*torch\.export\.save"):
        load_classifier(str(tmp_path / "none.pt2"))
    (tmp_path / "text.pt2").write_text("no")
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.pt2")
    for name in ("text.pt2", "weights.pt2"):
        with pytest.raises(StorageError, match="no exported program"):
            load_classifier(str(tmp_path / name))


def pickled(folder):
    sink = io.BytesIO()
    torch.save(Bomb(folder), sink)
    return sink.getvalue()


def changed(program, path, changes):
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        root = next(iter(members)).partition("/")[0]
        for name, content in {**members, **{f"{root}/{name}": content for name, content in changes.items()}}.items():
            new.writestr(name, content)
    return str(path)


WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


@pytest.mark.parametrize("how", ["sample", "weight", "constant", "library", "legacy"])
def test_a_pickle_or_a_library_in_an_exported_program_is_refused(program, tmp_path, how):
    """Fault 10: torch.export.load by itself runs each of these pickles, as the last lines show for two."""
    bomb = pickled(tmp_path / "ran")
    entry = {"path_name": "weight_0", "is_param": True, "use_pickle": True, "tensor_meta": None}
    changes = {
        "sample": {SAMPLE: bomb},
        "weight": {WEIGHTS: json.dumps({"config": {"0.weight": entry}}), "data/weights/weight_0": bomb},
        "constant": {
            CONSTANTS: json.dumps({"config": {"c": {**entry, "path_name": "opaque_obj_0"}}}),
            "data/constants/opaque_obj_0": pickle.dumps(Bomb(tmp_path / "ran")),
        },
        "library": {"data/aotinductor/model/x.so": b""},
        "legacy": {"data/weights/model.pt": bomb},
    }[how]
    with pytest.raises(StorageError, match="tensors and operators alone"):
        load_classifier(changed(program, tmp_path / "bomb.pt2", changes))
    assert not (tmp_path / "ran").exists()
    if how in ("sample", "constant"):
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.load(tmp_path / "bomb.pt2")
        assert (tmp_path / "ran").exists()
