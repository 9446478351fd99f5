"""Every metric against scikit-learn and against values counted by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bal.errors import DataError
from bal.evaluation import detection_metrics, fpr_at_tpr, fpr_at_tpr_ood_positive, threshold_at_tpr

tied = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=60)
extreme = st.lists(
    st.one_of(st.floats(allow_nan=False), st.sampled_from([-np.inf, np.inf, 0.0, -0.0, 5e-324])), min_size=1, max_size=60
)


def oracle(known, unknown):
    """The five metrics by scikit-learn; it refuses infinities, so it sees the ranks, which mean the same."""
    pooled = np.concatenate([known, unknown]) + 0.0
    ranks = np.unique(pooled, return_inverse=True)[1].astype(float)
    labels = np.concatenate([np.ones(len(known)), np.zeros(len(unknown))])
    fpr, tpr, _ = roc_curve(labels, ranks, drop_intermediate=False)
    at = np.flatnonzero(tpr >= 0.95)[0]
    return {
        "fpr95": fpr[at],
        "detection_error": 0.5 * (1 - tpr[at]) + 0.5 * fpr[at],
        "auroc": roc_auc_score(labels, ranks),
        "aupr_in": average_precision_score(labels, ranks),
        "aupr_out": average_precision_score(1 - labels, -ranks),
    }


@settings(max_examples=400, deadline=None)
@given(known=st.one_of(tied, extreme), unknown=st.one_of(tied, extreme))
def test_metrics_agree_with_scikit_learn_under_ties_and_infinities(known, unknown):
    ours = detection_metrics(known, unknown)
    for name, expected in oracle(known, unknown).items():
        assert getattr(ours, name) == pytest.approx(expected, abs=1e-12), name
    assert fpr_at_tpr(known, unknown) == ours.fpr95


@pytest.mark.parametrize("n", [1, 19, 20, 21, 100, 2000, 10_007])
def test_metrics_agree_with_scikit_learn_on_many_scores(rng, n):
    known, unknown = rng.normal(1, 1, n), rng.normal(0, 2, 2 * n)
    for name, expected in oracle(known, unknown).items():
        assert getattr(detection_metrics(known, unknown), name) == pytest.approx(expected, abs=1e-12), name


def test_fpr95_counts_the_ood_at_or_above_the_threshold_that_keeps_95_percent_of_id():
    known = np.arange(100.0)  # 95 of them are >= 5
    assert threshold_at_tpr(known) == 5.0
    assert fpr_at_tpr(known, [4.9, 5.0, 5.1, 200.0]) == 0.75
    assert detection_metrics(known, [4.9, 5.0, 5.1, 200.0]).detection_error == pytest.approx(0.5 * 0.05 + 0.5 * 0.75)


def test_with_ood_as_positive_the_number_is_another_one():
    """OpenOOD's convention: here every OOD score but one in twenty lies below all ID; ID's own tail does not matter."""
    known = np.arange(20.0)
    unknown = np.concatenate([np.full(19, -1.0), [100.0]])
    assert fpr_at_tpr(known, unknown) == 0.05
    assert fpr_at_tpr_ood_positive(known, unknown) == 0.0
    unknown[:2] = 7.5  # now 95 % of OOD is caught only at the threshold 7.5, which rejects 0 to 7 of ID
    assert fpr_at_tpr_ood_positive(known, unknown) == 8 / 20
    assert fpr_at_tpr(known, unknown) == 3 / 20


def test_perfect_reversed_and_constant_scores():
    perfect, reversed_ = detection_metrics([2, 3], [0, 1]), detection_metrics([0, 1], [2, 3])
    assert (perfect.auroc, perfect.fpr95, perfect.aupr_in, perfect.aupr_out) == (1, 0, 1, 1)
    assert (reversed_.auroc, reversed_.fpr95) == (0, 1)
    constant = detection_metrics(np.zeros(7), np.zeros(7))
    assert (constant.auroc, constant.fpr95, constant.aupr_in) == (0.5, 1, 0.5)


@settings(max_examples=100, deadline=None)
@given(known=tied, unknown=tied)
def test_a_rising_transformation_changes_nothing_and_swapping_the_sides_mirrors_auroc(known, unknown):
    known, unknown = np.array(known), np.array(unknown)
    assert detection_metrics(known, unknown) == detection_metrics(np.exp(known), np.exp(unknown))
    swapped = detection_metrics(-unknown, -known)
    assert swapped.auroc == detection_metrics(known, unknown).auroc
    assert swapped.aupr_in == pytest.approx(detection_metrics(known, unknown).aupr_out, abs=1e-15)


@pytest.mark.parametrize(
    ("known", "unknown", "words"),
    [
        ([], [1.0], "id_scores is empty"),
        ([1.0], [], "ood_scores is empty"),
        ([1.0, np.nan], [0.0], r"1 NaN, first at rows \[1\]"),
    ],
)
def test_empty_and_nan_scores_are_refused(known, unknown, words):
    with pytest.raises(DataError, match=words):
        detection_metrics(known, unknown)


@pytest.mark.parametrize(
    ("known", "words"),
    [(np.zeros((2, 3)), r"must be \(N,\)"), ("abc", "row of numbers"), (None, "id_scores"), (1.0, r"must be \(N,\)")],
)
def test_what_is_not_a_row_of_numbers_is_refused(known, words):
    with pytest.raises(DataError, match=words):
        detection_metrics(known, [0.0, 1.0])


def test_the_public_threshold_sorts_for_itself(rng):
    known = rng.permutation(np.arange(100.0))
    assert threshold_at_tpr(known) == 5.0


@pytest.mark.parametrize("tpr", [0.0, -1.0, 1.01])
def test_an_impossible_tpr_is_refused(tpr):
    with pytest.raises(DataError, match="true positive rate"):
        fpr_at_tpr([1.0], [0.0], tpr=tpr)
