"""Activations: hand formulas, the class check, and the compiled twin of every named one."""

import copy
import math
import pickle

import numpy as np
import pytest

from counterpoise.activations import (
    NAMED,
    Activation,
    elu,
    get_activation,
    huber_relu,
    identity,
    leaky_relu,
    relu,
    softplus,
)
from counterpoise.losses import NeuronLoss
from counterpoise.rows.compilation import evaluation_kernel
from counterpoise.rows.kernels import activate

ALL = [
    identity(),
    relu(),
    leaky_relu(),
    leaky_relu(0.2),
    leaky_relu(1.0),
    softplus(),
    elu(),
    huber_relu(),
    huber_relu(0.3),
    relu().rounded(0.5),
    leaky_relu(0.2).rounded(0.25),
]
IDS = [f"{s.name}{s.parameters}" for s in ALL]

HAND = {
    "identity": (identity(), lambda t: t, lambda t: 1.0),
    "relu": (relu(), lambda t: max(t, 0.0), lambda t: float(t >= 0)),
    "leaky_relu": (
        leaky_relu(),
        lambda t: t if t >= 0 else 0.01 * t,
        lambda t: 1.0 if t >= 0 else 0.01,
    ),
    "leaky_relu(0.2)": (
        leaky_relu(0.2),
        lambda t: t if t >= 0 else 0.2 * t,
        lambda t: 1.0 if t >= 0 else 0.2,
    ),
    "softplus": (
        softplus(),
        lambda t: math.log((1.0 + math.exp(t)) / 2.0),
        lambda t: 1.0 / (1.0 + math.exp(-t)),
    ),
    "elu": (
        elu(),
        lambda t: t if t >= 0 else math.exp(t) - 1.0,
        lambda t: 1.0 if t >= 0 else math.exp(t),
    ),
    "huber_relu(0.3)": (
        huber_relu(0.3),
        lambda t: t - 0.075 if t >= 0.3 else (t + 0.3) ** 2 / 1.2 - 0.075 if t > -0.3 else -0.075,
        lambda t: 1.0 if t >= 0.3 else (t + 0.3) / 0.6 if t > -0.3 else 0.0,
    ),
}

POINTS = np.array([-50.0, -7.5, -2.0, -0.31, -0.29, -0.1, 0.0, 0.07, 0.29, 0.31, 1.0, 4.0, 60.0])
AWAY_FROM_KINKS = np.array([-30.0, -3.0, -0.7, -0.2, -0.05, 0.04, 0.1, 0.2, 0.8, 2.5, 25.0])


@pytest.mark.parametrize("sigma", ALL, ids=IDS)
def test_named_activations_satisfy_their_own_declaration(sigma):
    if sigma.name.startswith("rounded"):
        with pytest.raises(ValueError, match=r"sigma\(0\) = 0"):
            sigma.check()  # a rounded kink lifts the value at zero; only the polish uses it
    else:
        sigma.check()


@pytest.mark.parametrize("name", HAND)
def test_values_and_slopes_against_hand_formulas(name):
    sigma, value, slope = HAND[name]
    np.testing.assert_allclose(
        sigma.value(POINTS), [value(t) for t in POINTS], rtol=1e-13, atol=1e-15
    )
    np.testing.assert_allclose(
        sigma.slope(POINTS), [slope(t) for t in POINTS], rtol=1e-13, atol=1e-15
    )


@pytest.mark.parametrize("sigma", ALL, ids=IDS)
def test_slope_agrees_with_finite_differences(sigma):
    t, h = AWAY_FROM_KINKS, 1e-6
    differences = (sigma.value(t + h) - sigma.value(t - h)) / (2 * h)
    np.testing.assert_allclose(sigma.slope(t), differences, atol=2e-8)


@pytest.mark.parametrize("sigma", ALL, ids=IDS)
def test_declared_constants_are_tight(sigma):
    slopes = sigma.slope(np.linspace(-40.0, 40.0, 8001))
    right = sigma.slope(np.linspace(0.0, 40.0, 4001))
    assert slopes.max() == pytest.approx(sigma.beta, abs=1e-12)
    if not sigma.name.startswith("rounded"):
        assert right.min() == pytest.approx(sigma.alpha, abs=1e-12)


