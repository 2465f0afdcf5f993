"""Coordinates of several scores."""

import cvxpy as cp
import numpy as np
import pytest

from counterpoise.solver.coordinates import whitened
from counterpoise.solver.stacked import Stacked


@pytest.fixture
def stacked():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(50, 3)) * [1, 5, 0.2] + [2, 0, 1], np.ones(50)])
    each = whitened(rows.T @ rows / 50, np.zeros(3), True, 1.5)
    return Stacked(each, 4)


def test_points_go_to_the_user_and_back(stacked):
    u = np.random.default_rng(1).normal(size=stacked.size)
    w = stacked.to_user(u)
    assert w.shape == (16,)
    np.testing.assert_allclose(stacked.from_user(w), u, rtol=1e-10)
    np.testing.assert_allclose(w.reshape(4, 4).sum(axis=0), 0.0, atol=1e-12)
    both = stacked.to_user(np.array([u, 2 * u]))
    np.testing.assert_allclose(both[1], 2 * w, rtol=1e-12)


def test_gradients_and_matrices_follow_the_chain_rule(stacked):
    rng = np.random.default_rng(2)
    u, grad = rng.normal(size=stacked.size), rng.normal(size=16)
    h = 1e-6
    steps = np.eye(stacked.size) * h
    numeric = [(stacked.to_user(u + s) - stacked.to_user(u - s)) @ grad / (2 * h) for s in steps]
    np.testing.assert_allclose(stacked.pull(grad), numeric, rtol=1e-7, atol=1e-9)
    assert stacked.pull(np.array([grad, grad])).shape == (2, stacked.size)
    A = rng.normal(size=(16, 16))
    A = A @ A.T
    mapped = np.kron(np.eye(4), stacked.map)  # as engines return matrices: of mapped rows
    whole = stacked.pull_curvature(mapped.T @ A @ mapped)
    J = np.array([stacked.to_user(s) for s in np.eye(stacked.size)]).T
    np.testing.assert_allclose(whole, J.T @ A @ J, rtol=1e-9, atol=1e-9)


def test_the_projection_is_the_nearest_point_of_the_ball(stacked):
    u = 2.0 * np.random.default_rng(3).normal(size=stacked.size)
    found = stacked.project(u)
    assert stacked.coef_norm(found) <= 1.5
    assert stacked.coef_norm(found) == pytest.approx(1.5)
    assert stacked.coef_norm(u) == pytest.approx(np.linalg.norm(stacked.coef(u)))
    x = cp.Variable(stacked.size)
    L = np.linalg.cholesky(stacked.coef_gram() + 1e-14 * np.eye(stacked.size))
    cp.Problem(cp.Minimize(cp.sum_squares(x - u)), [cp.norm(L.T @ x) <= 1.5]).solve("CLARABEL")
    np.testing.assert_allclose(found, x.value, atol=1e-4)
    inside = 1e-3 * u
    assert stacked.project(inside) is inside
