"""Folds, and the risks of candidates on held-out rows: means, and draws of other rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.assessment.held_out import DRAWS, HeldOut, folds_of, stratified_folds
from counterpoise.rows.memberships import Memberships, RowGroups


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


def test_folds_of_overlapping_groups_spread_every_pattern_and_keep_single_rows():
    rng = np.random.default_rng(0)
    matrix = (rng.random((200, 3)) < [0.5, 0.3, 0.0]).astype(float)
    matrix[7] = [1.0, 0.0, 1.0]  # the only row of the last group
    groups = RowGroups.of(Memberships(matrix), 200)
    fold = folds_of(groups, 4, np.random.default_rng(1))
    assert np.flatnonzero(fold == -1).tolist() == [7]
    for pattern in ([0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]):
        own = fold[(matrix == pattern).all(axis=1)]
        assert np.ptp(np.bincount(own, minlength=4)) <= 1
    same = folds_of(groups, 4, np.random.default_rng(1))
    np.testing.assert_array_equal(fold, same)


# -- risks -------------------------------------------------------------------------------------


def held(risks, rows=10.0, **options):
    """HeldOut from group risks of shape (F, C, K)."""
    risks = np.asarray(risks, dtype=float)
    totals = np.full((risks.shape[0], risks.shape[2]), rows)
    return HeldOut(risks * rows, totals, **options)


def test_risks_by_hand():
    found = held([[[1.0, 4.0]], [[2.0, 1.0]]])  # two folds, one candidate, two groups
    np.testing.assert_allclose(found.risks(), [[1.5, 2.5]])
    np.testing.assert_allclose(found.risks([1]), [[2.0, 1.0]])
    np.testing.assert_allclose(found.worst(), [2.5])
    np.testing.assert_allclose(found.worst([0]), [4.0])
    np.testing.assert_allclose(found.fold_worst, [[4.0], [2.0]])
    np.testing.assert_allclose(found.group_risks, found.risks())


def test_averages_count_rows_not_groups():
    """Group 0 has 30 and 10 rows in the two folds, group 1 has 10 and 50."""
    totals = np.array([[30.0, 10.0], [10.0, 50.0]])
    risks = np.array([[[1.0, 5.0], [2.0, 2.0]], [[3.0, 4.0], [2.0, 1.0]]])
    found = HeldOut(risks * totals[:, None], totals)
    np.testing.assert_allclose(found.average_of([0]), [80 / 40, 2.0])
    np.testing.assert_allclose(found.average_of([1]), [230 / 60, 70 / 60])
    np.testing.assert_allclose(found.average, [310 / 100, 150 / 100])
    np.testing.assert_allclose(found.risks(), [[60 / 40, 250 / 60], [2.0, 70 / 60]])
    np.testing.assert_allclose(found.worst(), [250 / 60, 2.0])


def test_averages_of_overlapping_groups_count_every_row_once():
    """Sums over rows, which those over groups do not give; every fold has its own."""
    totals = np.full((3, 2), 10.0)
    rows = np.array([[8.0, 4.0], [2.0, 6.0], [1.0, 1.0]])
    found = HeldOut(np.ones((3, 2, 2)), totals, rows=rows, row_totals=np.array([16.0, 4.0, 2.0]))
    np.testing.assert_allclose(found.average, [11 / 22, 11 / 22])
    np.testing.assert_allclose(found.average_of([0, 1]), [0.5, 0.5])
    np.testing.assert_allclose(found.average_of([1]), [0.5, 1.5])
    np.testing.assert_allclose(found.average_of([2, 0]), [9 / 18, 5 / 18])


def test_groups_missing_from_a_fold_do_not_count_there():
    sums, totals = np.array([[[8.0, 0.0]], [[2.0, 9.0]]]), np.array([[4.0, 0.0], [2.0, 3.0]])
    found = HeldOut(sums, totals)
    np.testing.assert_allclose(found.fold_worst, [[2.0], [3.0]])
    np.testing.assert_allclose(found.group_risks, [[10 / 6, 3.0]])
    assert np.isnan(found.risks([0])[0, 1])
    never = HeldOut(sums[:, :, :1].repeat(2, axis=2), np.array([[4.0, 0.0], [2.0, 0.0]]))
    assert np.isnan(never.group_risks[0, 1])
    np.testing.assert_allclose(never.worst(), [10 / 6])
    assert np.isfinite(never.draws()).all(), "a group without rows has no part in the worst"


def test_risks_below_the_floor_are_equal():
    found = held([[[1e-30], [1e-40]], [[1e-30], [1e-40]]], floor=1e-20)
    np.testing.assert_array_equal(found.worst(), [1e-20, 1e-20])
    np.testing.assert_array_equal(found.draws(), np.full((DRAWS, 2), 1e-20))


def test_only_bounded_losses_may_be_zero():
    """Two folds, two candidates, one group of ten rows a fold."""
    sums, totals = np.array([[[0.0], [2.0]], [[0.0], [3.0]]]), np.full((2, 1), 10.0)
    bounded, other = (HeldOut(sums, totals, bounded=flag) for flag in (True, False))
    np.testing.assert_allclose(bounded.fold_worst, [[0.0, 0.2], [0.0, 0.3]])
    np.testing.assert_allclose(bounded.worst(), [0.0, 0.25])
    assert (bounded.draws()[:, 0] == 0).all()
    assert 0 < other.worst()[0] < 1e-300


def test_what_people_are_shown():
    risks = np.array([4.0, 0.25, -1e-18])
    np.testing.assert_allclose(held(np.ones((2, 1, 1)), rooted=True).shown(risks), [2.0, 0.5, 0.0])
    np.testing.assert_array_equal(held(np.ones((2, 1, 1))).shown(risks), risks)


# -- draws -------------------------------------------------------------------------------------

MEANS = np.array([2.0, 1.8, 3.0])
# Losses that rise and fall together: differences vary far less than the losses themselves.
ROOT = np.array([[3.0, 0.0, 0.0], [2.9, 0.5, 0.0], [1.0, -1.0, 2.0]])
SPREAD = ROOT @ ROOT.T


def one_group(n=400.0, folds=4, **options):
    """One group of ``n`` rows, dealt evenly; three candidates."""
    sums = np.tile(MEANS[:, None] * n / folds, (folds, 1, 1))
    options = {"spread": SPREAD[None], **options}
    return HeldOut(sums, np.full((folds, 1), n / folds), **options)


def moments(found, folds=None):
    draws = found.draws(folds)
    assert draws.shape == (DRAWS, len(MEANS))
    return draws.mean(axis=0), np.cov(draws.T, bias=True)


def expected_covariance(n):
    """That of a mean over n rows, and one row's worth of doubt about the level of all."""
    return SPREAD / n + np.outer(MEANS, MEANS) / n**2


