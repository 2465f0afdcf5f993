"""Shares of samples apart from weights: closed forms, scipy's minimum, and simulated draws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from counterpoise.reweight import ByVariance, ByWeights, Fixed, Sampling
from counterpoise.reweight.sampling import (
    effective_sample_size,
    get_sampling,
    least_variance_shares,
    loss_factors,
    variance_of_weighted_loss,
)

THREE = np.array([0.5, 0.3, 0.2])


def test_neyman_s_allocation():
    """Shares in proportion to weight times spread; the variance is then a square."""
    spreads = np.array([1.0, 2.0, 4.0])
    shares = least_variance_shares(THREE, spreads)
    np.testing.assert_allclose(shares, THREE * spreads / (THREE @ spreads))
    variance = variance_of_weighted_loss(THREE, shares, spreads)
    assert variance == pytest.approx((THREE @ spreads) ** 2)
    assert variance < variance_of_weighted_loss(THREE, THREE, spreads)


def test_bounded_ratios_have_a_closed_form():
    """One domain stops at each bound; the third takes what they leave."""
    spreads = np.array([0.01, 1.0, 100.0])
    shares = least_variance_shares(THREE, spreads, ratio=1.5)
    np.testing.assert_allclose(shares, [0.5 / 1.5, 1 - 0.5 / 1.5 - 0.3, 0.3], rtol=1e-12)
    np.testing.assert_array_equal(least_variance_shares(THREE, spreads, ratio=1.0), THREE)


def test_domains_without_spread_share_what_is_left_by_weight():
    shares = least_variance_shares(THREE, np.array([0.0, 0.0, 1.0]), ratio=2.0)
    np.testing.assert_allclose(shares, [0.6 * 5 / 8, 0.6 * 3 / 8, 0.4], rtol=1e-6)
    np.testing.assert_array_equal(least_variance_shares(THREE, np.zeros(3), ratio=2.0), THREE)


def test_a_weight_of_zero_is_never_drawn():
    weights = np.array([0.6, 0.4, 0.0])
    shares = least_variance_shares(weights, np.array([1.0, 3.0, 1e6]), ratio=4.0)
    np.testing.assert_allclose(shares, [1 / 3, 2 / 3, 0.0])
    assert loss_factors(weights, shares)[2] == 1.0
    assert effective_sample_size(weights, shares) == pytest.approx(1 / (1.08 + 0.24))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data())
def test_shares_meet_their_bounds_and_the_conditions_of_the_minimum(data):
    """Inside the bounds, w s / q is the same; at them, it is on the other side."""
    K = data.draw(st.integers(1, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    weights = rng.dirichlet(np.full(K, data.draw(st.sampled_from([0.3, 1.0, 30.0])))) + 1e-6
    weights /= weights.sum()
    spreads = np.exp(rng.normal(size=K) * data.draw(st.sampled_from([0.1, 1.0, 4.0])))
    ratio = data.draw(st.sampled_from([1.01, 1.5, 4.0, 100.0]))
    shares = least_variance_shares(weights, spreads, ratio)
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    factors = loss_factors(weights, shares)
    assert (factors <= ratio * (1 + 1e-9)).all()
    assert (factors >= (1 - 1e-9) / ratio).all()
    pull = weights * spreads / shares  # the square root of the derivative
    often, rare = factors < (1 + 1e-9) / ratio, factors > ratio * (1 - 1e-9)
    free = ~often & ~rare
    levels = [pull[free].min(initial=np.inf), pull[free].max(initial=0.0)]
    if free.any():
        assert levels[0] == pytest.approx(levels[1], rel=1e-9)
    highest_rare, least_often = pull[rare].max(initial=0.0), pull[often].min(initial=np.inf)
    assert highest_rare <= min(levels[0], least_often) * (1 + 1e-9)
    assert least_often >= max(levels[1], highest_rare) * (1 - 1e-9)


@pytest.mark.parametrize("ratio", [1.3, 3.0])
def test_scipy_finds_no_lower_variance(ratio):
    rng = np.random.default_rng(1)
    weights, spreads = rng.dirichlet(np.ones(5)), np.exp(rng.normal(size=5))
    found = minimize(
        lambda q: variance_of_weighted_loss(weights, q, spreads),
        weights,
        method="SLSQP",
        bounds=[(w / ratio, w * ratio) for w in weights],
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1.0},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = least_variance_shares(weights, spreads, ratio)
    np.testing.assert_allclose(ours, found.x, atol=1e-5)
    assert variance_of_weighted_loss(weights, ours, spreads) <= found.fun * (1 + 1e-9)


def test_weighted_losses_are_unbiased_and_vary_as_the_formulas_say():
    """Independent draws, and draws spread evenly over the domains; 200,000 samples."""
    rng = np.random.default_rng(2)
    means, spreads, n = np.array([1.0, 2.0, 4.0]), np.array([0.2, 1.0, 3.0]), 200_000
    shares = least_variance_shares(THREE, spreads, ratio=3.0)
    factors, truth = loss_factors(THREE, shares), THREE @ means
    drawn = rng.choice(3, size=n, p=shares)
    losses = factors[drawn] * (means[drawn] + spreads[drawn] * rng.normal(size=n))
    variance = variance_of_weighted_loss(THREE, shares, spreads, means)
    assert losses.mean() == pytest.approx(truth, abs=4 * math.sqrt(variance / n))
    assert losses.var() == pytest.approx(variance, rel=0.03)
    batch = 1000
    counts = np.round(shares * batch).astype(int)
    even = np.zeros(n // batch)
    for k in range(3):
        noise = rng.normal(size=(len(even), counts[k])).sum(axis=1)
        even += factors[k] * (counts[k] * means[k] + spreads[k] * noise) / batch
    variance = variance_of_weighted_loss(THREE, shares, spreads)
    rounded = (factors * counts / batch) @ means
    assert rounded == pytest.approx(truth, rel=2e-3)
    assert even.mean() == pytest.approx(rounded, abs=4 * math.sqrt(variance / n))
    assert batch * even.var() == pytest.approx(variance, rel=0.4)
    assert variance < variance_of_weighted_loss(THREE, THREE, spreads)


def test_the_effective_sample_size_is_kish_s():
    shares = np.array([0.2, 0.3, 0.5])
    drawn = np.repeat(loss_factors(THREE, shares), [20, 30, 50])
    kish = drawn.sum() ** 2 / (drawn**2).sum() / 100
    assert effective_sample_size(THREE, shares) == pytest.approx(kish)
    assert effective_sample_size(THREE, THREE) == pytest.approx(1.0)


def test_ways_of_sampling_by_name_and_by_object():
    ones = np.ones(3)
    names = ["a", "b", "c"]
    assert get_sampling("weights").shares(names, THREE, ones) is THREE
    assert get_sampling("fixed").shares(names, THREE, ones) is None
    given = Fixed({"c": 0.5, "a": 0.25, "b": 0.25})
    np.testing.assert_array_equal(given.shares(names, THREE, ones), [0.25, 0.25, 0.5])
    assert get_sampling(given) is given
    assert (ByWeights.apart, Fixed.apart, ByVariance.apart) == (False, True, True)
    assert repr(ByVariance(3)) == "ByVariance(ratio=3.0)"
    assert isinstance(ByVariance(), Sampling)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_sampling("neyman"), "sampling='neyman' is not known; use one of 'weights'"),
        (lambda: ByVariance(0.5), "ratio must be a finite number, between 1 and inf; got 0.5"),
        (lambda: Fixed([1, 2]).shares(["a", "b"], THREE[:2], THREE[:2]), "given must sum to 1"),
        (lambda: loss_factors(THREE, np.array([0.5, 0.5, 0.0])), "would never be seen"),
    ],
)
def test_what_cannot_be_sampled_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
