"""Draws: permutations, even numbers, counters, and what happens when a domain is used up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from counterpoise.lm.mixture.draws import BLOCK, Change, Draws, even_uniforms, key_of, permuted

property_test = settings(deadline=None, derandomize=True)
NAMES = ["a", "b", "c"]


def make(weights=(0.5, 0.3, 0.2), sizes=(50, 7, 1000), seed=0, **options):
    first = Change(0, np.asarray(weights, dtype=float))
    return Draws(NAMES[: len(sizes)], np.array(sizes), seed, [first], **options)


@property_test
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_an_order_holds_every_sample_once(size, key):
    assert sorted(permuted(i, size, key) for i in range(size)) == list(range(size))


@pytest.mark.parametrize("size", [2, 3, 6, 50, 1030, 5000])
def test_orders_are_random(size):
    """Every position goes everywhere alike (chi-squared over 6,000 keys), and so do pairs."""
    tries = 6000
    orders = np.array(
        [[permuted(i, size, key_of("test", k)) for i in range(min(size, 4))] for k in range(tries)]
    )
    parts = min(size, 40)
    expected = tries * np.bincount(np.arange(size) * parts // size) / size
    for column in orders.T:
        counts = np.bincount(column * parts // size, minlength=parts)
        assert stats.chisquare(counts, expected).pvalue > 1e-4
    if size > 2:
        steps = (orders[:, 1] - orders[:, 0]) % size
        assert (steps > 0).all()
        counts = np.bincount((steps - 1) * parts // size, minlength=parts)
        expected = tries * np.bincount(np.arange(size - 1) * parts // size, minlength=parts)
        kept = expected > 0
        assert stats.chisquare(counts[kept], expected[kept] / (size - 1)).pvalue > 1e-4


def test_numbers_are_spread_evenly_and_in_random_order():
    for block in range(3):
        u = even_uniforms(key_of(5), block)
        assert ((u >= 0) & (u < 1)).all()
        assert np.array_equal(np.sort((u * BLOCK).astype(int)), np.arange(BLOCK))
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.1
    assert not np.array_equal(even_uniforms(key_of(5), 0), even_uniforms(key_of(6), 0))


def test_realised_shares_are_closer_than_chance():
    draws = make((0.61, 0.2893, 0.1007), (10**6,) * 3)
    draws.take(10 * BLOCK)
    assert np.abs(draws.cursors - draws.expected).max() <= 2 * 10  # one or two in a block
    np.testing.assert_allclose(draws.expected, 10 * BLOCK * draws.weights)


@property_test
@given(st.lists(st.integers(1, 700), min_size=1, max_size=8), st.integers(0, 1000))
def test_how_draws_are_asked_for_does_not_matter(pieces, seed):
    whole, parts = make(seed=seed), make(seed=seed)
    expected = whole.take(sum(pieces))
    got = [parts.take(n) for n in pieces]
    np.testing.assert_array_equal(np.concatenate([g.domains for g in got]), expected.domains)
    np.testing.assert_array_equal(np.concatenate([g.ordinals for g in got]), expected.ordinals)
    np.testing.assert_array_equal(parts.cursors, whole.cursors)


def test_ordinals_count_each_domain():
    domains, ordinals = make().take(5000)
    for k in range(3):
        mine = ordinals[domains == k]
        np.testing.assert_array_equal(mine, np.arange(len(mine)))


def test_epochs_have_other_orders_and_every_sample_once():
    draws = make()
    first = [draws.sample(0, i) for i in range(50)]
    second = [draws.sample(0, i) for i in range(50, 100)]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_changed_weights_hold_from_their_sample_on_and_disturb_no_other():
    plain, changed = make(sizes=(10**6,) * 3), make(sizes=(10**6,) * 3)
    changed.change(700, np.array([0.0, 0.0, 1.0]))
    changed.change(1500, np.array([1.0, 0.0, 0.0]))
    a, b = plain.take(3000), changed.take(3000)
    np.testing.assert_array_equal(a.domains[:700], b.domains[:700])
    assert (b.domains[700:1500] == 2).all()
    assert (b.domains[1500:] == 0).all()
    mine = b.ordinals[b.domains == 2]
    np.testing.assert_array_equal(mine, np.arange(len(mine)))
    assert changed.weights.tolist() == [1.0, 0.0, 0.0]


def test_a_zero_weight_is_never_drawn():
    draws = make((0.0, 1.0, 0.0), (10, 10, 10))
    assert (draws.take(5000).domains == 1).all()


def test_drop_goes_on_without_a_used_up_domain():
    draws = make((0.7, 0.2, 0.1), exhaustion="drop")
    domains, ordinals = draws.take(10_000)
    assert np.bincount(domains).tolist() == [50, 7, 1000]
    assert len(domains) == 1057
    for k, size in enumerate((50, 7, 1000)):
        np.testing.assert_array_equal(np.sort(ordinals[domains == k]), np.arange(size))
    last = max(np.flatnonzero(domains == 0)[-1], np.flatnonzero(domains == 1)[-1])
    assert (domains[last + 1 :] == 2).all()


def test_stop_ends_before_any_sample_comes_twice():
    draws = make((0.7, 0.2, 0.1), exhaustion="stop")
    domains, _ = draws.take(10_000)
    counts = np.bincount(domains, minlength=3)
    assert (counts <= [50, 7, 1000]).all()
    free = make((0.7, 0.2, 0.1)).take(len(domains) + 1).domains
    np.testing.assert_array_equal(free[:-1], domains)
    assert counts[free[-1]] == (50, 7, 1000)[free[-1]]  # the next one would have been one too many


@pytest.mark.parametrize("exhaustion", ["drop", "stop"])
def test_domains_may_run_out_together(exhaustion):
    for seed in range(60):
        draws = make((1 / 3, 1 / 3, 1 / 3), (10, 10, 80), seed, exhaustion=exhaustion)
        seen = [draws.take(32) for _ in range(5)]
        domains = np.concatenate([d.domains for d in seen])
        counts = np.bincount(domains, minlength=3)
        assert (counts <= [10, 10, 80]).all()
        if exhaustion == "drop":
            assert counts.sum() == 100
        else:
            follower = make((1 / 3, 1 / 3, 1 / 3), (10, 10, 80), seed).take(len(domains) + 1)
            np.testing.assert_array_equal(follower.domains[:-1], domains)
            assert counts[follower.domains[-1]] == (10, 10, 80)[follower.domains[-1]]


def test_token_shares_allow_for_lengths():
    mean = np.array([10.0, 40.0, 20.0])
    draws = make((0.5, 0.3, 0.2), (10**6,) * 3, per_sample=mean)
    draws.take(20 * BLOCK)
    tokens = draws.cursors * mean
    np.testing.assert_allclose(tokens / tokens.sum(), [0.5, 0.3, 0.2], atol=2e-3)