def assert_moments(found, n, folds=None):
    """The first two moments, within five Monte Carlo standard errors."""
    mean, covariance = moments(found, folds)
    expected = expected_covariance(n)
    deviation = np.sqrt(np.diag(expected))
    assert (np.abs(mean - MEANS) < 5 * deviation / np.sqrt(DRAWS)).all()
    product = np.outer(deviation, deviation)
    errors = np.sqrt((product**2 + expected**2) / DRAWS)
    assert (np.abs(covariance - expected) < 5 * errors).all()


def test_draws_of_one_group_have_the_mean_and_covariance_of_means_over_its_rows():
    assert_moments(one_group(400.0), 400.0)
    # The difference of two candidates on the same rows.
    draws = one_group(400.0).draws()
    gap = SPREAD[0, 0] + SPREAD[1, 1] - 2 * SPREAD[0, 1]
    assert gap < 0.03 * SPREAD[0, 0]
    assert (draws[:, 0] - draws[:, 1]).std() == pytest.approx(np.sqrt(gap / 400), rel=0.1)


def test_draws_of_some_folds_have_their_rows_only():
    assert_moments(one_group(400.0), 300.0, folds=[0, 1, 3])
    assert_moments(one_group(400.0), 100.0, folds=[2])


@pytest.mark.parametrize("repeats", [2, 5])
def test_repeats_add_no_rows(repeats):
    once = one_group(400.0, folds=4)
    again = HeldOut(
        np.tile(once.sums, (repeats, 1, 1)), np.tile(once.totals, (repeats, 1)),
        spread=once.spread, repeats=repeats,
    )  # fmt: skip
    assert again.per_partition == 4
    assert_moments(again, 400.0)
    np.testing.assert_allclose(again.draws(), once.draws(), rtol=1e-12)
    # Folds of one partition are rows of their own.
    np.testing.assert_allclose(again.draws([0, 1, 2]), once.draws([0, 1, 2]), rtol=1e-12)


