"""Step sizes: independent transcriptions, the conditions they must satisfy, homogeneity."""

import dataclasses
import math
from itertools import pairwise
from math import log, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise import AdaptiveSteps, PaperSteps
from counterpoise.solver.schedules import Measurement, ProblemScale, get_schedule

property_test = settings(deadline=None, derandomize=True, max_examples=100)

SCALE = ProblemScale(
    beta=1.0, n_groups=5, radius=2.0, nu=0.1, moment=3.0, mean_moment=1.5, label_scale=4.0,
    modulus=2.0,
)  # fmt: skip


def at(iteration=1, total=0.0, previous=0.0, spread=0.0, unit=1.0):
    return Measurement(iteration, total, previous, spread, unit)


# -- the printed schedule ------------------------------------------------------------------


def constants(beta, B, W, eps, c1, C_M):
    C4 = 27 * c1 + 2163 * beta**4 * B**2 / c1
    CW = 2 * sqrt(3) * sqrt(6 * beta**2 + C_M**2 * B * log(beta * B * W / eps) ** 2) * beta * W * B
    return C4, CW


def printed_step(t, *, beta, B, W, eps, c1, C_M, nu, nu0):
    C4, CW = constants(beta, B, W, eps, c1, C_M)
    first = (1 + c1 / (8 * C4)) ** (t - 1) / (4 * C4)
    second = (1 + sqrt(c1 * nu) / (4 * sqrt(2) * CW)) ** (t - 1) * sqrt(nu0) / (4 * CW)
    third = c1 * nu0 / (4 * sqrt(2) * CW) ** 2 * t
    return min(first, max(second, third))


PAPER_CASES = {
    "defaults": {"beta": 1.0, "B": 1.0, "W": 1.0, "eps": 0.01, "c1": 0.1, "C_M": 1.0, "nu": 0.1},
    "no nu": {"beta": 1.0, "B": 1.0, "W": 1.0, "eps": 0.01, "c1": 0.1, "C_M": 1.0, "nu": 0.0},
    "wide ball": {"beta": 1.0, "B": 1.0, "W": 1e3, "eps": 0.01, "c1": 0.1, "C_M": 1.0, "nu": 0.1},
    "sharp": {"beta": 1.0, "B": 1.0, "W": 10.0, "eps": 0.01, "c1": 1.0, "C_M": 1.0, "nu": 10.0},
    "steep": {"beta": 2.0, "B": 0.5, "W": 3.0, "eps": 0.1, "c1": 0.3, "C_M": 2.0, "nu": 0.5},
    "linear": {"beta": 1.0, "B": 1.0, "W": 1.2, "eps": 0.01, "c1": 5.0, "C_M": 1.0, "nu": 0.0},
}


# The printed choice keeps the claim's conditions where one of its bounds binds throughout;
# "sharp" and "linear" pass from one to the other on the way, and only the formula is tested.


def paper(case):
    c = PAPER_CASES[case]
    steps = PaperSteps(epsilon=c["eps"], B=c["B"], c1=c["c1"], C_M=c["C_M"])
    scale = SCALE._replace(beta=c["beta"], radius=c["W"], nu=c["nu"], n_groups=7)
    return steps, scale, c


@pytest.mark.parametrize("case", PAPER_CASES)
@pytest.mark.parametrize("t", [1, 2, 3, 17, 500, 5000])
def test_paper_steps_are_the_printed_formula(case, t):
    steps, scale, c = paper(case)
    nu0 = c["eps"] / (4 * 7)
    assert steps.starting_weight(scale) == pytest.approx(nu0, rel=1e-15)
    assert steps.sharpness(scale) == c["c1"]
    got = steps.step(scale, steps.sharpness(scale), nu0, at(t, 123.0, 456.0, 789.0))
    assert got == pytest.approx(printed_step(t, nu0=nu0, **c), rel=1e-11)


def test_the_cases_reach_every_branch_of_the_formula():
    seen = set()
    for case in PAPER_CASES:
        _, _, c = paper(case)
        nu0 = c["eps"] / 28
        C4, CW = constants(c["beta"], c["B"], c["W"], c["eps"], c["c1"], c["C_M"])
        for t in (1, 500, 5000):
            first = (1 + c["c1"] / (8 * C4)) ** (t - 1) / (4 * C4)
            growth = 1 + sqrt(c["c1"] * c["nu"]) / (4 * sqrt(2) * CW)
            second = growth ** (t - 1) * sqrt(nu0) / (4 * CW)
            third = c["c1"] * nu0 / (4 * sqrt(2) * CW) ** 2 * t
            value = min(first, max(second, third))
            seen.add(("primal", "dual", "linear")[[first, second, third].index(value)])
    assert seen == {"primal", "dual", "linear"}