@pytest.mark.parametrize("sigma", ALL, ids=IDS)
def test_compiled_kernel_equals_the_python_functions(sigma):
    points = np.concatenate([POINTS, AWAY_FROM_KINKS, np.linspace(-1.0, 1.0, 201)])
    value, slope = compiled(sigma, points)
    np.testing.assert_allclose(value, sigma.value(points), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(slope, sigma.slope(points), rtol=1e-14, atol=1e-15)
    assert (compiled(sigma, points, true_slope=False)[1] == 1).all()


def compiled(sigma, points, true_slope=True):
    """Values and slopes as the kernel finds them, in place of points and ones."""
    z, slope = points.copy(), np.ones_like(points)
    kernel = evaluation_kernel(NeuronLoss(sigma), surrogate=not true_slope)
    activate(kernel, z, slope, len(z))
    return z, slope


@pytest.mark.parametrize("sigma", ALL, ids=IDS)
def test_huge_arguments_stay_finite(sigma):
    t = np.array([-1e300, -1e4, 1e4, 1e300])
    value, slope = sigma.value(t), sigma.slope(t)
    assert np.isfinite(value).all()
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(compiled(sigma, t), [value, slope], rtol=1e-14)


def test_values_do_not_alias_the_argument():
    t = np.array([-1.0, 2.0])
    for sigma in ALL:
        out = sigma.value(t)
        out[:] = 99.0
        assert t.tolist() == [-1.0, 2.0], sigma.name


# -- rounding ------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [relu(), leaky_relu(), leaky_relu(0.2)], ids=lambda s: s.name)
def test_rounding_changes_nothing_outside_and_little_inside(sigma):
    t = np.linspace(-3.0, 3.0, 6001)
    exact = sigma.value(t)
    for width in (1.0, 0.1, 1e-3, 1e-9):
        rounded = sigma.rounded(width)
        outside = np.abs(t) >= width
        np.testing.assert_allclose(rounded.value(t)[outside], exact[outside], atol=1e-15)
        np.testing.assert_allclose(
            rounded.slope(t)[outside & (np.abs(t) > width)],
            sigma.slope(t)[outside & (np.abs(t) > width)],
            atol=1e-15,
        )
        lift = rounded.value(t) - exact
        assert lift.min() >= -1e-15
        # largest at zero: (1 - slope) width / 4
        assert lift.max() == pytest.approx((1.0 - sigma.parameters[0]) * width / 4, abs=1e-15)


@pytest.mark.parametrize("width", [2.0, 0.3, 1e-4])
def test_a_rounded_activation_is_convex_and_has_no_kink(width):
    rounded = leaky_relu(0.2).rounded(width)
    t = np.linspace(-2 * width, 2 * width, 4001)
    slope = rounded.slope(t)
    assert (np.diff(slope) >= -1e-15).all()
    assert np.diff(slope).max() <= 0.8 * (t[1] - t[0]) / (2 * width) + 1e-12
    assert not rounded.has_kink
    with pytest.raises(ValueError, match="has no kink to round"):
        rounded.rounded(width)


def test_which_activations_have_a_kink():
    kinked = {s.name for s in (relu(), leaky_relu()) if s.has_kink}
    assert kinked == {"relu", "leaky_relu"}
    for smooth in (identity(), softplus(), elu(), huber_relu(), leaky_relu(1.0)):
        assert not smooth.has_kink
        with pytest.raises(ValueError, match=smooth.name):
            smooth.rounded(0.1)


def test_only_the_identity_is_the_identity():
    assert {s.name for s in ALL if s.is_identity} == {"identity"}
    assert leaky_relu(1.0).is_identity


@pytest.mark.parametrize("sigma", ALL, ids=lambda s: s.name)
def test_named_activations_survive_pickling_and_copying(sigma):
    t = np.linspace(-3, 3, 61)
    for twin in (pickle.loads(pickle.dumps(sigma)), copy.deepcopy(sigma)):
        assert (twin.name, twin.alpha, twin.parameters) == (
            sigma.name,
            sigma.alpha,
            sigma.parameters,
        )
        np.testing.assert_array_equal(twin.value(t), sigma.value(t))


# -- the class check -----------------------------------------------------------------------


def ramp(t):
    return np.maximum(t, 0.5 * t)


def ramp_slope(t):
    return np.where(t >= 0, 1.0, 0.5)


VIOLATIONS = {
    "sigma(0) = 0": (lambda t: ramp(t) + 0.1, ramp_slope, 1.0, 1.0, r"near t = 0;"),
    "is non-decreasing": (
        lambda t: np.maximum(t, -0.3 * t),
        lambda t: np.where(t >= 0, 1.0, -0.3),
        1.0,
        1.0,
        r"near t = -",
    ),
    "is Lipschitz with beta = 0.9": (ramp, ramp_slope, 0.9, 0.9, r"near t = "),
    "has slope at least alpha = 0.5 for t >= 0": (
        lambda t: np.maximum(t - 1.0, 0.0),
        lambda t: np.where(t >= 1.0, 1.0, 0.0),
        0.5,
        1.0,
        r"near t = 0\.",
    ),
    "is convex": (
        lambda t: np.where(t < 0, t, 0.5 * t),
        lambda t: np.where(t < 0, 1.0, 0.5),
        0.5,
        1.0,
        r"near t = ",
    ),
    "has the slope that slope() returns": (
        ramp,
        lambda t: 0.9 * ramp_slope(t),
        1.0,
        1.0,
        r"near t = -",
    ),
    "is finite": (
        lambda t: np.where(t > 9e3, np.nan, t),
        None,
        1.0,
        1.0,
        r"near t = 9",
    ),
}


@pytest.mark.parametrize("prop", VIOLATIONS)
def test_a_violated_property_is_named_with_a_point(prop):
    value, slope, alpha, beta, where = VIOLATIONS[prop]
    sigma = Activation(value, slope, alpha, beta, name="mine")
    with pytest.raises(ValueError, match=where) as caught:
        sigma.check()
    assert prop in str(caught.value)
    assert "'mine'" in str(caught.value)
    with pytest.raises(ValueError, match="'mine'"):
        get_activation(sigma)


def test_the_point_named_is_where_the_function_fails():
    late = Activation(lambda t: t + np.maximum(t - 5.0, 0.0), None, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"Lipschitz with beta = 1, but fails near t = (4\.9|5)"):
        late.check()


def test_tanh_is_refused():
    """Bounded: its slope fades to the right, whatever alpha is declared."""
    sigma = Activation(np.tanh, lambda t: 1.0 / np.cosh(np.clip(t, -300, 300)) ** 2, 1e-3, 1.0)
    with pytest.raises(ValueError, match="slope at least alpha"):
        sigma.check()


def test_a_non_convex_function_that_keeps_its_slope_is_refused():
    """``t + tanh(t)`` is steep enough on the right and still bends down there."""
    sigma = Activation(
        lambda t: t + np.tanh(t),
        lambda t: 1.0 + 1.0 / np.cosh(np.clip(t, -300, 300)) ** 2,
        1.0,
        2.0,
    )
    with pytest.raises(ValueError, match="is convex, but fails near t = "):
        sigma.check()


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [(2.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, math.nan)],
)
def test_bad_constants_are_refused(alpha, beta):
    with pytest.raises(ValueError, match="0 < alpha <= beta") as caught:
        Activation(ramp, ramp_slope, alpha, beta).check()
    assert repr(alpha) in str(caught.value)


