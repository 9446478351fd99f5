import json

import numpy as np
import pytest
from PIL import Image

from command import bal

COMPARE = ("compare", "--classifier", "my_model:build", "--train", "train.npz", "--test", "test.npz", "--ood", "noise=noise.npz")


def test_compare_ranks_detectors_on_a_users_own_network_and_files(workspace):
    result = bal(
        *COMPARE, "--detectors", "energy", "knn", "ODIN", "--seeds", "0", "--id-name", "mine", "--out", "out", cwd=workspace
    )
    assert result.returncode == 0, result.stderr
    assert "Best ranking of ID above OOD" in result.stdout
    rows = json.loads((workspace / "out" / "results.json").read_text())
    assert {(row["detector"], row["id"], row["ood"]) for row in rows} == {(n, "mine", "noise") for n in ("energy", "kNN", "ODIN")}
    assert (workspace / "out" / "report.html").exists()


def test_compare_prints_json_alone_for_machines(workspace):
    result = bal(*COMPARE, "--detectors", "energy", "knn", "--seeds", "0", "--out", "out", "--json", cwd=workspace)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert {standing["detector"] for standing in said["ranking"]} == {"energy", "kNN"}
    best, worst = (standing["mean"]["auroc"] for standing in said["ranking"])
    assert 1 >= best >= worst >= 0
    assert said["advice"][0].startswith("Best ranking of ID above OOD")
    assert len(json.loads((workspace / said["results"]).read_text())) == 2
    assert (workspace / said["report"]).exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"my_model:build": "my_model:nothing"}, "must return a trained torch.nn.Module"),
        ({"my_model:build": "no_such_module:build"}, "cannot find no_such_module:build"),
        ({"my_model:build": "my_model"}, "package.module:function"),
        ({"my_model:build": "my_model:no_such"}, "failed with AttributeError"),
        ({"my_model:build": "my_model:broken"}, "my_model:broken failed with FileNotFoundError"),
        ({"my_model:build": "odd:build"}, "failed with SyntaxError"),
        ({"my_model:build": ".my_model:build"}, "failed with TypeError"),
        ({"my_model:build": "my_model:strange"}, "the model cannot take inputs of shape"),
        ({"train.npz": "none.npz"}, "there is no file none.npz"),
        ({"noise=noise.npz": "my_model.py"}, "is not an .npz file"),
    ],
)
def test_compare_says_what_is_wrong_with_its_arguments(workspace, change, words):
    result = bal(*(change.get(argument, argument) for argument in COMPARE), "--detectors", "energy", cwd=workspace)
    assert result.returncode == 1
    assert words in result.stderr.replace("\n", "")
    assert "Traceback" not in result.stderr


def test_two_ood_sets_of_one_name_are_refused(workspace):
    result = bal(*COMPARE, "./noise.npz", cwd=workspace)
    assert result.returncode == 1
    assert "two OOD sets are called 'noise'" in result.stderr.replace("\n", "")


def test_compare_reads_folders_of_images_and_names_of_the_catalog(workspace):
    images = np.random.default_rng(2).integers(0, 256, (12, 9, 9), np.uint8)
    (workspace / "pictures").mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(workspace / "pictures" / f"{i}.png")
    result = bal(*COMPARE, "pictures", "--detectors", "energy", "--seeds", "0", "--out", "out", cwd=workspace)
    assert result.returncode == 0, result.stderr
    rows = json.loads((workspace / "out" / "results.json").read_text())
    assert {(row["id"], row["ood"]) for row in rows} == {("test", "noise"), ("test", "pictures")}
    missing = bal(*(("cifar10" if part == "train.npz" else part) for part in COMPARE), cwd=workspace, BAL_DATA="data")
    assert "has no cifar-10-batches-bin/data_batch_1.bin" in " ".join(missing.stderr.split())
    assert "bal data get cifar10" in " ".join(missing.stderr.split())


def test_folders_of_classes_mean_the_same_in_training_and_test(workspace, rng):
    for folder, names in (("train", ("ant", "bee", "cow")), ("test", ("ant", "cow")), ("other", ("ant", "dog"))):
        for name in names:
            (workspace / folder / name).mkdir(parents=True)
            for i in range(4):
                Image.fromarray(rng.integers(0, 256, (4, 4), np.uint8)).save(workspace / folder / name / f"{i}.png")
    places = {"train.npz": "train", "test.npz": "test"}
    arguments = [places.get(argument, argument) for argument in COMPARE]
    result = bal(*arguments, "--detectors", "energy", "--seeds", "0", "--out", "out", cwd=workspace)
    assert result.returncode == 0, result.stderr
    result = bal(*(argument if argument != "test" else "other" for argument in arguments), cwd=workspace)
    assert result.returncode == 1
    assert "no known classes: dog" in " ".join(result.stderr.split())


def test_why_no_detector_could_be_fitted_is_told(workspace):
    with np.load(workspace / "train.npz") as train:
        np.savez(workspace / "few.npz", images=train["images"][:12], labels=np.arange(12) % 2)  # none of the third class
    arguments = [{"train.npz": "few.npz"}.get(argument, argument) for argument in COMPARE]
    result = bal(*arguments, "--detectors", "energy", "kNN", "--out", "out", cwd=workspace)
    assert result.returncode == 1
    assert "energy: every class needs at least 2 usable rows" in " ".join(result.stderr.split())


def test_compare_asks_did_you_mean(workspace):
    result = bal(*COMPARE, "--detectors", "enrgy", cwd=workspace)
    assert result.returncode == 1
    assert "did you mean 'energy'" in result.stderr.replace("\n", "")


def test_data_without_a_classifier_is_refused(tmp_path):
    assert "need --classifier" in bal("compare", "--train", "x.npz", cwd=tmp_path).stderr
