"""The rule that measures its step and its pull."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise import Reweighter
from counterpoise.reweight.rules import Adaptive

NAMES = ["cc", "github", "wiki", "c4"]
PRIOR = np.array([0.1, 0.2, 0.3, 0.4])


def normalised(logs):
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def standardised(losses, prior):
    deviation = losses - prior @ losses
    return deviation / math.sqrt(prior @ deviation**2)


def test_the_first_update_is_the_response_and_later_ones_go_half_of_the_way():
    start = np.array([0.97, 0.01, 0.01, 0.01])
    ours = Reweighter(NAMES, "adaptive", prior=PRIOR, start=start)
    losses = np.array([[3.0, 2.0, 5.0, 1.0], [1.0, 1.5, 0.2, 2.0]])
    first = ours.update(losses[0])
    np.testing.assert_allclose(
        first, normalised(np.log(PRIOR) + 0.5 * standardised(losses[0], PRIOR)), rtol=1e-12
    )
    second = ours.update(losses[1])
    response = np.log(PRIOR) + 0.5 * standardised(losses[1], PRIOR)
    np.testing.assert_allclose(second, normalised(0.5 * np.log(first) + 0.5 * response), rtol=1e-12)


@settings(deadline=None, derandomize=True)
@given(st.data())
def test_units_and_offsets_of_the_losses_do_not_matter(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scale, offset = data.draw(st.floats(1e-3, 1e3)), data.draw(st.floats(-100, 100))
    rule = Adaptive(data.draw(st.floats(0.1, 3.0)), data.draw(st.floats(0.1, 1.0)))
    one, two = (Reweighter(NAMES, rule, prior=PRIOR) for _ in range(2))
    for losses in rng.normal(size=(4, 4)):
        errors = 0.3 * rng.random(4)
        np.testing.assert_allclose(
            one.update(losses, errors=errors),
            two.update(scale * losses + offset, errors=scale * errors),
            rtol=1e-8,
        )


def test_differences_that_noise_explains_move_nothing():
    losses, uniform = np.array([1.0, 1.1, 0.9, 1.05]), np.full(4, 0.25)
    known, noisy, unknown, none = (Reweighter(NAMES, "adaptive") for _ in range(4))
    assert known.update(losses, errors=np.zeros(4)) == pytest.approx(
        none.update(losses, errors=[math.nan] * 4)
    )
    unknown.update(losses, errors=[0.1, 0.2, 0.1, math.nan])  # counts as the largest known
    known = Reweighter(NAMES, "adaptive")
    known.update(losses, errors=[0.1, 0.2, 0.1, 0.2])
    np.testing.assert_allclose(unknown.weights, known.weights, rtol=1e-12)
    np.testing.assert_allclose(noisy.update(losses, errors=[0.2] * 4), uniform, atol=1e-6)
    z = standardised(losses, uniform)
    half = Reweighter(NAMES, "adaptive")
    error = losses.std() * math.sqrt(0.75)  # noise explains three quarters of the variance
    np.testing.assert_allclose(
        half.update(losses, errors=[error] * 4), normalised(0.5 * 0.5 * z), rtol=1e-9
    )
    equal = Reweighter(NAMES, "adaptive", start=PRIOR)
    np.testing.assert_allclose(equal.update([2.0] * 4), uniform, rtol=1e-12)


def test_rounding_is_no_difference():
    """A model that equals its reference has excess losses of one unit in the last place."""
    ours = Reweighter(NAMES, "adaptive", reference=[0.3, 0.3, 5.1, 0.3])
    weights = ours.update([0.3, 0.1 + 0.2, 5.1, 0.3])
    np.testing.assert_allclose(weights, 0.25, rtol=1e-5)


def test_domains_without_a_loss_keep_their_weight():
    ours = Reweighter(NAMES, "adaptive")
    weights = ours.update([1.0, 2.0, 3.0, 9.0], counts=[1, 1, 1, 0], absent_ok=True)
    assert weights[3] == pytest.approx(0.25)
    assert weights[0] < weights[1] < weights[2]
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0.5}, "step=0.5 has no effect on the rule 'adaptive'"),
        ({"nu": 0.1}, "nu=0.1 has no effect"),
        ({"extrapolation": 0.0}, "extrapolation=0.0 has no effect"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Reweighter(NAMES, "adaptive", **options)


@pytest.mark.parametrize("options", [{"strength": 0}, {"strength": math.inf}, {"share": 0.0},
                                     {"share": 1.5}])  # fmt: skip
def test_options_of_the_rule_are_checked(options):
    with pytest.raises(ValueError, match="must be a"):
        Adaptive(**options)
