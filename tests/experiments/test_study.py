import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from bal.detectors import BAL, make_detector
from bal.discrimination import GANTraining
from bal.evaluation import evaluate
from bal.experiments import networks, study
from bal.experiments.networks import Store, Trained
from bal.experiments.study import StudyBench, StudyRun, mean_ranks, rank_correlation, run_study, worth_of_stand_ins
from toy_network import write_mnist_like

QUICK = BAL(hidden_D=(8,), hidden_G=(8,), training=GANTraining(epochs=1, batch_size=32))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(study, "HELD_OUT", 100)
    monkeypatch.setitem(networks.NETWORKS, "small", Trained("mnist", 20, width=4))
    write_mnist_like(tmp_path / "data", "mnist", rows=400)
    write_mnist_like(tmp_path / "data", "fashion-mnist", rows=100, classes=3, seed=1)
    return Store(tmp_path / "store", show_progress=False)


def test_held_out_images_are_neither_learnt_from_nor_made_into_stand_ins(store):
    bench = StudyBench.open("small", ["fashion-mnist"], store)
    assert (len(bench.fit), len(bench.held_out)) == (300, 50)
    assert set(bench.stand_ins) == {"jigsaw", "mean of two", "speckle", "blur", "inversion"}
    assert all(len(features) == 50 for features in bench.stand_ins.values())
    seen = {row.tobytes() for row in bench.fit.f.numpy()}
    assert not any(row.tobytes() in seen for row in bench.held_out.f.numpy())


def test_a_run_measures_stand_ins_and_true_sets(store):
    bench = StudyBench.open("small", ["fashion-mnist"], store)
    run = bench.run("kNN", "small", make_detector("kNN"))
    knn = make_detector("kNN").fit_features(bench.fit)
    expected = evaluate(knn.score(bench.held_out), knn.score(bench.stand_ins["blur"]))
    assert run.stand_ins["blur"] == (expected.auroc, expected.fpr95)
    assert run.oods["fashion-mnist"][0] == evaluate(knn.score(bench.test), knn.score(bench.oods["fashion-mnist"])).auroc
    assert run.promise == pytest.approx(np.prod([max(1 - auroc, 1e-4) for auroc, _ in run.stand_ins.values()]) ** (1 / 5))
    assert run.truth == pytest.approx(1 - run.oods["fashion-mnist"][0])


def test_finished_runs_are_kept_and_new_ones_added(store):
    said = []
    variants = {"kNN": make_detector("kNN"), "BAL": QUICK}
    first = run_study(variants, {"small": ["fashion-mnist"]}, store, seeds=(0,), say=said.append)
    assert [run.variant for run in first] == ["kNN", "BAL"]
    assert len(said) == 2
    again = run_study(variants, {"small": ["fashion-mnist"]}, store, seeds=(0, 1), say=said.append)
    assert [(run.variant, run.seed) for run in again] == [("kNN", 0), ("BAL", 0), ("BAL", 1)]
    assert len(said) == 3
    assert json.loads(json.dumps(again[1].oods)) == json.loads(json.dumps(first[1].oods))


@given(st.lists(st.integers(0, 5), min_size=3, max_size=20), st.randoms())
def test_rank_correlation_is_scipys(values, random):
    other = values[:]
    random.shuffle(other)
    assert mean_ranks(values).tolist() == rankdata(values).tolist()
    if len(set(values)) > 1:
        assert rank_correlation(values, other) == pytest.approx(spearmanr(values, other).statistic, abs=1e-9)


def test_the_worth_of_stand_ins_is_told_for_each_network():
    def run(network, promise, truth):
        return StudyRun("v", network, 0, {"blur": (promise, 0.5)}, {"svhn": (truth, 0.5)}, "finished", 1.0)

    runs = [run("a", 0.1, 0.5), run("a", 0.2, 0.6), run("a", 0.3, 0.9), run("b", 0.1, 0.9), run("b", 0.2, 0.1)]
    assert worth_of_stand_ins(runs) == {"a": 1.0, "b": -1.0}
