"""Quadratics on ellipsoids: their least value, and where they are low."""

import numpy as np
import pytest
from scipy.optimize import minimize

from counterpoise.solver.ellipsoids import Ellipsoid, Quadratic


def random_case(seed, shift):
    """A quadratic, convex or not, about a point of an ellipsoid, and the ellipsoid."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    root = rng.normal(size=(d, d))
    bend = root @ root.T / d + shift * np.eye(d)
    at = rng.normal(size=d)
    at *= rng.random() / np.linalg.norm(at)
    value, slope = float(rng.normal()), rng.normal(size=d) * 10.0 ** rng.uniform(-2, 1)
    found = Quadratic.about(at, value, slope, bend, 0.0)
    ellipsoid = Ellipsoid(rng.normal(size=d), rng.normal(size=(d, d)))

    def exact(v):
        return value + slope @ (v - at) + 0.5 * (v - at) @ bend @ (v - at)

    return rng, found, ellipsoid, exact, d


def in_ball(rng, d, count):
    v = rng.normal(size=(count, d))
    return v / np.linalg.norm(v, axis=1, keepdims=True) * rng.random((count, 1)) ** (1.0 / d)


@pytest.mark.parametrize("shift", [0.5, 0.0, -1.5])
@pytest.mark.parametrize("seed", range(20))
def test_least_value_on_the_ball(seed, shift):
    rng, found, _, exact, d = random_case(seed, shift)
    best = np.inf
    for start in in_ball(rng, d, 30):
        end = minimize(exact, start, method="SLSQP",
                       constraints={"type": "ineq", "fun": lambda v: 1.0 - v @ v})  # fmt: skip
        inside = end.x / max(1.0, np.linalg.norm(end.x))
        best = min(best, float(exact(inside)))
    assert found.least <= best + 1e-9
    # Duality is exact for one quadratic on one ball; the multipliers are a grid.
    assert found.least >= best - 0.05 * (abs(best) + np.abs(found.slope).max() + 1.0)


@pytest.mark.parametrize("shift", [0.5, -1.5])
@pytest.mark.parametrize("seed", range(20))
def test_sublevel_ellipsoid_holds_all_low_points(seed, shift):
    rng, found, ellipsoid, exact, d = random_case(seed, shift)
    points = in_ball(rng, d, 20000)
    values = np.array([exact(v) for v in points])
    level = float(np.quantile(values, 0.2))
    smaller = found.sublevel(ellipsoid, level)
    low = ellipsoid.centre + points[values <= level] @ ellipsoid.axes.T
    inner = np.linalg.solve(smaller.axes, (low - smaller.centre).T)
    assert np.linalg.norm(inner, axis=0).max() <= 1.0 + 1e-9
    assert smaller.size <= ellipsoid.size * (1 + 1e-6)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_halves_cover_the_ellipsoid(d):
    rng = np.random.default_rng(d)
    whole = Ellipsoid(rng.normal(size=d), rng.normal(size=(d, d)))
    points = whole.centre + in_ball(rng, d, 5000) @ whole.axes.T
    inside = np.zeros(len(points), dtype=bool)
    for half in whole.halves():
        inner = np.linalg.solve(half.axes, (points - half.centre).T)
        inside |= np.linalg.norm(inner, axis=0) <= 1.0
        volume = abs(np.linalg.det(half.axes) / np.linalg.det(whole.axes))
        assert volume < 1.0
    assert inside.all()


def test_inner_coordinates_stay_in_the_ball():
    ellipsoid = Ellipsoid(np.array([1.0, 2.0]), np.diag([2.0, 0.5]))
    assert np.allclose(ellipsoid.point(ellipsoid.inner(np.array([2.0, 2.1]))), [2.0, 2.1])
    far = ellipsoid.inner(np.array([50.0, 2.0]))
    assert np.linalg.norm(far) <= 1.0


def test_numbers_beyond_range_prove_nothing():
    broken = Quadratic.about(np.zeros(2), np.inf, np.zeros(2), np.eye(2), 0.0)
    ball = Ellipsoid.ball(np.zeros(2), 1.0)
    assert broken.least == -np.inf
    assert broken.sublevel(ball, 0.0) is ball