def test_weights_count_by_their_effective_size():
    """Half of the rows weigh 1, half 9: as many as (sum w)^2 / sum w^2 rows of weight one."""
    w = np.repeat([1.0, 9.0], 200)
    totals, squares = np.full((4, 1), w.sum() / 4), np.full((4, 1), (w**2).sum() / 4)
    sums = MEANS[None, :, None] * totals[:, None]
    effective = w.sum() ** 2 / (w**2).sum()
    assert effective < 250
    found = HeldOut(sums, totals, squares, SPREAD[None])
    assert_moments(found, effective)
    # Units of the weights do not matter.
    scaled = HeldOut(7.0 * sums, 7.0 * totals, 49.0 * squares, SPREAD[None])
    np.testing.assert_allclose(scaled.draws(), found.draws(), rtol=1e-12)


def test_draws_are_of_the_worst_group():
    """Two groups far apart: only the worse counts. Two alike: the worst is worse than either."""
    sizes = np.array([100.0, 400.0])
    spread = np.tile(np.eye(2), (2, 1, 1))

    def worst(levels):
        sums = np.array(levels).T[None] * sizes / 2
        return HeldOut(np.tile(sums, (2, 1, 1)), np.tile(sizes / 2, (2, 1)), spread=spread).draws()

    apart = worst([[9.0, 9.0], [1.0, 1.0]])
    np.testing.assert_allclose(apart.mean(axis=0), 9.0, atol=0.03)
    np.testing.assert_allclose(apart.std(axis=0), np.sqrt(1 / 100 + 81 / 100**2), rtol=0.1)
    alike = worst([[5.0, 5.0], [5.0, 5.0]])
    variances = 1 / sizes + 25 / sizes**2
    # The mean of the larger of two independent normals with the same mean.
    expected = 5.0 + np.sqrt(variances.sum() / (2 * np.pi))
    np.testing.assert_allclose(alike.mean(axis=0), expected, atol=5 * 0.1 / np.sqrt(DRAWS))


def test_equal_losses_of_a_few_rows_are_still_a_sample():
    """Without spread, a group of n rows is uncertain by one part in n; all candidates alike."""
    found = one_group(8.0, spread=None)
    draws = found.draws()
    np.testing.assert_allclose(draws.std(axis=0), MEANS / 8, rtol=0.1)
    np.testing.assert_allclose(draws / draws[:, :1], np.tile(MEANS / MEANS[0], (DRAWS, 1)))


def test_draws_are_the_same_every_time():
    first, second = one_group().draws(), one_group().draws()
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first[:, 0])) == DRAWS


def test_rounding_in_the_covariance_gives_no_imaginary_root():
    """A rank-one covariance, whose other eigenvalues are zero up to rounding of either sign."""
    loadings = np.array([1.0, 1.0 + 1e-9, 1.0 - 1e-9])
    draws = one_group(spread=1e6 * np.outer(loadings, loadings)[None]).draws()
    assert np.isfinite(draws).all()
    centred = draws - MEANS
    seen = (draws > 0.1).all(axis=1)  # others are cut off at zero
    np.testing.assert_allclose(centred[seen, 0], centred[seen, 1], atol=0.1)
