"""Scores and features on a real Ray cluster of this machine, with two workers."""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bal.backbones import load_classifier
from bal.cli.common import load_with_classifier
from bal.data import load_data
from bal.detectors import make_detector
from bal.errors import DataError, SettingsError, StorageError
from bal.features import extract
from bal.serving import Cluster, cluster, extract_on_ray, score_on_ray, score_stream
from command import bal_here

pytest.importorskip("ray", reason="the extra cluster is not installed: pip install 'bal-ood[cluster]'")

TWO = Cluster(workers=2, address="local")
MODEL = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn

class Hook(nn.Module):
    def forward(self, x):
        if Path("wait").exists() and len(x) > 2:  # a shard, not the two rows by which load knows the network; the test says go
            Path("at-work", str(os.getpid())).touch()
            while not Path("go").exists():
                time.sleep(0.01)
        if Path("poison").exists() and (x > 1e6).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return x

def build():
    torch.manual_seed(0)
    return nn.Sequential(Hook(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))

def other():
    model = build()
    if os.getpid() != int(Path("here").read_text()):
        nn.init.zeros_(model[2].weight)
    return model
"""


@pytest.fixture(scope="module")
def two():
    with cluster.connected(TWO):
        yield TWO


@pytest.fixture
def here(tmp_path, monkeypatch, rng):
    """A user's folder: a network, a detector of it, pictures of which one cannot be read, and rows of numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    Path("my_model.py").write_text(MODEL)
    Path("at-work").mkdir()
    Path("here").write_text(str(os.getpid()))
    Path("photos").mkdir()
    for i in range(7):
        Image.fromarray(rng.integers(0, 256, (5, 5), np.uint8)).save(f"photos/{i}.png")
    Path("photos/3.png").write_text("no image")
    x = rng.random((600, 1, 4, 4), np.float32)
    classifier = load_classifier("my_model:build")
    labels = classifier(torch.from_numpy(x))[1].argmax(1).numpy()
    labels[:6] = (0, 0, 1, 1, 2, 2)
    np.savez("x.npz", x=x, y=labels)
    make_detector("energy").fit(classifier, (x, labels), show_progress=False).save("d")
    return tmp_path


SETTINGS = {"suffix": ".jsonl", "rows_per_shard": 100, "show_progress": False}


def on_ray(two, *sources, out="ray", build="build", **settings):
    load = partial(load_with_classifier, Path("d"), f"my_model:{build}")
    return score_on_ray(load, sources, out, two, **{**SETTINGS, **settings})


def locally(*sources, out="local", **settings):
    return score_stream(load_with_classifier(Path("d"), "my_model:build"), sources, out, **{**SETTINGS, **settings})


def outputs(out):
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(Path(out).rglob("*.jsonl"))}


def states(out):
    found = {name: Path(out, name).stat() for name in outputs(out)}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in found.items()}


def test_the_same_files_as_the_local_engine_and_a_rerun_does_what_is_missing_alone(two, here, monkeypatch):
    """Faults 8 and 15: a picture, a shard, a whole file and rows of another shape cannot be read."""
    content = bytearray(Path("x.npz").read_bytes())
    content[600 * 64 - 100] ^= 1  # in the last rows of x
    Path("bad.npz").write_bytes(content)
    Path("cut.npz").write_bytes(content[:-9])
    np.savez("wrong.npz", x=np.zeros((5, 1, 3, 4), np.float32))
    inputs = ("photos", "bad.npz", "cut.npz", "wrong.npz", "x.npz")
    expected = locally(*inputs, rows_per_shard=300)
    outcome = on_ray(two, *inputs, rows_per_shard=300)
    assert outcome == expected
    assert (outcome.rows, outcome.errors, outcome.shards) == (907, 1, 7)
    assert list(outcome.failed) == ["bad.npz/00001", "cut.npz/00000", "wrong.npz/00000"]
    assert outputs("ray") == outputs("local")
    before = states("ray")
    first, second, *_ = before
    Path("ray", first).unlink()
    Path("ray", second).write_bytes(Path("ray", second).read_bytes()[:100])
    inputs = ("photos", "bad.npz", "x.npz")
    Path("bad.npz").write_bytes(Path("x.npz").read_bytes())  # mended, so both its shards are out of date
    assert on_ray(two, *inputs, rows_per_shard=300).found == 2
    assert locally(*inputs, rows_per_shard=300).failed == {}
    assert outputs("ray") == outputs("local")
    assert sum(state == before.get(name) for name, state in states("ray").items()) == 2
    monkeypatch.setattr(cluster, "connected", None)
    assert on_ray(two, *inputs, rows_per_shard=300).found == 5, "without Ray"


def test_a_worker_killed_in_mid_job_costs_no_row_and_doubles_none(two, here):
    """Fault 23: kill -9 of one of two workers while both are at a shard."""
    Path("wait").touch()

    def kill():
        try:
            deadline = time.monotonic() + 600
            while len(pids := list(Path("at-work").iterdir())) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            victims.append(int(pids[0].name))
            os.kill(victims[0], signal.SIGKILL)
        finally:
            Path("go").touch()

    victims = []
    killer = threading.Thread(target=kill)
    killer.start()
    outcome = on_ray(two, "x.npz")
    killer.join()
    assert (outcome.rows, outcome.shards, outcome.failed) == (600, 6, {})
    names = Counter(json.loads(line)["input"] for content in outputs("ray").values() for line in content.splitlines())
    assert names == dict.fromkeys([f"x.npz:{row}" for row in range(600)], 1)
    locally("x.npz")
    assert outputs("ray") == outputs("local")
    assert not Path("/proc", str(victims[0])).exists()


