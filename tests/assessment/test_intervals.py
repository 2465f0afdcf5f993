"""Intervals: coverage by simulation, closed forms, small groups, weights."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from counterpoise import RiskIntervals, risk_intervals
from counterpoise.assessment.intervals import Interval, _unbend, group_moments, loss_intervals

LAWS = {
    "squared normal": (lambda rng, shape: rng.normal(size=shape) ** 2, 1.0),
    "squared exponential": (lambda rng, shape: rng.exponential(size=shape) ** 2, 2.0),
    "lognormal": (lambda rng, shape: rng.lognormal(size=shape), math.exp(0.5)),
}


@pytest.mark.parametrize("n", [10, 30, 200])
@pytest.mark.parametrize("law", LAWS)
def test_coverage_of_skewed_losses(law, n):
    draw, mean = LAWS[law]
    repeats = 1500
    losses = draw(np.random.default_rng(0), (repeats, n)).ravel()
    moments = group_moments(losses, np.repeat(np.arange(repeats), n), repeats, None)
    low, high = moments.bounds(0.025)
    ours = np.mean((low <= mean) & (mean <= high))
    usual = np.mean(np.abs(moments.mean - mean) <= student.ppf(0.975, n - 1) * moments.error)
    assert ours > 0.92
    assert ours > usual - 0.01, "no better than mean +- t standard errors"
    assert np.mean(low > mean) < 0.05


@pytest.mark.slow
def test_the_worst_group_is_covered_though_it_was_looked_for():
    rng = np.random.default_rng(1)
    K, n, repeats, missed_low, missed_high = 20, 40, 400, 0, 0
    codes, labels = np.repeat(np.arange(K), n), np.arange(K)
    for _ in range(repeats):
        worst = loss_intervals(rng.normal(size=K * n) ** 2, labels, codes, None).worst
        missed_low += worst.low > 1.0
        missed_high += worst.high < 1.0
        assert worst.value > 1.0, "the largest of twenty estimates errs upwards"
    assert missed_low <= 0.05 * repeats
    assert missed_high <= 0.05 * repeats


@pytest.mark.parametrize("bend", [-0.8, -0.1, 1e-12, 0.0, 0.1, 0.5, 1.5])
def test_unbending_inverts_halls_transformation(bend):
    t = np.linspace(-4, 4, 33)
    bent = t + bend * t**2 / 3 + bend**2 * t**3 / 27 + bend / 6
    np.testing.assert_allclose(_unbend(bent, np.full(33, bend)), t, atol=1e-4)


def test_weights_count_as_repetitions_count_in_the_mean_and_their_effective_size_is_smaller():
    rng = np.random.default_rng(2)
    losses, weights = rng.exponential(size=50), rng.integers(1, 4, size=50).astype(float)
    one = np.zeros(50, dtype=int)
    weighted = group_moments(losses, one, 1, weights)
    repeated = group_moments(np.repeat(losses, weights.astype(int)), np.zeros(int(weights.sum()), int), 1, None)  # fmt: skip # noqa: E501
    assert weighted.mean == pytest.approx(repeated.mean)
    assert weighted.size[0] == pytest.approx(weights.sum() ** 2 / np.sum(weights**2))
    assert weighted.size[0] < 50
    same = group_moments(losses, one, 1, np.full(50, 3.0))
    plain = group_moments(losses, one, 1, None)
    for a, b in zip(same, plain, strict=True):
        np.testing.assert_allclose(a, b)


def test_small_groups_are_honestly_wide():
    rng = np.random.default_rng(3)
    groups = np.repeat(["many", "few", "one"], [2000, 5, 1])
    y = rng.normal(size=len(groups))
    found = risk_intervals(y, np.zeros_like(y), groups=groups)
    assert isinstance(found, RiskIntervals)
    assert isinstance(found["many"], Interval)
    width = {label: found[label].high - found[label].low for label in found}
    assert width["many"] < 0.3
    assert width["few"] > 1.0
    assert found["one"].low == 0.0
    assert math.isinf(found["one"].high)
    assert math.isinf(found.worst.high), "the group of one row may be the worst"
    assert len(found) == 3
    assert list(found) == ["few", "many", "one"]
    text = str(found)
    assert "95% interval" in text
    assert text.splitlines()[-1].startswith("worst")
    with pytest.raises(KeyError):
        found["none"]


@pytest.mark.parametrize("n", [3, 4, 5])
def test_a_handful_of_rows_is_covered_most_of_the_time(n):
    draw, mean = LAWS["squared normal"]
    losses = draw(np.random.default_rng(0), (2000, n)).ravel()
    moments = group_moments(losses, np.repeat(np.arange(2000), n), 2000, None)
    low, high = moments.bounds(0.025)
    assert np.mean((low <= mean) & (mean <= high)) > 0.9
    two = risk_intervals([1.0, 2.0], [0.0, 0.0], groups=None)[0]
    assert (two.low, two.high) == (0.0, math.inf)


@pytest.mark.parametrize("unit", [1e-120, 1e-60, 1e120])
def test_units_of_labels_and_weights_do_not_matter(unit):
    y = np.random.default_rng(5).normal(size=40)
    plain = risk_intervals(y, 0 * y, groups=None)[0]
    scaled = risk_intervals(unit * y, 0 * y, groups=None, sample_weight=np.full(40, 1e-200))[0]
    np.testing.assert_allclose(np.array(scaled) / unit**2, plain, rtol=1e-9)


def test_missing_numbers_and_rows_are_errors():
    with pytest.raises(ValueError, match="NaN and infinity"):
        risk_intervals([1.0, math.nan], [0.0, 0.0], groups=None)
    with pytest.raises(ValueError, match="no rows"):
        risk_intervals([], [], groups=[])


def test_level_widens_and_is_checked():
    y = np.random.default_rng(4).normal(size=60)
    narrow, wide = (risk_intervals(y, 0 * y, groups=None, level=level)[0] for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    assert np.isfinite(risk_intervals(y, 0 * y, groups=None, level=np.float32(0.9))[0]).all()
    assert "99.9% interval" in str(risk_intervals(y, 0 * y, groups=None, level=0.999))
    for bad in (0.0, 1.0, 95, True, "high"):
        with pytest.raises(ValueError, match="level must be a probability between 0 and 1; got"):
            risk_intervals(y, 0 * y, groups=None, level=bad)


def test_equal_losses_have_little_width_and_lower_bounds_are_never_negative():
    equal = risk_intervals(np.ones(200), np.zeros(200), groups=None)[0]
    assert equal == pytest.approx((1.0, 1.0, 1.0), abs=0.01)
    few = risk_intervals(np.ones(4), np.zeros(4), groups=None)[0]
    assert few.high > 1.5, "four equal losses prove little"
    zero = risk_intervals(np.ones(20), np.ones(20), groups=None)[0]
    assert zero == (0.0, 0.0, 0.0)
    spiky = np.zeros(30)
    spiky[0] = 10.0
    low = risk_intervals(spiky, np.zeros(30), groups=None)[0].low
    assert low >= 0.0


def test_a_group_without_weight_is_an_error():
    with pytest.raises(ValueError, match="sample_weight is zero on all rows of group 'b'"):
        risk_intervals([1.0, 2.0], [0.0, 0.0], groups=["a", "b"], sample_weight=[1.0, 0.0])
