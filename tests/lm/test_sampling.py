"""Steering that draws samples by other shares than the weights."""

import json

import numpy as np
import pytest
import torch
from lm_adapters import LENGTH, begin, make_corpus
from lm_problems import numbered_corpus, small_llama

from counterpoise import Reweighter
from counterpoise.lm import JsonlLog, MixtureDataset, Steering, domain_losses, held_out
from counterpoise.lm.logs import flat
from counterpoise.reweight import ByVariance, Fixed
from counterpoise.reweight.sampling import least_variance_shares

SIZES = {"a": 40, "b": 11, "c": 90}
LOSSES = [1.0, 3.0, 2.0]


@pytest.fixture
def mixture(tmp_path):
    return MixtureDataset(numbered_corpus(tmp_path / "corpus", SIZES, 4), 4, batch_size=6)


def steer(mixture, sampling, names=None, **options):
    reweighter = Reweighter(names or mixture.domains)
    return Steering(reweighter, mixture, sampling=sampling, **options)


def test_fixed_shares_are_the_mixture_s_and_losses_follow_the_weights(mixture):
    shares = mixture.weights
    steering = steer(mixture, "fixed")
    np.testing.assert_allclose(steering.loss_factors, 1 / 3 / shares)
    weights = steering.observe(LOSSES, step=1)
    np.testing.assert_array_equal(mixture.weights, shares)
    np.testing.assert_array_equal(mixture.loss_weights, weights / shares)


def test_given_shares_follow_names_not_positions(mixture):
    given = Fixed({"a": 0.2, "b": 0.3, "c": 0.5})
    steering = steer(mixture, given, names=["c", "b", "a"])
    weights = dict(zip("cba", steering.observe([1.0, 2.0, 3.0], step=1), strict=True))
    np.testing.assert_allclose(mixture.weights, [0.2, 0.3, 0.5])
    expected = [weights["a"] / 0.2, weights["b"] / 0.3, weights["c"] / 0.5]
    np.testing.assert_allclose(mixture.loss_weights, expected)
    np.testing.assert_allclose(steering.loss_factors, expected[::-1])


def test_shares_follow_the_spread_that_errors_and_counts_show(mixture):
    """A standard error is the spread by the root of the count."""
    steering = steer(mixture, ByVariance(1.5))
    np.testing.assert_array_equal(steering.loss_factors, 1.0)  # nothing is known yet
    counts, spreads = np.array([100.0, 400.0, 25.0]), np.array([1.0, 2.0, 0.5])
    weights = steering.observe(LOSSES, counts, 1, errors=spreads / np.sqrt(counts))
    shares = least_variance_shares(weights, spreads, 1.5)
    np.testing.assert_allclose(mixture.weights, shares)
    np.testing.assert_allclose(mixture.loss_weights * mixture.weights, weights)
    np.testing.assert_allclose(mixture.loss_weights.max(), 1.5)
    # what is not measured again keeps its spread; what never was has the others' mean
    weights = steering.observe(LOSSES, step=2, spreads=[np.nan, 4.0, np.nan])
    shares = least_variance_shares(weights, np.array([1.0, 4.0, 0.5]), 1.5)
    np.testing.assert_allclose(mixture.weights, shares)
    other = steer(mixture, ByVariance(9.0))
    weights = other.observe(LOSSES, step=1, spreads={"a": np.nan, "b": 1.0, "c": 3.0})
    np.testing.assert_allclose(
        mixture.weights, least_variance_shares(weights, np.array([2.0, 1.0, 3.0]), 9.0)
    )


def test_evaluations_show_the_spread_of_real_losses(tmp_path):
    corpus = make_corpus(tmp_path / "corpus")
    mixture, reweighter = begin(corpus)
    steering = Steering(reweighter, mixture, sampling="variance")
    found = domain_losses(small_llama(), held_out(corpus, LENGTH))
    steering.observe(found, step=1)
    np.testing.assert_array_equal(steering.drawing.spreads, list(found.spreads.values()))
    assert (steering.drawing.spreads > 0).all()


