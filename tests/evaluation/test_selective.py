import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bal.errors import DataError
from bal.evaluation.selective import best_aurc, risk_at, risk_coverage, thinned

ROWS = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=1, max_size=30)


def test_the_curve_of_four_rows_is_the_one_worked_by_hand():
    curve = risk_coverage([0.9, 0.8, 0.7, 0.6], [False, True, False, True])
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.aurc == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_rows_of_one_score_are_accepted_together():
    curve = risk_coverage([1.0, 2.0, 1.0, 2.0], [True, False, False, True])
    np.testing.assert_allclose(curve.coverage, [0.5, 1])
    np.testing.assert_allclose(curve.risk, [0.5, 0.5])
    assert curve.aurc == 0.5


@given(ROWS)
def test_every_point_is_what_counting_at_its_threshold_gives(rows):
    scores, wrong = np.array([s for s, _ in rows], float), np.array([w for _, w in rows])
    curve = risk_coverage(scores, wrong)
    thresholds = sorted(set(scores.tolist()), reverse=True)
    risks = {t: np.mean([w for s, w in rows if s >= t]) for t in thresholds}
    np.testing.assert_allclose(curve.coverage, [np.mean(scores >= t) for t in thresholds])
    np.testing.assert_allclose(curve.risk, [risks[t] for t in thresholds])
    assert curve.aurc == pytest.approx(np.mean([risks[s] for s in scores.tolist()]))
    for share in (0.01, 0.5, 1.0):
        accepted = next(t for t in thresholds if np.mean(scores >= t) >= share)
        assert risk_at(curve, share) == pytest.approx(risks[accepted])


@given(ROWS, st.randoms())
def test_the_order_of_the_rows_does_not_matter(rows, random):
    other = random.sample(rows, len(rows))
    first, second = (risk_coverage([s for s, _ in part], [w for _, w in part]) for part in (rows, other))
    assert first.aurc == pytest.approx(second.aurc)
    np.testing.assert_allclose(first.risk, second.risk)


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_no_order_beats_the_one_with_the_wrong_rows_last(wrong):
    ideal = risk_coverage(np.arange(len(wrong), 0, -1), sorted(wrong)).aurc
    assert best_aurc(len(wrong), sum(wrong)) == pytest.approx(ideal)
    assert risk_coverage(np.arange(len(wrong)), wrong).aurc >= ideal - 1e-12


def test_a_thinned_curve_keeps_its_ends(rng):
    curve = risk_coverage(rng.normal(size=5000), rng.random(5000) < 0.1)
    coverage, risk = thinned(curve, points=50)
    assert len(coverage) == 50
    assert (coverage[0], coverage[-1], risk[-1]) == (curve.coverage[0], 1.0, curve.risk[-1])


def test_one_answer_is_needed_for_each_score():
    with pytest.raises(DataError, match="2 scores came with answers of shape"):
        risk_coverage([1.0, 2.0], [True])
    with pytest.raises(DataError, match="is empty"):
        risk_coverage([], [])
