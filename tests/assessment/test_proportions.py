"""Wilson and paired intervals: closed forms, exact coverage, weights, chunks."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, norm

from counterpoise import error_intervals
from counterpoise.assessment.proportions import (
    ErrorSums,
    PairedErrors,
    mcnemar,
    wilson_bounds,
    wrong_intervals,
)

Z = norm.isf(0.025)


@pytest.mark.parametrize(("wrong", "rows"), [(0, 5), (1, 7), (3, 10), (10, 10), (137, 400)])
def test_bounds_are_those_of_scipy(wrong, rows):
    low, high = wilson_bounds(np.array([wrong / rows]), np.array([float(rows)]), 0.025)
    exact = binomtest(wrong, rows).proportion_ci(0.95, method="wilson")
    assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_bounds_invert_the_score_test():
    """The definition itself, solved by bisection, at an effective size that is not whole."""
    share, rows = 0.23, 41.7
    low, high = wilson_bounds(np.array([share]), np.array([rows]), 0.025)

    def score(p):
        return (share - p) / np.sqrt(p * (1 - p) / rows)

    assert low[0] == pytest.approx(brentq(lambda p: score(p) - Z, 1e-9, share), rel=1e-9)
    assert high[0] == pytest.approx(brentq(lambda p: score(p) + Z, share, 1 - 1e-9), rel=1e-9)


@pytest.mark.parametrize("rows", [8, 20, 60, 300])
def test_coverage_is_near_the_level_for_every_share(rows):
    """Summed exactly over the binomial law, without drawing."""
    wrong = np.arange(rows + 1)
    low, high = wilson_bounds(wrong / rows, np.full(rows + 1, float(rows)), 0.025)
    shares = np.linspace(0.01, 0.99, 197)
    law = binom.pmf(wrong[:, None], rows, shares)
    inside = (low[:, None] <= shares) & (shares <= high[:, None])
    coverage = (law * inside).sum(axis=0)
    assert coverage.mean() > 0.945
    assert coverage.min() > 0.83, "the known dip of Wilson's interval near 0 and 1"
    half = Z * np.sqrt(wrong / rows * (1 - wrong / rows) / rows)
    wald = (law * (np.abs(wrong / rows - shares.reshape(-1, 1)) <= half).T).sum(axis=0)
    assert coverage.mean() > wald.mean()


def test_no_rows_and_no_errors():
    low, high = wilson_bounds(np.array([np.nan, 0.0, 1.0]), np.array([0.0, 4.0, 4.0]), 0.025)
    assert (low[0], high[0], low[1], high[2]) == (0.0, 1.0, 0.0, 1.0)
    assert 0.4 < high[1] < 0.6


def test_groups_and_the_worst_one():
    g = np.repeat(["a", "b"], [50, 10])
    wrong = np.r_[np.ones(5), np.zeros(45), np.ones(4), np.zeros(6)]
    found = wrong_intervals(wrong, np.array(["a", "b"]), np.repeat([0, 1], [50, 10]), None)
    np.testing.assert_allclose(found.values, [0.1, 0.4])
    np.testing.assert_allclose(found.sizes, [50, 10])
    assert found.worst.value == 0.4
    careful = wilson_bounds(found.values, found.sizes, 0.0125)[0]
    assert found.worst.low == careful.max() < found.low.max()
    same = error_intervals(wrong.astype(int), np.zeros(60, int), groups=g)
    np.testing.assert_array_equal(same.low, found.low)
    accuracy = found.complement()
    np.testing.assert_allclose(accuracy.values, [0.9, 0.6])
    np.testing.assert_allclose(accuracy.low, 1 - found.high)
    assert accuracy.worst.value == pytest.approx(0.6)
    assert accuracy.worst.low < accuracy.worst.value < accuracy.worst.high


def test_equal_weights_change_nothing_and_unequal_ones_cost_rows():
    rng = np.random.default_rng(0)
    wrong, codes = (rng.random(200) < 0.3).astype(float), np.repeat([0, 1], 100)
    plain = ErrorSums.of(wrong, codes, 2, None)
    np.testing.assert_allclose(ErrorSums.of(wrong, codes, 2, np.full(200, 7.0)).rows, plain.rows)
    w = rng.exponential(size=200)
    weighted = ErrorSums.of(wrong, codes, 2, w)
    kish = [w[codes == k].sum() ** 2 / (w[codes == k] ** 2).sum() for k in (0, 1)]
    assert (weighted.rows <= np.array(kish) + 1e-9).all()
    assert weighted.share[0] == pytest.approx(np.average(wrong[:100], weights=w[:100]))


def test_weighted_intervals_cover():
    """Errors of a stratified share, where the errors lie in the class of few rows."""
    rng = np.random.default_rng(1)
    repeats, sizes, shares = 3000, (20, 200), (0.4, 0.05)
    weights = np.repeat([0.5 / 20, 0.5 / 200], sizes)
    wrong = np.concatenate(
        [(rng.random((repeats, n)) < p) for n, p in zip(sizes, shares, strict=True)], axis=1
    ).astype(float)
    codes = np.repeat(np.arange(repeats), sum(sizes))
    sums = ErrorSums.of(wrong.ravel(), codes, repeats, np.tile(weights, repeats))
    low, high = wilson_bounds(sums.share, sums.rows, 0.025)
    mean = 0.5 * sum(shares)
    assert np.mean((low <= mean) & (mean <= high)) > 0.94


def test_sums_of_chunks_merge():
    rng = np.random.default_rng(2)
    wrong, codes, w = (rng.random(90) < 0.4) * 1.0, rng.integers(0, 3, 90), rng.random(90)
    whole = ErrorSums.of(wrong, codes, 3, w)
    parts = ErrorSums.of(wrong[:30], codes[:30], 3, w[:30]).merge(
        ErrorSums.of(wrong[30:], codes[30:], 3, w[30:])
    )
    np.testing.assert_allclose(np.array(parts), np.array(whole))
    assert whole.average == pytest.approx(np.average(wrong, weights=w))


def test_mcnemar_is_the_binomial_test():
    for gained, lost in ((0, 0), (3, 3), (9, 2), (1, 14)):
        exact = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert mcnemar(np.array([gained]), np.array([lost]))[0] == pytest.approx(exact)


def test_paired_differences_by_hand():
    before = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], dtype=float)
    after = np.array([0, 0, 1, 1, 0, 0, 0, 0, 0, 0], dtype=float)
    found = PairedErrors.of(before, after, np.array(["a"]), np.zeros(10, int), None)
    assert (found.gained[0], found.lost[0], found.change[0]) == pytest.approx((0.2, 0.1, -0.1))
    plus, minus = 2 / 12, 3 / 12
    half = Z * np.sqrt((plus + minus - (plus - minus) ** 2) / 12)
    assert found.low[0] == pytest.approx(plus - minus - half)
    assert found.high[0] == pytest.approx(plus - minus + half)
    assert found.p_value[0] == pytest.approx(binomtest(2, 3).pvalue)
    assert found.verdict(0) == "not distinguishable"
    assert "not distinguishable" in str(found)


def test_paired_differences_over_groups_hold_together():
    rng = np.random.default_rng(3)
    repeats, K, n, missed = 400, 5, 80, 0
    codes, labels = np.repeat(np.arange(K), n), np.arange(K)
    for _ in range(repeats):
        u = rng.random(K * n)
        before, after = (u < 0.15) * 1.0, ((u > 0.1) & (u < 0.3)) * 1.0  # 0.15 and 0.2
        found = PairedErrors.of(before, after, labels, codes, None)
        missed += bool(((found.low > 0.05) | (found.high < 0.05)).any())
    assert missed <= 0.07 * repeats


def test_clear_changes_are_called_so():
    before, after = np.r_[np.ones(80), np.zeros(20)], np.zeros(100)
    codes = np.zeros(100, int)
    assert PairedErrors.of(before, after, np.array([0]), codes, None).verdict(0) == "lower"
    assert PairedErrors.of(after, before, np.array([0]), codes, None).verdict(0) == "higher"
    weighted = PairedErrors.of(before, after, np.array([0]), codes, np.arange(1.0, 101.0))
    assert np.isnan(weighted.p_value[0])
    assert weighted.rows[0] < 100


def test_bad_input():
    with pytest.raises(ValueError, match="level"):
        wrong_intervals(np.ones(3), np.array([0]), np.zeros(3, int), None, level=95)
    with pytest.raises(ValueError, match="no rows"):
        wrong_intervals(np.ones(0), np.array([0]), np.zeros(0, int), None)
    with pytest.raises(ValueError, match="same type"):
        error_intervals(["a", "b"], [0, 1], groups=[0, 0])
