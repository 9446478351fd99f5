"""Comparisons: one pass of features for all, the same rows for everyone, ranks and advice that follow from the rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bal.backbones import Classifier
from bal.detectors import BAL, KNN, ODIN, Energy, MaxSoftmax, VirtualOutliers
from bal.discrimination import GANTraining
from bal.errors import BalError, BalWarning, DataError
from bal.evaluation import evaluate
from bal.experiments import Row, advice, compare, extract_once, ranking
from bal.features import Features


class Counting(Classifier):
    rows = 0

    def forward(self, x):
        self.rows += len(x)
        return super().forward(x)


@pytest.fixture
def comparison(tiny_model, tiny_images, generator):
    x, c = tiny_images
    oods = {"noise": torch.rand(40, 1, 4, 4, generator=generator), "dark": torch.zeros(30, 1, 4, 4)}
    with torch.no_grad():  # a head that knows the classes, so that labels are not below chance
        features = tiny_model.eval()[:-1](x)
        means = torch.stack([features[c == k].mean(0) for k in range(3)])
        tiny_model[-1].weight.copy_(means)
        tiny_model[-1].bias.copy_(-0.5 * means.square().sum(1))
    return extract_once(
        Counting(tiny_model), train=(x[:45], c[:45]), test=(x[45:], c[45:]), oods=oods, id_name="quarters", show_progress=False
    )


def small_bal():
    return BAL(hidden_D=(8,), hidden_G=(8,), training=GANTraining(epochs=2, batch_size=20))


def test_all_feature_detectors_share_one_pass(comparison):
    assert comparison.classifier.rows == 45 + 15 + 40 + 30 + 2 * 15, "each set once, and the test set twice for the clock"
    compare(comparison, {"energy": Energy(), "kNN": KNN(k=3), "max-softmax": MaxSoftmax()})
    assert comparison.classifier.rows == 160, "not one row more for three detectors"
    compare(comparison, {"ODIN": ODIN()})
    assert comparison.classifier.rows > 160, "ODIN needs the inputs themselves"


def test_rows_are_the_metrics_of_the_detectors_own_scores(comparison):
    measured = compare(comparison, {"energy": Energy()})
    assert [(m.row.detector, m.row.ood, m.row.seed) for m in measured] == [("energy", "noise", 0), ("energy", "dark", 0)]
    alone = Energy().fit_features(comparison.train.features)
    for m in measured:
        expected = evaluate(alone.score(comparison.test.features), alone.score(comparison.oods[m.row.ood].features), seed=0)
        assert (m.row.fpr95, m.row.auroc, m.row.aupr_out) == (expected.fpr95, expected.auroc, expected.aupr_out)
        assert m.row.accuracy == comparison.test.features.accuracy()
        assert m.row.megabytes > 0
        assert m.row.score_seconds > 0


def test_only_detectors_that_draw_random_numbers_run_once_for_each_seed(comparison):
    measured = compare(comparison, {"energy": Energy(), "BAL": small_bal(), "VOS": VirtualOutliers(epochs=1)}, seeds=(3, 4, 5))
    seeds = {name: sorted({m.row.seed for m in measured if m.row.detector == name}) for name in ("energy", "BAL", "VOS")}
    assert seeds == {"energy": [3], "BAL": [3, 4, 5], "VOS": [3, 4, 5]}
    assert {m.detector.seed for m in measured if isinstance(m.detector, BAL)} == {3, 4, 5}


def test_a_detector_that_changes_the_classifier_is_caught(comparison):
    class Vandal(Energy):
        def _score(self, f, logits):
            with torch.no_grad():
                comparison.classifier.head.bias += 1
            return super()._score(f, logits)

    with pytest.raises(BalError, match="changed the classifier"):
        compare(comparison, {"vandal": Vandal()})


def test_a_detector_that_cannot_be_fitted_does_not_stop_the_others(comparison):
    class Picky(Energy):
        def _fit(self, *_):
            raise DataError("not this data")

    failures, told = {}, []
    chosen = {"picky": Picky(), "energy": Energy()}
    measured = compare(comparison, chosen, failures=failures, say=told.append)
    assert {m.row.detector for m in measured} == {"energy"}
    assert failures == {"picky": "not this data"}
    assert told[0] == "  picky: not measured: not this data"
    with pytest.raises(DataError, match="not this data"):
        compare(comparison, chosen)


def test_a_comparison_needs_ood_data(tiny_classifier, tiny_images):
    with pytest.raises(DataError, match="at least one OOD"):
        extract_once(tiny_classifier, train=tiny_images, test=tiny_images, oods={}, id_name="x")


def make_row(detector, seed, ood, auroc, fpr95, score_seconds):
    return Row(detector, "a", ood, seed, fpr95, 0, auroc, 0, 0, 0.9, 1, 1, score_seconds, 1)


ROWS = [
    make_row("slow", 0, "x", 0.95, 0.10, 2.0),
    make_row("slow", 0, "y", 0.97, 0.20, 2.0),
    make_row("slow", 1, "x", 0.97, 0.10, 2.0),
    make_row("slow", 1, "y", 0.99, 0.20, 2.0),
    make_row("quick", 0, "x", 0.96, 0.08, 0.1),
    make_row("quick", 0, "y", 0.97, 0.20, 0.1),
    make_row("poor", 0, "x", 0.60, 0.90, 0.01),
    make_row("poor", 0, "y", 0.60, 0.90, 0.01),
]


def test_the_ranking_is_by_mean_auroc_with_the_deviation_over_seeds_alone():
    standings = ranking(ROWS)
    assert [s.detector for s in standings] == ["slow", "quick", "poor"]
    assert standings[0].mean["auroc"] == pytest.approx(0.97)
    assert standings[0].std["auroc"] == pytest.approx(np.std([0.96, 0.98], ddof=1))  # means over OOD sets of the two seeds
    assert standings[1].std["auroc"] == 0.0


def test_advice_names_the_best_and_the_quickest_that_is_nearly_as_good():
    best, lowest, quickest, caution = advice(ranking(ROWS))
    assert "slow, AUROC 97.00%" in best
    assert "quick, FPR95 14.00%" in lowest
    assert "quick, 0.100 s" in quickest
    assert "may differ" in caution


def test_ties_are_named_together():
    rows = [make_row(name, 0, "x", 1.0, 0.0, 0.1) for name in ("a", "b")]
    assert advice(ranking(rows))[0] == "Best ranking of ID above OOD: a, b, AUROC 100.00%."


def test_invalid_rows_are_warned_of(comparison):
    bad = replace(comparison.oods["dark"], features=Features(torch.full((30, 6), torch.nan), torch.zeros(30, 3)))
    with pytest.warns(BalWarning, match="30 of 30 rows of dark are invalid for energy"):
        compare(replace(comparison, oods={"dark": bad}), {"energy": Energy()})