def test_growth_with_unit_constants_is_as_slow_as_documented():
    steps = PaperSteps()
    scale = SCALE._replace(radius=1.0)
    a1, a2 = (steps.step(scale, 0.1, steps.starting_weight(scale), at(t)) for t in (1, 2))
    assert a2 / a1 - 1 == pytest.approx(0.1 / (8 * 21632.7), rel=1e-6)


@pytest.mark.parametrize("case", ["defaults", "no nu", "wide ball", "steep"])
def test_paper_steps_satisfy_the_primal_condition_of_the_claim(case):
    """``(27 c1 + 2163 beta^4 B^2 / c1) a_t <= (1 + c1 A_t / 2) / 4`` as A accumulates."""
    steps, scale, c = paper(case)
    C4, _ = constants(c["beta"], c["B"], c["W"], c["eps"], c["c1"], c["C_M"])
    nu0, total = steps.starting_weight(scale), 0.0
    for t in range(1, 6001):
        a = steps.step(scale, c["c1"], nu0, at(t, total))
        total += a
        assert C4 * a <= (1 + 0.5 * c["c1"] * total) / 4 * (1 + 1e-12), t


@pytest.mark.parametrize("case", ["defaults", "no nu", "wide ball", "steep"])
def test_paper_steps_satisfy_the_dual_condition_of_the_claim(case):
    """``4 sqrt(2) C'_W a_t <= sqrt((nu0 + nu A_{t-1})(2 + c1 A_t))`` as A accumulates."""
    steps, scale, c = paper(case)
    _, CW = constants(c["beta"], c["B"], c["W"], c["eps"], c["c1"], c["C_M"])
    nu0, total = steps.starting_weight(scale), 0.0
    for t in range(1, 6001):
        a = steps.step(scale, c["c1"], nu0, at(t, total))
        room = sqrt((nu0 + c["nu"] * total) * (2 + c["c1"] * (total + a)))
        total += a
        assert 4 * sqrt(2) * CW * a <= room * (1 + 1e-12), t


def test_paper_steps_never_shrink():
    for case in PAPER_CASES:
        steps, scale, c = paper(case)
        nu0 = steps.starting_weight(scale)
        sizes = [steps.step(scale, c["c1"], nu0, at(t)) for t in range(1, 2000, 7)]
        assert all(b >= a for a, b in pairwise(sizes)), case


def test_a_strong_nu_leaves_the_primal_bound_and_does_not_overflow():
    """The dual factor passes 1e308 long before the primal one moves."""
    steps, scale = PaperSteps(), SCALE._replace(radius=1.0, nu=1e3)
    C4, _ = constants(1.0, 1.0, 1.0, 0.01, 0.1, 1.0)
    for t in (100, 10_000, 1_000_000):
        got = steps.step(scale, 0.1, steps.starting_weight(scale), at(t))
        assert got == pytest.approx((1 + 0.1 / (8 * C4)) ** (t - 1) / (4 * C4), rel=1e-9)


def test_truncation_level():
    steps = PaperSteps(epsilon=0.05, B=1.5, C_M=3.0)
    expected = 3.0 * 2.0 * 1.5 * 1.2 * log(1.2 * 1.5 * 2.0 / 0.05)
    assert steps.truncation(1.2, 2.0) == pytest.approx(expected, rel=1e-14)


def test_an_epsilon_that_is_not_small_is_refused_by_name():
    steps = PaperSteps(epsilon=2.0)
    for ask in (
        lambda: steps.truncation(1.0, 2.0),
        lambda: steps.step(SCALE, 0.1, 0.1, at()),
    ):
        with pytest.raises(ValueError, match=r"epsilon=2\.0 is not below"):
            ask()


def test_paper_steps_scale_with_the_unit():
    steps = PaperSteps()
    nu0 = steps.starting_weight(SCALE)
    one = steps.step(SCALE, 0.1, nu0, at(40))
    assert steps.step(SCALE, 0.1, nu0, at(40, unit=2.0**-40)) == one * 2.0**-40


# -- the adaptive schedule -----------------------------------------------------------------


@pytest.mark.parametrize("spread", [1e-3, 0.5, 20.0])
@pytest.mark.parametrize("total", [0.0, 0.7, 1e6])
def test_adaptive_step_is_its_formula(total, spread):
    steps, c1, nu0 = AdaptiveSteps(), 0.3, 0.8
    L = 2 * 1.0**2 * 3.0
    by_curvature = (1 + c1 * total / 2) / (L - c1 / 2)
    by_spread = sqrt((nu0 + 0.1 * total) * (2 + c1 * total)) / spread
    got = steps.step(SCALE, c1, nu0, at(5, total, 0.0, spread))
    assert got == pytest.approx(min(by_curvature, by_spread), rel=1e-14)
    assert steps.step(SCALE, c1, nu0, at(5, total, 1e9, spread)) == 1e9


def test_adaptive_step_depends_on_beta_squared():
    scale = SCALE._replace(beta=3.0)
    got = AdaptiveSteps().step(scale, 0.3, 1.0, at())
    assert got == pytest.approx(1.0 / (2 * 9.0 * 3.0 - 0.15), rel=1e-14)


