import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import toy_network
from bal.detectors import BAL, MaxSoftmax, make_detector
from bal.discrimination import GANTraining
from bal.evaluation import evaluate
from bal.experiments import networks
from bal.experiments.cells import Bench, Cell, merged, mixed, part_of, read_outcome, run_cells, some_of, write_outcome
from bal.experiments.compare import compare
from bal.experiments.networks import Store
from toy_network import Toy

QUICK = BAL(hidden_D=(8,), hidden_G=(8,), training=GANTraining(epochs=1))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "toy", Toy())
    monkeypatch.setenv("BAL_DATA", str(tmp_path / "none"))
    return Store(tmp_path / "store", show_progress=False)


def cell(detector=None, *oods, **settings):
    return Cell("toy", detector or MaxSoftmax(), "softmax", oods or ("omniglot",), **settings)


def test_a_cell_gives_the_numbers_of_a_comparison(store):
    run_cells([cell(make_detector("kNN"))], store, say=lambda _: None)
    row = read_outcome(store, cell(make_detector("kNN"))).rows["omniglot"]
    bench = Bench.open("toy", ["omniglot"], store, {})
    expected = compare(bench.comparison, {"kNN": make_detector("kNN")}, show_progress=False)[0].row
    assert (row.fpr95, row.auroc, row.accuracy) == (expected.fpr95, expected.auroc, expected.accuracy)
    assert (row.id, row.ood) == ("MNIST", "omniglot")


def test_a_second_run_measures_nothing(store):
    said = []
    cells = cell(QUICK).seeded([0, 1])
    run_cells(cells, store, say=said.append)
    assert len(said) == 3, "the network, and two cells"
    run_cells(cells, store, say=said.append)
    assert len(said) == 3


def test_a_detector_without_a_seed_has_one_cell():
    assert len(cell().seeded(range(5))) == 1
    assert [c.seed for c in cell(QUICK).seeded(range(3))] == [0, 1, 2]


def test_cells_are_named_by_all_that_their_numbers_depend_on(store):
    names = {
        c.file_name("cpu")
        for c in (
            cell(),
            cell(QUICK),
            cell(replace(QUICK, seed=1)),
            cell(replace(QUICK, training=GANTraining(epochs=2))),
            cell(train_rows=10),
            cell(test_rows=10),
        )
    }
    assert len(names) == 6
    assert cell().file_name("cpu") != cell().file_name("paper")
    assert cell(None, "omniglot").file_name("cpu") == cell(None, "svhn").file_name("cpu")


def test_one_fit_serves_many_ood_sets(store):
    cells = merged([cell(QUICK, "omniglot"), cell(QUICK, "fashion-mnist"), cell(QUICK, "omniglot")], "cpu")
    assert [c.oods for c in cells] == [("omniglot", "fashion-mnist")]


def test_an_ood_set_can_be_added_to_a_cell(store):
    run_cells([cell()], store, say=lambda _: None)
    first = read_outcome(store, cell()).rows["omniglot"]
    run_cells([cell(None, "omniglot", "fashion-mnist")], store, say=lambda _: None)
    rows = read_outcome(store, cell()).rows
    assert list(rows) == ["omniglot", "fashion-mnist"]
    assert rows["omniglot"] == first, "what was measured is kept as it was"


def test_rows_of_other_weights_do_not_stay_in_a_cell(store):
    run_cells([cell()], store, say=lambda _: None)
    write_outcome(store, cell(), replace(read_outcome(store, cell()), fingerprint="another"))
    run_cells([cell(None, "fashion-mnist")], store, say=lambda _: None)
    assert list(read_outcome(store, cell()).rows) == ["fashion-mnist"]


def test_an_ood_set_that_is_not_there_is_told_and_the_others_are_measured(store):
    reasons = run_cells([cell(None, "svhn", "omniglot", "svhn+omniglot")], store, say=lambda _: None)
    assert reasons == {"svhn": "SVHN is not here"}
    assert list(read_outcome(store, cell()).rows) == ["omniglot"]


