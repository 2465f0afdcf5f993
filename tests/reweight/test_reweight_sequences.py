"""Whatever losses come in, what a Reweighter gives out is a probability vector."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise import Reweighter, ReweightWarning
from counterpoise.reweight.rules import NAMED

NASTY = [0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e300, -1e300, 1.7e308, -1.7e308, 80.0, 1e4,
         math.nan, math.inf, -math.inf]  # fmt: skip
loss = st.one_of(st.sampled_from(NASTY), st.floats(-20, 20), st.floats())


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data())
def test_weights_are_always_a_probability_vector(data):
    K = data.draw(st.integers(1, 6))
    rule = data.draw(st.sampled_from(sorted(NAMED)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    prior = rng.dirichlet(np.full(K, data.draw(st.sampled_from([0.05, 1.0, 50.0])))) + 1e-9
    bounds = data.draw(st.booleans())
    options = {
        "step": data.draw(st.sampled_from([1e-12, 0.01, 1.0, 30.0, 1e6])),
        "nu": data.draw(st.sampled_from([0.0, 1e-9, 0.1, 1e6])),
        "extrapolation": data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 100.0])),
    }
    if rule == "adaptive":
        options = {}
    ours = Reweighter(
        list(range(K)),
        rule,
        **options,
        smoothing=data.draw(st.sampled_from([0.0, 1e-4, 0.5, 1.0])),
        prior=prior / prior.sum(),
        reference=rng.uniform(-1, 1, K) * data.draw(st.sampled_from([0.0, 1.0, 1e308])),
        clip=data.draw(st.sampled_from([None, True, False])),
        ema=data.draw(st.sampled_from([None, 0.0, 0.99])),
        floor=0.5 / K if bounds else None,
        cap=min(1.0, 1.5 / K) if bounds else None,
    )
    rounds = data.draw(st.lists(st.lists(loss, min_size=K, max_size=K), min_size=1, max_size=8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ReweightWarning)
        for losses in rounds:
            counts = rng.integers(0, 3, K) if rng.random() < 0.3 else None
            errors = np.abs(losses) if rng.random() < 0.3 else None
            if errors is not None:
                errors = np.where(np.isfinite(errors), errors, np.nan)
            weights = ours.update(losses, counts=counts, errors=errors)
            assert np.isfinite(weights).all()
            assert (weights >= 0).all()
            assert abs(weights.sum() - 1.0) <= 1e-12
            lam = ours.dual.weights
            assert (lam >= 0).all()
            assert abs(lam.sum() - 1.0) <= 1e-9
            if bounds:
                assert (weights >= 0.5 / K - 1e-12).all()
                assert (weights <= min(1.0, 1.5 / K) + 1e-12).all()
            json.dumps(ours.state_dict(), allow_nan=False)


@pytest.mark.slow
def test_weights_are_a_probability_vector_over_long_runs():
    """A thousand rounds of one sequence: rounding does not pile up."""
    for rule in sorted(NAMED):
        rng = np.random.default_rng(10)
        ours = Reweighter(range(5), rule, step=1.0 if rule == "adaptive" else 2.0)
        scale = 10.0 ** rng.uniform(-6, 6, size=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReweightWarning)
            for size in scale:
                losses = size * rng.standard_cauchy(5)
                losses[rng.random(5) < 0.05] = np.nan
                weights = ours.update(losses)
                assert abs(weights.sum() - 1.0) <= 1e-12
                assert weights.min() >= 0
        assert abs(ours.dual.weights.sum() - 1.0) <= 1e-9