def test_adaptive_step_without_spread_is_the_curvature_bound():
    got = AdaptiveSteps().step(SCALE, 0.3, 0.8, at(2, 10.0, 0.0, 0.0))
    assert got == pytest.approx((1 + 1.5) / (6 - 0.15), rel=1e-14)
    assert math.isfinite(got)


positive = st.floats(1e-6, 1e6)


@property_test
@given(positive, positive, positive, st.floats(0.0, 1e6), st.floats(0.0, 1e3))
def test_adaptive_steps_never_shrink_and_stay_finite(c1, nu0, previous, total, spread):
    scale = SCALE._replace(moment=max(3.0, c1))
    got = AdaptiveSteps().step(scale, c1, nu0, at(3, total, previous, spread))
    assert got >= previous
    assert math.isfinite(got)


@property_test
@given(st.integers(-300, 300), positive, st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_rescaling_unit_total_and_last_step_rescales_the_step(power, nu0, total, spread):
    f = 2.0**power
    steps, previous = AdaptiveSteps(), 1e-3
    one = steps.step(SCALE, 0.3, nu0, at(9, total, previous, spread))
    scaled = steps.step(SCALE, 0.3, nu0, at(9, f * total, f * previous, spread, f))
    assert scaled == pytest.approx(f * one, rel=1e-13)


def test_adaptive_defaults_follow_the_scale_of_the_problem():
    steps = AdaptiveSteps()
    assert steps.sharpness(SCALE) == pytest.approx(0.2 * 1.5)
    assert steps.starting_weight(SCALE) == pytest.approx(0.2 * 4.0 / 1.5)
    shallow = SCALE._replace(beta=0.1, moment=1.5)
    assert steps.sharpness(shallow) == pytest.approx(2 * 0.01 * 1.5)
    assert steps.step(shallow, steps.sharpness(shallow), 1.0, at()) > 0


def test_adaptive_constants_given_are_kept():
    steps = AdaptiveSteps(c1=0.07, nu0=2.5)
    assert steps.sharpness(SCALE) == 0.07
    assert steps.starting_weight(SCALE) == 2.5


def test_a_sharpness_beyond_the_curvature_is_refused():
    with pytest.raises(ValueError, match=r"c1=12\.0 exceeds what these features allow"):
        AdaptiveSteps(c1=12.0).sharpness(SCALE)
    just_below = AdaptiveSteps(c1=11.9)
    assert just_below.step(SCALE, just_below.sharpness(SCALE), 1.0, at()) > 0


# -- construction --------------------------------------------------------------------------

BAD = [0.0, -1.0, math.nan, math.inf, True, "0.1"]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", ["c1", "nu0"])
def test_bad_adaptive_constants_are_named(name, value):
    with pytest.raises(ValueError, match=rf"AdaptiveSteps: {name} must be a positive number"):
        AdaptiveSteps(**{name: value})


@pytest.mark.parametrize("value", [*BAD, None])
@pytest.mark.parametrize("name", ["epsilon", "B", "c1", "C_M"])
def test_bad_paper_constants_are_named(name, value):
    with pytest.raises(ValueError, match=rf"PaperSteps: {name} must be a positive number"):
        PaperSteps(**{name: value})


def test_schedules_are_frozen_and_comparable():
    assert PaperSteps() == PaperSteps(epsilon=0.01)
    with pytest.raises(dataclasses.FrozenInstanceError):
        AdaptiveSteps().c1 = 3.0


def test_schedules_by_name_or_object():
    own = PaperSteps(epsilon=0.5)
    assert get_schedule(own) is own
    assert get_schedule("adaptive") == AdaptiveSteps()
    assert get_schedule("paper") == PaperSteps(alone=True)


@pytest.mark.parametrize("wrong", ["Paper", "", None, AdaptiveSteps, 0.1])
def test_unknown_schedules_list_the_known_ones(wrong):
    with pytest.raises(ValueError, match="'adaptive', 'paper'"):
        get_schedule(wrong)


def test_measured_curvature_lengthens_steps_within_bounds():
    steps, scale, c1, nu0 = AdaptiveSteps(), SCALE, 0.2, 1e9
    worst = 2.0 * scale.beta**2 * scale.moment

    def step(curvature):
        now = Measurement(2, 3.0, 0.0, 0.0, 1.0, curvature)
        return steps.step(scale, c1, nu0, now)

    assert step(0.0) == pytest.approx((1 + 0.5 * c1 * 3.0) / (worst - 0.5 * c1))
    half = 0.5 * worst
    assert step(half) == pytest.approx((1 + 0.5 * c1 * 3.0) / (1.2 * half - 0.5 * c1))
    assert step(10 * worst) == step(0.0)
    assert step(1e-12) == pytest.approx((1 + 0.5 * c1 * 3.0) / (0.5 * c1))
