"""Held-out sums and the choice among candidates: folds, scores, the rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.assessment.held_out import HeldOut, stratified_folds


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    n_folds=st.integers(2, 7),
    seed=st.integers(0, 99),
)
def test_folds_deal_every_group_out_evenly(sizes, n_folds, seed):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    fold = stratified_folds(codes, len(sizes), n_folds, np.random.default_rng(seed))
    for k, size in enumerate(sizes):
        own = fold[codes == k]
        if size == 1:
            assert own.tolist() == [-1], "a group's only row must stay in training"
            continue
        counts = np.bincount(own, minlength=n_folds)
        assert counts.sum() == size
        assert counts.max() - counts.min() <= 1
        assert counts.max() < size, "some row is always left to train on"


def test_small_groups_do_not_all_begin_in_the_first_fold():
    codes = np.repeat(np.arange(300), 2)
    fold = stratified_folds(codes, 300, 5, np.random.default_rng(0))
    assert np.bincount(fold, minlength=5).min() > 60


def held(risks, rows=10.0, **options):
    """HeldOut from group risks of shape (F, C, K)."""
    risks = np.asarray(risks, dtype=float)
    totals = np.full((risks.shape[0], risks.shape[2]), rows)
    return HeldOut(risks * rows, totals, **options)


def test_scores_by_hand():
    found = held([[[1.0, 4.0]], [[2.0, 1.0]]])  # two folds, one candidate, two groups
    singles = 0.5 * (np.log(4.0) + np.log(2.0))
    pair = np.log(2.5)  # group means over both folds: 1.5 and 2.5
    np.testing.assert_allclose(found.scores, np.exp(0.5 * (singles + pair)))
    np.testing.assert_allclose(found.fold_worst, [[4.0], [2.0]])
    np.testing.assert_allclose(found.group_risks, [[1.5, 2.5]])
    np.testing.assert_allclose(found.average, [2.0])
    spread = np.log([4.0, 2.0]).std(ddof=1) / np.sqrt(2)
    np.testing.assert_allclose(found.errors, found.scores * spread)


def test_groups_missing_from_a_fold_do_not_count_there():
    sums, totals = np.array([[[8.0, 0.0]], [[2.0, 9.0]]]), np.array([[4.0, 0.0], [2.0, 3.0]])
    found = HeldOut(sums, totals)
    np.testing.assert_allclose(found.fold_worst, [[2.0], [3.0]])
    np.testing.assert_allclose(found.group_risks, [[10 / 6, 3.0]])
    never = HeldOut(sums[:, :, :1].repeat(2, axis=2), np.array([[4.0, 0.0], [2.0, 0.0]]))
    assert np.isnan(never.group_risks[0, 1])


def test_one_absurd_fold_does_not_decide():
    """A row a thousand times too large in one fold: by the mean the average fit would win."""
    robust = np.array([0.4, 0.4, 0.4, 0.4, 9.0])
    average = np.array([1.2, 1.2, 1.2, 1.2, 1.5])
    found = held(np.stack([average, robust], axis=1)[:, :, None])
    assert robust.mean() > average.mean()
    choice = found.choose()
    assert choice.chosen == choice.best == 1
    assert (choice.wins, choice.n_folds, choice.striking) == (4, 5, 1)


def test_the_average_is_kept_without_a_steady_gain():
    average = np.ones(5)
    unsteady = np.array([0.5, 0.5, 0.5, 1.1, 1.1])
    found = held(np.stack([average, unsteady], axis=1)[:, :, None])
    choice = found.choose()
    assert (choice.chosen, choice.best, choice.wins) == (0, 1, 3)
    small = held(np.stack([average, 0.995 * average], axis=1)[:, :, None]).choose()
    assert (small.chosen, small.best, small.wins) == (0, 1, 5)
    steady = held(np.stack([average, 0.97 * average], axis=1)[:, :, None]).choose()
    assert steady.chosen == 1


def test_a_steady_candidate_is_taken_where_the_best_is_not():
    average = np.ones(5)
    best, steady = np.array([0.6, 0.6, 0.6, 1.2, 1.2]), np.full(5, 0.9)
    choice = held(np.stack([average, best, steady], axis=1)[:, :, None]).choose()
    assert (choice.chosen, choice.best, choice.wins) == (2, 1, 5)


def test_pairs_stay_within_a_repeat():
    found = held(np.ones((6, 1, 1)), repeats=2)
    assert list(found._pairs()) == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]


def test_risks_below_the_floor_are_equal():
    found = held([[[1e-30], [1e-40]], [[1e-30], [1e-40]]], floor=1e-20)
    assert found.scores[0] == pytest.approx(1e-20)
    assert found.choose().chosen == 0


def test_bounded_losses_have_plain_means_and_may_be_zero():
    """Two folds, two candidates, one group of ten rows a fold."""
    sums = np.array([[[0.0], [2.0]], [[1.0], [3.0]]])
    heldout = HeldOut(sums, np.full((2, 1), 10.0), bounded=True)
    np.testing.assert_allclose(heldout.fold_worst, [[0.0, 0.2], [0.1, 0.3]])
    np.testing.assert_allclose(heldout.scores, [0.05, 0.25])
    np.testing.assert_allclose(heldout.errors, np.std([0.0, 0.1], ddof=1) / np.sqrt(2))
    assert heldout.choose(1).chosen == 0
    assert heldout.choose(0).chosen == 0
    assert heldout.choose(1).striking == 0


def test_other_averages_are_not_chosen():
    sums = np.repeat(np.array([[3.0, 1.0, 2.0]])[:, :, None], 5, axis=0)
    heldout = HeldOut(sums, np.full((5, 1), 10.0))
    assert heldout.choose(0).chosen == 1
    assert heldout.choose(0, [0, 1]).chosen == 2
    assert heldout.choose(0, [0, 1]).best == 2
    assert heldout.choose(0, [0, 1, 2]).chosen == 0