def test_records_hold_the_effective_sample_size(mixture, tmp_path):
    steering = steer(mixture, Fixed([0.2, 0.3, 0.5]), logs=tmp_path / "run.jsonl")
    weights = steering.observe(LOSSES, step=1)
    (record,) = JsonlLog(tmp_path / "run.jsonl").read()
    shares = np.array([0.2, 0.3, 0.5])
    size, ratio = 1 / (weights**2 / shares).sum(), (weights / shares).max()
    assert record["sampling"] == pytest.approx(
        {"effective_sample_size": size, "largest_ratio": ratio}
    )
    assert [row["drawn_by"] for row in record["domains"].values()] == [0.2, 0.3, 0.5]
    shown = flat(record)
    assert shown["sampling/effective_sample_size"] == pytest.approx(size)
    assert shown["sampling/largest_ratio"] == pytest.approx(ratio)
    assert shown["b/weight"] == pytest.approx(weights[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_stream_has_the_same_samples_and_factors(tmp_path, workers):
    """The spreads are part of the state: shares of later updates rest on them."""
    corpus = numbered_corpus(tmp_path / "corpus", SIZES, 4)

    def go(steering, loader, first, last, stop=None):
        seen, state = [], None
        for step, batch in enumerate(loader, first):
            seen.append((batch["input_ids"][:, 0].tolist(), batch["loss_weight"].tolist()))
            if step % 3 == 0:  # domain b is measured only once
                spreads = [1.0 * step, 5.0 if step == 3 else np.nan, 2.0]
                steering.observe(LOSSES, step=step, spreads=spreads)
            if step == stop:
                state = json.loads(json.dumps(steering.state_dict(), allow_nan=False))
            if step == last:
                return seen, state
        raise AssertionError

    def begin_one():
        mixture = MixtureDataset(corpus, 4)
        return steer(mixture, ByVariance(3.0)), mixture.loader(6, num_workers=workers, lag=4)

    whole, state = go(*begin_one(), 1, 20, stop=7)
    steering, loader = begin_one()
    steering.load_state_dict(state)
    rest, _ = go(steering, loader, 8, 20)
    assert rest == whole[7:]
    assert len({factor for _, factors in rest for factor in factors}) > 4


def test_a_state_of_other_sampling_is_taken_over_or_refused(mixture):
    plain = steer(mixture, "weights")
    plain.observe(LOSSES, step=1)
    state, weights = plain.state_dict(), plain.weights
    assert set(state) == {"version", "reweighter", "mixture"}
    fixed = steer(mixture, "fixed")
    fixed.load_state_dict(state)  # factors start here
    np.testing.assert_array_equal(mixture.loss_weights, weights / mixture.weights)
    state = fixed.state_dict()
    plain = Steering(Reweighter(mixture.domains), sampling="weights", mixture=mixture)
    before = plain.reweighter.state_dict()
    with pytest.raises(ValueError, match="use the sampling that the state was saved with"):
        plain.load_state_dict(state)
    assert plain.reweighter.state_dict() == before


def test_what_a_way_of_sampling_lacks_is_said(mixture):
    with pytest.raises(ValueError, match="spreads have no effect on sampling='fixed'"):
        steer(mixture, "fixed").observe(LOSSES, step=1, spreads=[1, 1, 1])
    with pytest.raises(ValueError, match="give errors and counts"):
        steer(mixture, "variance").observe(LOSSES, step=1)
    with pytest.raises(ValueError, match="spreads must be standard deviations >= 0"):
        steer(mixture, "variance").observe(LOSSES, step=1, spreads=[1, -1, 1])
    with pytest.raises(ValueError, match="keeps the shares of a mixture, but there is none"):
        Steering(Reweighter(["a", "b"]), sampling="fixed")
    alone = Steering(Reweighter(["a", "b"]), sampling=Fixed([0.25, 0.75]))
    np.testing.assert_allclose(alone.loss_factors, [2.0, 2 / 3])


def test_gradients_of_weighed_losses_are_those_of_the_weighted_risk(tmp_path):
    """A whole epoch drawn by other shares: the mean of factor times loss is sum w_k L_k."""
    sizes = {"a": 64, "b": 64}
    mixture = MixtureDataset(numbered_corpus(tmp_path / "corpus", sizes, 4), 4)
    Steering(Reweighter(["a", "b"], start=[0.8, 0.2]), mixture, sampling=Fixed([0.5, 0.5]))
    slope = torch.tensor([1.0, 10.0])  # gradient of each domain's loss
    total, count = 0.0, 0
    for _, batch in zip(range(128), mixture.loader(8), strict=False):
        total += float((batch["loss_weight"] * slope[batch["domain"]]).sum())
        count += 8
    assert count == 1024  # one block of evenly spread draws
    assert total / count == pytest.approx(0.8 * 1.0 + 0.2 * 10.0, rel=1e-3)


def test_a_state_of_other_domains_changes_nothing(mixture):
    steering = Steering(Reweighter(mixture.domains), mixture, sampling="variance")
    steering.observe([1.0, 2.0, 3.0], step=1, spreads=[1.0, 2.0, 3.0])
    before = steering.state_dict()
    sampling = {"domains": ["a"], "spreads": [1.0]}
    with pytest.raises(ValueError, match="the state's sampling is of the domains"):
        steering.load_state_dict({**before, "sampling": sampling})
    assert steering.state_dict() == before


def test_a_domain_that_is_switched_off_is_not_steered_unasked(tmp_path):
    corpus = numbered_corpus(tmp_path / "corpus", {"a": 20, "b": 20}, 4)
    with pytest.raises(ValueError, match="that of 'b' is zero, and steering would draw it"):
        Steering(mixture=MixtureDataset(corpus, 4, weights=[1.0, 0.0]))