def test_a_shard_that_kills_its_workers_is_given_up_and_the_others_are_done(two, here):
    x = np.load("x.npz")["x"]
    x[150], x[450] = 1e7, 1e3  # a warning of the other shard comes from afar
    np.savez("x.npz", x=x)
    Path("poison").touch()
    with pytest.warns(UserWarning, match="inputs range from"):
        outcome = on_ray(two, "x.npz", rows_per_shard=300)
    assert (outcome.rows, list(outcome.failed)) == (300, ["x.npz/00000"])
    assert "3 workers died of it" in outcome.failed["x.npz/00000"]


def test_an_output_that_cannot_be_written_stops_the_job(two, here):
    """Fault 13."""
    Path("ray").mkdir()
    Path("ray", "x.npz").write_text("mine")
    with pytest.raises(StorageError, match="cannot write"):
        on_ray(two, "x.npz")


def test_a_worker_with_another_classifier_is_refused(two, here):
    """Fault 16."""
    with pytest.raises(StorageError, match=r"cannot load the model: d was fitted on another classifier"):
        on_ray(two, "x.npz", build="other")


@pytest.fixture
def sources(here, rng):
    """The same data in three forms: arrays, Parquet in row groups, and a nested folder of images with a stray file."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    with np.load("x.npz") as archive:
        x, y = archive["x"], archive["y"]
    Path("p").mkdir()
    for name, some in (("train-0", slice(0, 300)), ("train-1", slice(300, 600)), ("test-0", slice(0, 9))):
        cells = arrow.array(x[some, 0].tolist(), arrow.list_(arrow.list_(arrow.float32())))
        parquet.write_table(arrow.table({"image": cells, "label": y[some]}), f"p/{name}.parquet", row_group_size=70)
    for place in ("a", "a/0", "b", "c"):
        Path("classes", place).mkdir(parents=True)
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (5, 5), np.uint8)).save(f"classes/{place}/{i}.png")
    Image.fromarray(rng.integers(0, 256, (5, 5), np.uint8)).save("classes/stray.png")
    Path("classes/b/60.png").write_text("no image")
    return here


@pytest.mark.parametrize(("source", "shape"), [("p:train", ()), ("classes", (1, 4, 4))])
@pytest.mark.filterwarnings("ignore:2 of 242 files")
def test_features_for_a_fit_are_those_of_one_machine(two, sources, source, shape):
    load = partial(load_classifier, "my_model:build")
    data = load_data(source, shape or None)
    expected = extract(load(), data, show_progress=False)
    features = extract_on_ray(load, source, two, shape=shape, show_progress=False)
    assert features.labels.tolist() == expected.labels.tolist()
    assert torch.allclose(features.f, expected.f, rtol=1e-5, atol=1e-6)
    assert torch.allclose(features.logits, expected.logits, rtol=1e-5, atol=1e-6)
    assert features.spec == expected.spec
    assert all(torch.equal(a, b) for a, b in zip(features.head, expected.head, strict=True))


def test_the_commands_fit_and_score_with_the_workers(two, here, monkeypatch, capsys):
    engine = ("--engine", "ray", "--workers", "2", "--json")
    names = ("--classifier", "my_model:build")
    fit = ("fit", *names, "--train", "x.npz", "--calibrate", "x.npz", "--detector", "energy", "--out")
    code, out, complaint = bal_here(monkeypatch, capsys, *fit, "far", *engine)
    assert code == 0, complaint
    far = json.loads(out)["threshold"]
    assert json.loads(bal_here(monkeypatch, capsys, *fit, "near", "--json")[1])["threshold"] == pytest.approx(far, rel=1e-5)
    code, out, complaint = bal_here(monkeypatch, capsys, "score", "far", *names, "--data", "x.npz", "--out", "s", *engine)
    assert (code, json.loads(out)["rows"]) == (0, 600), complaint


def test_what_cannot_be_is_refused_before_ray_starts(here, monkeypatch, capsys):
    fit = ("fit", "--classifier", "my_model:build", "--train", "x.npz", "--out", "e")
    assert "add --engine ray" in bal_here(monkeypatch, capsys, *fit, "--workers", "2")[2]
    assert "learns from the inputs themselves" in bal_here(monkeypatch, capsys, *fit, "--engine", "ray", "--detector", "odin")[2]
    with pytest.raises(SettingsError, match="workers"):
        Cluster(workers=0)
    with pytest.raises(DataError, match="a name of the catalog"):
        extract_on_ray(partial(load_classifier, "my_model:build"), "cifar10:train", TWO)
    monkeypatch.setitem(sys.modules, "ray", None)
    score = ("score", "d", "--classifier", "my_model:build", "--data", "x.npz", "--out", "s", "--engine", "ray")
    code, _, complaint = bal_here(monkeypatch, capsys, *score)
    assert (code, "pip install 'bal-ood[cluster]'" in complaint) == (1, True)