def test_a_network_that_is_not_there_is_told(store, monkeypatch):
    monkeypatch.delenv("BAL_WEIGHTS", raising=False)
    said = []
    reasons = run_cells([replace(cell(), network="densenet-cifar10"), cell()], store, say=said.append)
    assert "set BAL_WEIGHTS" in reasons["densenet-cifar10"]
    assert "densenet-cifar10: not measured" in said[1]
    assert read_outcome(store, cell()), "the other network is measured all the same"


def test_a_mixture_holds_equal_numbers_of_both(store):
    bench = Bench.open("toy", ["omniglot+fashion-mnist"], store, {})
    parts = compare(bench.comparison, {"softmax": MaxSoftmax()}, show_progress=False)
    assert [len(m.ood_scores) for m in parts] == [300, 200]
    both = mixed(parts, "both")
    assert len(both.ood_scores) == 400
    assert np.isin(both.ood_scores[200:], parts[1].ood_scores).all()
    assert both.row.auroc == evaluate(both.id_scores, both.ood_scores).auroc
    assert min(p.row.auroc for p in parts) - 0.05 <= both.row.auroc <= max(p.row.auroc for p in parts) + 0.05


def test_capped_rows_are_the_same_every_time(store):
    network = Toy()
    part = part_of(network, network.classifier(store), store, "mnist", "train")
    once, again = some_of(part, 30), some_of(part, 30)
    assert len(once.features) == len(once.data[0]) == len(once.data[1]) == 30
    assert (once.features.f == again.features.f).all()
    assert (once.data[0] == once.features.f).all()
    assert some_of(part, 10_000) is part


@pytest.mark.parametrize("content", ["", "{}", '{"rows": {"omniglot": {}}}'])
def test_a_cell_that_cannot_be_read_is_measured_again(store, content):
    run_cells([cell()], store, say=lambda _: None)
    path = store.folder / "cells" / cell().file_name("cpu")
    whole = json.loads(path.read_text())
    path.write_text(content)
    assert read_outcome(store, cell()) is None
    run_cells([cell()], store, say=lambda _: None)
    assert json.loads(path.read_text())["rows"]["omniglot"]["auroc"] == whole["rows"]["omniglot"]["auroc"]


def test_a_cell_keeps_versions_time_fingerprint_and_how_the_training_ended(store):
    run_cells([cell(QUICK)], store, say=lambda _: None)
    outcome = read_outcome(store, cell(QUICK))
    assert outcome.status in {"finished", "collapsed"}
    assert {"bal", "torch", "numpy", "python", "threads", "seconds"} == set(outcome.environment)
    assert outcome.fingerprint == Toy().classifier(store).fingerprint()


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import toy_network
toy_network.register()
from bal.experiments.cells import Cell, run_cells
from bal.experiments.networks import Store
from bal.detectors import BAL
from bal.discrimination import GANTraining
detector = BAL(training=GANTraining(epochs=60, batch_size=32))
cells = Cell("toy", detector, "BAL", ("omniglot",)).seeded(range(4))
run_cells(cells, Store(Path({folder!r}), show_progress=False), say=lambda _: None)
"""


def test_a_run_after_kill_9_finishes_the_remaining_cells_only(store):
    tests = str(Path(toy_network.__file__).parent)
    script = KILLED.format(tests=tests, folder=str(store.folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], env=environment)
    finished = store.folder / "cells"
    deadline = time.monotonic() + 120
    while len(list(finished.glob("*.json"))) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in finished.glob("*.json")}
    assert len(before) in {2, 3}
    again = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=environment, check=True)
    assert again.returncode == 0
    assert len(list(finished.glob("*.json"))) == 4
    assert {path: path.stat().st_mtime_ns for path in before} == before, "finished cells are not touched"
