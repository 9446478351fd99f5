import statistics

import pytest

from bal.detectors import BAL, MaxSoftmax
from bal.discrimination import GANTraining
from bal.experiments import networks
from bal.experiments.cells import Cell, read_outcome
from bal.experiments.networks import Store
from bal.experiments.reproduce import reproduce_table
from bal.experiments.tables import Line, TableSpec
from toy_network import Toy

QUICK = BAL(hidden_D=(8,), hidden_G=(8,), training=GANTraining(epochs=2, batch_size=32))


def make_table():
    lines = (
        Line("blobs", Cell("toy", MaxSoftmax(), "max-softmax", ("omniglot",)), {"auroc": 90.0}),
        Line("blobs", Cell("toy", QUICK, "BAL", ("omniglot",)), {"auroc": 97.0, "fpr95": 5.0}),
        Line("other", Cell("toy", MaxSoftmax(), "max-softmax", ("svhn",)), {"auroc": 80.0}),
        Line("other", Cell("toy", QUICK, "BAL", ("svhn",)), {}),
    )
    return TableSpec("table9", "Table 9: blobs", 1, ("auroc", "fpr95"), lines)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "toy", Toy())
    monkeypatch.setenv("BAL_DATA", str(tmp_path / "none"))
    return Store(tmp_path / "store", show_progress=False)


def test_mean_and_deviation_are_over_seeds_and_in_per_cent(store):
    findings = reproduce_table(make_table(), store, seeds=(0, 1, 2), say=lambda _: None)
    softmax, ours = findings[:2]
    assert (softmax.seeds, ours.seeds) == (1, 3)
    values = [100 * read_outcome(store, cell).rows["omniglot"].auroc for cell in make_table().lines[1].cell.seeded((0, 1, 2))]
    assert ours.mean["auroc"] == pytest.approx(statistics.mean(values))
    assert ours.std["auroc"] == pytest.approx(statistics.stdev(values))
    assert softmax.std["auroc"] == 0
    assert ours.difference("auroc") == pytest.approx(statistics.mean(values) - 97)
    assert softmax.difference("fpr95") is None


def test_what_is_not_there_has_a_reason_and_no_numbers(store):
    findings = reproduce_table(make_table(), store, seeds=(0,), say=lambda _: None)
    assert [f.measured for f in findings] == [True, True, False, False]
    assert findings[2].reason == "svhn not at hand"
    assert findings[2].difference("auroc") is None


def test_more_seeds_keep_the_first_ones(store):
    said = []
    reproduce_table(make_table(), store, seeds=(0, 1), say=said.append)
    before = len(said)
    reproduce_table(make_table(), store, seeds=(0, 1, 2), say=said.append)
    assert sum("BAL, seed" in line for line in said[before:]) == 1


def test_a_line_without_all_its_seeds_is_not_filled(store, monkeypatch):
    reproduce_table(make_table(), store, seeds=(0,), say=lambda _: None)
    monkeypatch.setattr("bal.experiments.reproduce.run_cells", lambda *_, **__: {})
    findings = reproduce_table(make_table(), store, seeds=(0, 1), say=lambda _: None)
    assert findings[0].measured
    assert not findings[1].measured
    assert findings[1].reason == "not measured yet"
