"""Newton's method on the group weights."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.dual.divergences import KL, CVaR
from counterpoise.dual.objective import Objective
from counterpoise.solver.coordinates import unscaled
from counterpoise.solver.dual_newton import applies, find_saddle, simplex_maximum
from counterpoise.solver.minmax import minimise_quadratics
from counterpoise.solver.quadratics import QuadraticEngine


def quadratics(K, D, seed, rank=None):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, D, D if rank is None else rank)) / np.sqrt(D)
    loss, grad = rng.uniform(1, 3, K), rng.normal(size=(K, D))
    grad = np.einsum("kij,kj->ki", roots, rng.normal(size=(K, roots.shape[2])))
    return QuadraticEngine(loss, grad, roots @ roots.transpose(0, 2, 1))


def objective_of(K, divergence=None, nu=0.0):
    return Objective(divergence or KL(), nu, np.full(K, 1 / K), np.zeros(K))


@pytest.mark.parametrize("seed", range(12))
def test_the_saddle_is_what_smoothing_and_cvxpy_find(seed):
    K, D = [(2, 3), (5, 4), (9, 6), (20, 5)][seed % 4]
    model, objective = quadratics(K, D, seed), objective_of(K)
    extra, slope = 1e-3 * np.eye(D), np.zeros(D)
    found = find_saddle(model, objective, extra, slope, 1e-10, objective.prior)
    assert found is not None
    assert found.value - found.bound <= 1e-10
    assert found.weights.weights.sum() == pytest.approx(1.0)
    slow = minimise_quadratics(
        model, objective, origin=np.zeros(D), coordinates=unscaled(D, False, None), damping=1e-3
    )
    fast = minimise_quadratics(
        model, objective, origin=np.zeros(D), coordinates=unscaled(D, False, None), damping=1e-3,
        on_weights=True,
    )  # fmt: skip
    assert fast.value == pytest.approx(slow.value, abs=1e-8)
    np.testing.assert_allclose(fast.u, slow.u, atol=1e-4)
    x, t = cp.Variable(D), cp.Variable()
    limits = [
        model.loss_K[k] + model.grad_KD[k] @ x + 0.5 * cp.quad_form(x, cp.psd_wrap(model.hess[k]))
        <= t
        for k in range(K)
    ]
    best = cp.Problem(cp.Minimize(t + 5e-4 * cp.sum_squares(x)), limits).solve("CLARABEL")
    assert found.value == pytest.approx(best, abs=1e-6)
    assert found.bound <= best + 1e-6


def test_singular_matrices_are_left_to_smoothing():
    """A mixture of them may have no minimiser; the method gives up, and smoothing goes on."""
    model, objective = quadratics(4, 6, 3, rank=2), objective_of(4)
    zero, place = np.zeros((6, 6)), dict(origin=np.zeros(6), coordinates=unscaled(6, False, None))
    assert find_saddle(model, objective, zero, np.zeros(6), 1e-9, objective.prior) is None
    slow = minimise_quadratics(model, objective, **place)
    fast = minimise_quadratics(model, objective, on_weights=True, **place)
    assert fast.value == slow.value
    np.testing.assert_array_equal(fast.u, slow.u)


def test_groups_may_share_one_matrix():
    model, objective = quadratics(4, 6, 4), objective_of(4)
    shared = QuadraticEngine(model.loss_K, model.grad_KD, np.eye(6)[None])
    found = find_saddle(shared, objective, np.zeros((6, 6)), np.zeros(6), 1e-10, objective.prior)
    assert found is not None
    assert found.value == pytest.approx(float(shared.evaluate(found.x).loss_K.max()))
    slow = minimise_quadratics(
        shared, objective, origin=np.zeros(6), coordinates=unscaled(6, False, None)
    )
    assert found.value == pytest.approx(slow.value, abs=1e-9)


def test_where_it_applies():
    assert applies(objective_of(3))
    assert not applies(objective_of(1))
    assert not applies(objective_of(65))
    assert not applies(objective_of(3, nu=0.1))
    assert not applies(objective_of(3, CVaR(0.5)))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_the_maximum_over_the_simplex_satisfies_its_conditions(size, lost, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, max(1, size - lost)))
    curved, linear = root @ root.T, 3 * rng.normal(size=size)
    start = rng.dirichlet(np.ones(size))
    t = simplex_maximum(curved, linear, start)
    assert (t >= 0).all()
    assert t.sum() == pytest.approx(1.0)
    pull = linear - curved @ t
    # No direction in the simplex raises the value: pulls are highest where there is weight.
    assert pull.max() - t @ pull <= 1e-6 * (1 + np.abs(pull).max())
