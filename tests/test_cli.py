"""The command line as a person types it."""

import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from PIL import Image

from bal import __version__


def bal(*arguments, cwd=None, **environment):
    command, environment = [sys.executable, "-m", "bal.cli", *arguments], {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, env=environment)


def test_help_names_the_commands_and_shows_an_example():
    assert "demo" in bal("--help").stdout
    assert "Example: bal demo" in bal("demo", "--help").stdout


def test_version():
    assert bal("version").stdout.strip() == f"bal {__version__}"


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("demo", "--seeds", "many")])
def test_wrong_arguments_exit_with_2(arguments):
    assert bal(*arguments).returncode == 2


def test_an_error_is_one_sentence_and_exit_1(tmp_path):
    result = bal("demo", "--seeds", cwd=tmp_path)
    assert result.returncode == 1
    assert "at least one whole number" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("seeds", "words"),
    [(("-1",), "from 0 to"), (("0", "0"), "differ from each other"), (("99999999999999999999999",), "from 0 to")],
)
def test_seeds_that_cannot_be_used_are_refused_before_anything_is_trained(tmp_path, seeds, words):
    result = bal("demo", "--seeds", *seeds, cwd=tmp_path)
    assert result.returncode == 1
    assert words in result.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "file[bold]").write_text("")
    result = bal("demo", "--out", "file[bold]/x", cwd=tmp_path)
    assert result.returncode == 1
    assert "cannot write file[bold]/x" in result.stderr.replace("\n", "")


MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    with torch.no_grad():
        model[3].weight.copy_(torch.eye(3, 8))
    return model

def nothing():
    return 3
"""


@pytest.fixture
def workspace(tmp_path, tiny_images):
    """A user's folder: a module that builds a network, and data as .npz files labelled by that network itself."""
    (tmp_path / "my_model.py").write_text(MODEL)
    namespace = {}
    exec(MODEL, namespace)  # noqa: S102
    x = np.random.default_rng(0).normal(size=(120, 1, 4, 4)).astype(np.float32)
    with torch.no_grad():
        labels = namespace["build"]()(torch.from_numpy(x)).argmax(1).numpy()
    np.savez(tmp_path / "train.npz", images=x[:80], labels=labels[:80])
    np.savez(tmp_path / "test.npz", x=x[80:], y=labels[80:])
    np.savez(tmp_path / "noise.npz", images=np.random.default_rng(1).random((30, 1, 4, 4), dtype=np.float32))
    return tmp_path


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"my_model:build": "my_model:nothing"}, "must return a trained torch.nn.Module"),
        ({"my_model:build": "no_such_module:build"}, "cannot find no_such_module:build"),
        ({"my_model:build": "my_model"}, "package.module:function"),
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


def test_compare_asks_did_you_mean(workspace):
    result = bal(*COMPARE, "--detectors", "enrgy", cwd=workspace)
    assert result.returncode == 1
    assert "did you mean 'energy'" in result.stderr.replace("\n", "")


def test_data_without_a_classifier_is_refused(tmp_path):
    assert "need --classifier" in bal("compare", "--train", "x.npz", cwd=tmp_path).stderr


def test_data_list_and_verify_tell_what_is_here(tmp_path):
    def data(*arguments):
        return bal("data", *arguments, BAL_DATA=str(tmp_path))

    listed = data("list")
    assert listed.returncode == 0
    assert "fashion-mnist" in listed.stdout
    assert "0 of 4" in listed.stdout
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"x")
    verified = data("verify", "mnist")
    assert verified.returncode == 1
    assert f"other     {tmp_path}/mnist/t10k-labels-idx1-ubyte.gz" in verified.stdout
    assert verified.stdout.count("missing") == 3
    assert "did you mean 'mnist'" in data("verify", "mnits").stderr


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_data_get_says_what_it_wants_where_it_cannot_fetch_it(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        result = bal("data", "get", "mnist", "--from", f"http://127.0.0.1:{server.server_port}", BAL_DATA=str(tmp_path / "root"))
        server.shutdown()
    said = " ".join(result.stderr.split())
    assert result.returncode == 1
    assert "train-images-idx3-ubyte.gz of MNIST was not fetched" in said
    assert "MD5 must be f68b3c2dcbeaaa9fbdd348bbdeb94873" in said
    assert "Traceback" not in said


def test_data_get_refuses_typos_and_shows_an_example():
    assert "did you mean 'mnist'" in bal("data", "get", "mnist", "mnits").stderr
    assert "at least one data set" in bal("data", "get").stderr
    assert "Example: BAL_DATA=/data bal data get" in bal("data", "get", "--help").stdout


def test_reproduce_draws_a_figure_that_needs_no_data(tmp_path):
    result = bal("reproduce", "fig5", "--out", "r", "--results", "published", cwd=tmp_path, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "published" / "fig5.svg").read_text().startswith("<svg")
    assert "Fig. 5: trivial and hard OOD" in (tmp_path / "r" / "fig5.html").read_text()


def test_reproduce_says_what_it_lacks_and_leaves_it_blank(tmp_path):
    places = {"BAL_DATA": str(tmp_path / "none"), "BAL_WEIGHTS": str(tmp_path / "none")}
    result = bal("reproduce", "table3", "fig4", "--out", "r", cwd=tmp_path, **places)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "densenet-cifar10: not measured: there are no weights densenetbc100_cifar10.pt; set BAL_WEIGHTS" in said
    assert "fig4: not drawn: MNIST is not complete" in said
    assert "0 of 7 lines measured" in said
    lines = json.loads((tmp_path / "r" / "results" / "table3.json").read_text())["lines"]
    assert all(line["mean"] == {} and "no weights" in line["reason"] for line in lines)


def test_reproduce_refuses_what_it_does_not_know(tmp_path):
    assert bal("reproduce", "table9", cwd=tmp_path).returncode == 2
    assert "Example: BAL_DATA" in bal("reproduce", "--help").stdout
    assert bal("reproduce", "fig5", "--seeds", "0", cwd=tmp_path).returncode == 1
