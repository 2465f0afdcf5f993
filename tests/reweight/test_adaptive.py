"""The rule that measures its step and its pull."""

import itertools
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


def after_one(losses, **options):
    """Make a reweighter that has seen the losses once, so that nothing drifts."""
    ours = Reweighter(NAMES, "adaptive", **options)
    np.testing.assert_allclose(ours.update(losses), ours.prior, rtol=1e-12)
    return ours


def test_the_first_update_is_the_prior_and_later_ones_go_half_of_the_way():
    start = np.array([0.97, 0.01, 0.01, 0.01])
    ours = Reweighter(NAMES, "adaptive", prior=PRIOR, start=start)
    losses = np.array([[3.0, 2.0, 5.0, 1.0], [3.1, 2.5, 4.2, 1.6], [3.3, 2.5, 4.2, 1.6]])
    np.testing.assert_allclose(ours.update(losses[0]), PRIOR, rtol=1e-12)
    weights = ours.weights
    for last, now in itertools.pairwise(losses):
        variance = PRIOR @ (now - PRIOR @ now) ** 2
        settled = 1.0 - PRIOR @ (now - last) ** 2 / variance
        assert 0.5 < settled < 1.0
        response = np.log(PRIOR) + 0.5 * math.sqrt(settled) * standardised(now, PRIOR)
        expected = normalised(0.5 * np.log(weights) + 0.5 * response)
        weights = ours.update(now)
        np.testing.assert_allclose(weights, expected, rtol=1e-9)


@pytest.mark.parametrize("fall", [0.4, 0.0])
def test_nothing_moves_while_losses_change_by_more_than_they_differ(fall):
    """A model that begins to learn: all losses fall, or every evaluation has another order."""
    ours = Reweighter(NAMES, "adaptive", start=[0.7, 0.1, 0.1, 0.1])
    one, other = np.array([0.0, 0.3, 0.1, -0.2]), np.array([0.1, -0.3, 0.2, 0.1])
    for t in range(6):
        losses = 4.0 - fall * t + (one if fall or t % 2 == 0 else other)
        np.testing.assert_array_equal(ours.update(losses), 0.25)
    ours.update(losses - 0.05)
    assert np.ptp(ours.weights) > 0.1


def test_a_domain_without_a_loss_does_not_hide_the_drift():
    """The change of the mean is that over domains measured both times."""
    ours = Reweighter(NAMES, "adaptive")
    ours.update([3.0, 2.0, 1.0, 9.0])
    ours.update([3.0, 2.0, 1.0, 5.0], counts=[1, 1, 1, 0], absent_ok=True)
    assert ours.weights[0] > 0.3
    before = ours.weights
    ours.update([3.0, 2.0, 1.0, 9.0])  # since it was measured last, nothing has changed
    assert ours.weights[3] > before[3]


def test_what_was_measured_last_survives_a_resume():
    rng = np.random.default_rng(1)
    rounds = 1.0 + 0.3 * rng.normal(size=(6, 4))
    whole, half = (Reweighter(NAMES, "adaptive") for _ in range(2))
    for losses in rounds:
        whole.update(losses)
    for losses in rounds[:3]:
        half.update(losses)
    again = Reweighter(NAMES[::-1], "adaptive")
    again.load_state_dict(half.state_dict())
    for losses in rounds[3:]:
        again.update(losses[::-1])
    np.testing.assert_allclose(again.weights[::-1], whole.weights, rtol=1e-12)


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
    known, none, noisy, unknown, largest = (after_one(losses) for _ in range(5))
    known.update(losses, errors=np.zeros(4))
    none.update(losses, errors=[math.nan] * 4)
    np.testing.assert_array_equal(known.weights, none.weights)
    np.testing.assert_allclose(noisy.update(losses, errors=[0.2] * 4), uniform, rtol=1e-12)
    unknown.update(losses, errors=[0.01, 0.02, 0.01, math.nan])  # counts as the largest known
    largest.update(losses, errors=[0.01, 0.02, 0.01, 0.02])
    np.testing.assert_array_equal(unknown.weights, largest.weights)
    assert np.ptp(unknown.weights) < np.ptp(known.weights)
    z = standardised(losses, uniform)
    half = after_one(losses)
    error = losses.std() * math.sqrt(0.75)  # noise explains three quarters of the variance
    np.testing.assert_allclose(
        half.update(losses, errors=[error] * 4), normalised(0.5 * 0.5 * 0.5 * z), rtol=1e-5
    )
    equal = Reweighter(NAMES, "adaptive", start=PRIOR)
    for _ in range(2):
        np.testing.assert_allclose(equal.update([2.0] * 4), uniform, rtol=1e-12)


def test_rounding_is_no_difference():
    """A model that equals its reference has excess losses of one unit in the last place."""
    ours = Reweighter(NAMES, "adaptive", reference=[0.3, 0.3, 5.1, 0.3])
    for _ in range(3):
        weights = ours.update([0.3, 0.1 + 0.2, 5.1, 0.3])
        np.testing.assert_allclose(weights, 0.25, rtol=1e-12)


def test_domains_without_a_loss_keep_their_weight():
    ours = Reweighter(NAMES, "adaptive")
    for _ in range(2):
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