def test_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="same shape"):
        Activation(lambda t: ramp(t)[:-1], None, 1.0, 1.0).check()


def test_a_scalar_result_is_refused():
    with pytest.raises(ValueError, match="same shape"):
        Activation(lambda t: 0.0, None, 1.0, 1.0).check()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_members_of_the_class_pass_whatever_their_scale(scale):
    Activation(lambda t: scale * ramp(t), lambda t: scale * ramp_slope(t), scale, scale).check()
    Activation(
        lambda t: scale * (np.logaddexp(0.0, t) - math.log(2.0)), None, scale / 2, scale
    ).check()


def test_without_a_slope_central_differences_stand_in():
    sigma = Activation(lambda t: np.logaddexp(0.0, t) - math.log(2.0), None, 0.5, 1.0)
    np.testing.assert_allclose(sigma.slope(POINTS), softplus().slope(POINTS), rtol=0, atol=1e-8)


# -- names ---------------------------------------------------------------------------------


def test_names_resolve_to_fresh_equal_activations():
    for name in NAMED:
        sigma = get_activation(name)
        assert sigma.name == name
        assert get_activation(sigma) is sigma


@pytest.mark.parametrize("wrong", ["tanh", "ReLU", "", None, 3, np.tanh])
def test_unknown_names_list_the_known_ones(wrong):
    with pytest.raises(ValueError) as caught:
        get_activation(wrong)
    for name in NAMED:
        assert name in str(caught.value)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("slope", [-0.1, 1.1, math.nan])
def test_leaky_slope_must_lie_in_the_unit_interval(slope):
    with pytest.raises(ValueError, match="negative_slope"):
        leaky_relu(slope)


@pytest.mark.parametrize("delta", [0.0, -1.0, math.inf, math.nan])
def test_huber_width_must_be_positive(delta):
    with pytest.raises(ValueError, match="delta"):
        huber_relu(delta)


def test_an_activation_cannot_be_changed():
    with pytest.raises(AttributeError, match="make another to set its alpha"):
        relu().alpha = 5.0
