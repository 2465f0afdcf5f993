"""Difficulty bins: the posterior mean, discounts, and where bins end."""

import json

import numpy as np
import pytest

from counterpoise.lm import DifficultyBins


def test_rates_are_posterior_means_of_a_beta_prior():
    bins = DifficultyBins(2, rates=[0.25, 0.75], trust=4.0, memory=1.0)
    rng = np.random.default_rng(0)
    passes = np.zeros(2)
    for _ in range(5):
        got = rng.integers(0, 4, size=2)
        passes += got
        bins.observe([0, 1], got / 3, tries=3)
    np.testing.assert_allclose(bins.rates, (4.0 * np.array([0.25, 0.75]) + passes) / (4.0 + 15.0))


def test_old_tries_fade():
    """With memory m and one try a round, n rounds count as (1 - m^n) / (1 - m) tries."""
    bins = DifficultyBins(1, rates=0.0, trust=2.0, memory=0.5)
    for n in range(1, 8):
        bins.observe([0], [1.0])
        tries = (1 - 0.5**n) / (1 - 0.5)
        assert bins.rates[0] == pytest.approx(tries / (2.0 + tries))


def test_bins_include_their_lower_edge():
    bins = DifficultyBins(5, edges=(0.25, 0.5), rates=[0.0, 0.249, 0.25, 0.5, 1.0])
    assert bins.codes.tolist() == [0, 0, 1, 2, 2]
    assert bins.names == ["0%-25%", "25%-50%", "50%-100%"]


def test_a_prompt_that_comes_twice_is_one_with_all_completions():
    one, two = DifficultyBins(3), DifficultyBins(3)
    one.observe([2, 1, 2], [1.0, 0.5, 0.0], tries=[4, 2, 8])
    two.observe([1, 2], [0.5, 4 / 12], tries=[2, 12])
    np.testing.assert_allclose(one.rates, two.rates)


def test_states_hold_the_prompts_that_were_tried():
    bins = DifficultyBins(1000, memory=0.8)
    bins.observe([3, 999], [1.0, 0.25], tries=8)
    state = json.loads(json.dumps(bins.state_dict()))
    assert state["rows"] == [3, 999]
    again = DifficultyBins(1000, memory=0.8)
    again.observe([5], [1.0])
    again.load_state_dict(state)
    np.testing.assert_array_equal(again.rates, bins.rates)


def test_arguments_are_checked():
    for edges in ((), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0), (0.7, 0.3)):
        with pytest.raises(ValueError, match="edges must rise"):
            DifficultyBins(3, edges=edges)
    with pytest.raises(ValueError, match="memory must be"):
        DifficultyBins(3, memory=0.0)
    with pytest.raises(ValueError, match="trust must be"):
        DifficultyBins(3, trust=0.0)
    with pytest.raises(ValueError, match="rates must be"):
        DifficultyBins(3, rates=1.5)
    with pytest.raises(ValueError, match="between 0 and 1 to count"):
        DifficultyBins(3).observe([0, 1], [0.5, 2.0])
    with pytest.raises(ValueError, match="state is of 2 prompts; these are 3"):
        DifficultyBins(3).load_state_dict(DifficultyBins(2).state_dict())
    with pytest.raises(ValueError, match="version None"):
        DifficultyBins(3).load_state_dict({})
