"""The theory's constants, estimated on laws whose constants are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from counterpoise.assessment.diagnosis.assumptions import (
    GAMMAS,
    REACHES,
    adaptive_passes,
    margins,
    paper_passes,
    rows_needed,
    sharpness_from,
    tail_parameters,
    tail_shapes,
    truncation_level,
    whole_margin,
)
from counterpoise.solver.schedules import AdaptiveSteps, PaperSteps, ProblemScale


def unit_vectors(count, size, seed=0):
    drawn = np.random.default_rng(seed).normal(size=(count, size))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def scale(**changes):
    known = dict(beta=1.0, n_groups=5, radius=1.0, nu=0.1, moment=1.5, mean_moment=1.0,
                 label_scale=1.0, modulus=1.0)  # fmt: skip
    return ProblemScale(**{**known, **changes})


# -- tails -------------------------------------------------------------------------------------


def test_tail_parameter_of_a_gaussian_is_set_at_one():
    """P(|z| >= r) falls faster than exp(-r/B) beyond 1, so the bound is tight there."""
    Z = np.random.default_rng(0).normal(size=(40_000, 4))
    expected = 1.0 / -math.log(2 * norm.sf(1.0))
    np.testing.assert_allclose(tail_parameters(Z), expected, rtol=0.05)


def test_tail_parameter_of_a_laplace_law_is_its_scale():
    Z = np.random.default_rng(0).laplace(scale=1.7, size=(40_000, 4))
    np.testing.assert_allclose(tail_parameters(Z), 1.7, rtol=0.08)


def test_tail_parameter_of_the_cube():
    """Two thirds of the rows are at distance one along an axis, none beyond."""
    Z = np.random.default_rng(0).integers(-1, 2, size=(40_000, 4)).astype(float)
    np.testing.assert_allclose(tail_parameters(Z), 1.0 / math.log(1.5), rtol=0.05)


def test_reach_moves_where_the_bound_begins():
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(1000, 1))
    assert math.isinf(tail_parameters(signs)[0]), "every row is at one"
    assert tail_parameters(signs, 1.5)[0] < 1.0
    Z = np.random.default_rng(0).normal(size=(40_000, 1))
    expected = 2.0 / -math.log(2 * norm.sf(2.0))
    assert tail_parameters(Z, 2.0)[0] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("n", [400, 4_000, 40_000])
def test_exponential_and_lighter_tails_are_not_called_heavy(n):
    rng = np.random.default_rng(n)
    for draw in (rng.laplace, rng.normal):
        assert np.max(tail_shapes(draw(size=(n, 60))).score) < 4.5
    exact = -np.log((np.arange(n) + 0.5) / n)[:, None]
    assert tail_shapes(exact).ratio[0] == pytest.approx(1.0, abs=0.35)


@pytest.mark.parametrize("law", ["t3", "lognormal"])
def test_heavy_tails_are_seen(law):
    rng = np.random.default_rng(0)
    draw = (
        rng.standard_t(3, size=(4_000, 10)) if law == "t3" else rng.lognormal(size=(4_000, 10)) - 1
    )
    shape = tail_shapes(draw)
    assert np.max(shape.score) > 4.5
    assert np.median(shape.ratio) > 1.5


def test_few_rows_and_few_values_have_no_shape():
    assert np.isnan(tail_shapes(np.random.default_rng(0).normal(size=(100, 3))).score).all()
    dummy = (np.random.default_rng(0).random((5_000, 1)) < 0.01).astype(float)
    assert np.isnan(tail_shapes(dummy).score).all()


# -- margin ------------------------------------------------------------------------------------


def test_margin_of_a_gaussian():
    """E[x x^T 1{w.x >= g}] is P(z >= g) across w, and more along it."""
    Z = np.random.default_rng(0).normal(size=(60_000, 3))
    found = margins(Z, np.concatenate([np.eye(3), unit_vectors(8, 3)]))
    np.testing.assert_allclose(found, norm.sf(GAMMAS), rtol=0.06)
    assert (found <= norm.sf(GAMMAS) * 1.02).all(), "a minimum over directions errs downwards"


def test_margin_of_the_square_by_enumeration():
    """All nine points of {-1, 0, 1}^2 once: the estimate must equal a search by hand."""
    Z = np.array([[a, b] for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)])
    angles = np.linspace(0, math.pi, 40, endpoint=False)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    expected = []
    for gamma in GAMMAS:
        lows = []
        for w in np.concatenate([directions, -directions]):
            active = Z[Z @ w >= gamma]
            lows.append(np.linalg.eigvalsh(active.T @ active / 9)[0] if len(active) >= 2 else 0.0)
        expected.append(max(min(lows), 0.0))
    np.testing.assert_allclose(margins(Z, directions), expected, atol=1e-12)
    assert expected[3] <= 1 / 9 + 1e-12, "x1 + x2 >= 1 leaves (1, -1) almost nothing"


def test_margin_vanishes_where_a_side_is_empty():
    Z = np.abs(np.random.default_rng(0).normal(size=(500, 2)))
    assert (margins(Z, np.eye(2)) == 0).all(), "no row is active for w = -e1"
    assert whole_margin(Z) > 0.05
    assert whole_margin(Z, np.zeros(500, dtype=bool)) == 0.0
    assert whole_margin(Z[:1]) == 0.0


# -- sharpness ---------------------------------------------------------------------------------


def test_sharpness_is_the_papers_formula_at_the_best_gamma():
    B, zetas, alpha = 0.87, norm.sf(GAMMAS), 0.8
    found = sharpness_from(np.array([B]), zetas, alpha)
    by_hand = GAMMAS * zetas * alpha / (6 * B * np.log(20 * B / zetas**2))
    assert found.c0 == pytest.approx(by_hand.max())
    assert found.gamma == GAMMAS[np.argmax(by_hand)]
    assert found.zeta == zetas[np.argmax(by_hand)]
    assert found.c1 == pytest.approx(found.c0**2 / (24 * B))


def test_a_longer_reach_helps_only_if_the_tail_there_is_thinner():
    zetas = norm.sf(GAMMAS)
    short = sharpness_from(np.array([5.0]), zetas, 1.0)
    both = sharpness_from(np.array([5.0, 0.5]), zetas, 1.0)
    assert both.c0 > short.c0
    assert (both.B, both.reach) == (0.5, REACHES[1])
    assert both.c1 == pytest.approx(both.c0**2 / (24 * both.B * both.reach))
    same = sharpness_from(np.array([0.5, 5.0]), zetas, 1.0)
    assert same.c0 == sharpness_from(np.array([0.5]), zetas, 1.0).c0
    none = sharpness_from(np.full(len(REACHES), math.inf), zetas, 1.0)
    assert (none.c0, none.B) == (0.0, math.inf)
    late = sharpness_from(np.array([math.inf, 2.0]), np.zeros(len(GAMMAS)), 1.0)
    assert (late.B, late.reach, late.c0) == (2.0, REACHES[1], 0.0)


def test_the_unit_of_the_features_does_not_change_what_is_said_of_the_neuron():
    """Features divided by s: reach s in the old coordinates is reach one in the new."""
    Z, s = np.random.default_rng(0).laplace(size=(20_000, 3)), REACHES[3]
    w = unit_vectors(6, 3)
    old = sharpness_from(
        np.array([math.inf] * 3 + [tail_parameters(Z, s).max()]), margins(Z, w, s * GAMMAS), 1.0,
        s * GAMMAS,
    )  # fmt: skip
    new = sharpness_from(
        np.array([tail_parameters(Z / s).max()]), margins(Z / s, w), 1.0
    )  # fmt: skip
    assert pytest.approx(s * new.B) == old.B
    assert old.c0 == pytest.approx(s**2 * new.c0)
    assert old.c1 == pytest.approx(s**2 * new.c1)


def test_sharpness_holds_on_the_law_it_was_derived_for():
    """E[(sigma(w.x) - sigma(v.x))^2] >= c1 ||w - v||^2 for a ReLU on Gaussian rows."""
    Z = np.random.default_rng(0).normal(size=(40_000, 4))
    found = sharpness_from(
        np.array([tail_parameters(Z).max()]), margins(Z, unit_vectors(8, 4)), 1.0
    )
    assert 1e-6 < found.c1 < 1e-2
    for seed in range(5):
        w, v = np.random.default_rng(seed).normal(size=(2, 4))
        apart = np.mean((np.maximum(Z @ w, 0) - np.maximum(Z @ v, 0)) ** 2)
        assert apart >= found.c1 * np.sum((w - v) ** 2)


# -- rows, truncation, passes ------------------------------------------------------------------


def test_rows_needed_by_hand_and_in_any_unit():
    expected = 100.0**2 * (10 * math.log(10 * 100.0) + math.log(4 / 0.05))
    assert rows_needed(10, 4, 1.0, 0.01, 0.05) == pytest.approx(expected)
    assert rows_needed(10, 4, 30.0, 9.0, 0.05) == pytest.approx(expected), "unit of the labels"
    assert rows_needed(10, 4, 0.0, 0.01, 0.05) == 0.0


def test_truncation_level_does_not_depend_on_units_and_bounds_the_tail():
    level = truncation_level(1.0, 0.87, 2.0, 0.01)
    assert truncation_level(1.0, 0.87, 200.0, 100.0) == pytest.approx(100 * level)
    outputs = 2.0 * np.random.default_rng(0).normal(size=100_000)
    beyond = np.maximum(np.abs(outputs) - level, 0.0)
    assert np.mean(beyond**2) < 0.01
    assert truncation_level(1.0, 1.0, 0.0, 0.1) == 0.0


@pytest.mark.parametrize("nu", [0.0, 0.3])
def test_paper_passes_against_the_schedule_itself(nu):
    """Constants made mild, so that the steps can be added up one by one."""
    steps = PaperSteps(epsilon=0.3, B=0.05, c1=0.5)
    s = scale(nu=nu, radius=20.0, n_groups=2)
    predicted = paper_passes(steps, s, distance=1.0)
    needed = 2.0 / steps.c1 * (2.0 / steps.epsilon - 1.0)
    total, t = 0.0, 0
    from counterpoise.solver.schedules import Measurement

    nu0 = steps.starting_weight(s)
    while total < needed and t < 2_000_000:
        t += 1
        total += steps.step(s, steps.c1, nu0, Measurement(t, total, 0.0, 0.0))
    assert total >= needed
    assert predicted <= 1.05 * t, "a lower bound on what is needed"
    assert predicted >= 0.2 * t


def test_paper_passes_are_astronomical_at_ordinary_constants():
    assert paper_passes(PaperSteps(), scale(), distance=1.0) > 1e6
    assert paper_passes(PaperSteps(), scale(), distance=0.0) == 1.0


def test_adaptive_passes_fall_with_nu_and_distance_and_rise_with_spread():
    steps = AdaptiveSteps()

    def passes(nu=0.1, spread=1.0, distance=1.0, epsilon=0.01):
        return adaptive_passes(steps, scale(nu=nu), spread, epsilon, distance)

    assert passes() < 300
    assert passes(nu=1.0) <= passes() <= passes(nu=0.001)
    assert passes(spread=10.0) > passes()
    assert passes(distance=0.0) == 1.0
    assert math.isinf(passes(nu=0.0, spread=1e6))
