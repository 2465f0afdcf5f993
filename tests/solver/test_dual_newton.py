"""Newton's method on the group weights."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.dual.divergences import KL, ChiSquare, CVaR, Fixed, SimplexPoint
from counterpoise.dual.divergences.base import Separable
from counterpoise.dual.objective import Objective
from counterpoise.solver import minmax
from counterpoise.solver.coordinates import unscaled
from counterpoise.solver.dual_newton import MOST_GROUPS, allowed, find_saddle, separable
from counterpoise.solver.minmax import minimise_quadratics
from counterpoise.solver.quadratics import QuadraticEngine

DIVERGENCES = [KL(), ChiSquare(), CVaR(0.4), CVaR(0.9)]


def quadratics(K, D, seed, rank=None):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, D, D if rank is None else rank)) / np.sqrt(D)
    loss = rng.uniform(1, 3, K)
    grad = np.einsum("kij,kj->ki", roots, rng.normal(size=(K, roots.shape[2])))
    return QuadraticEngine(loss, grad, roots @ roots.transpose(0, 2, 1))


def objective_of(K, divergence=None, nu=0.0, seed=None):
    rng = np.random.default_rng(seed)
    prior = np.full(K, 1 / K) if seed is None else rng.dirichlet(np.full(K, 3.0))
    reference = np.zeros(K) if seed is None else rng.uniform(0, 0.5, K)
    return Objective(divergence or KL(), nu, prior, reference)


def saddle(model, objective, tol=1e-10, damping=1e-3, start=None):
    D = model.n_coef
    start = objective.prior if start is None else start
    return find_saddle(model, objective, damping * np.eye(D), np.zeros(D), tol, start)


def by_smoothing(model, objective, monkeypatch, **options):
    with monkeypatch.context() as patched:
        patched.setattr(minmax, "find_saddle", lambda *given, **options: None)
        return minimise_quadratics(model, objective, **options)


def cvxpy_minimum(model, objective, damping):
    """The least risk, from the definition: maximise over weights by duality, minimise over x."""
    K, D = model.grad_KD.shape
    x, t = cp.Variable(D), cp.Variable(K)
    limits = [
        model.loss_K[k] - objective.reference[k] + model.grad_KD[k] @ x
        + 0.5 * cp.quad_form(x, cp.psd_wrap(model.hess[k])) <= t[k]
        for k in range(K)
    ]  # fmt: skip
    nu, prior = objective.nu, objective.prior
    if isinstance(objective.divergence, CVaR):  # nu = 0
        alpha, level = objective.divergence.alpha, cp.Variable()
        risk = level + prior @ cp.pos(t - level) / alpha
    elif nu == 0:
        risk = cp.max(t)
    elif isinstance(objective.divergence, KL):
        risk = nu * cp.log_sum_exp(t / nu + np.log(prior))
    else:  # chi-squared, as the value of its dual problem
        level = cp.Variable()
        risk = level + prior @ cp.square(cp.pos(t - level + 2 * nu)) / (4 * nu) - nu
    problem = cp.Problem(cp.Minimize(risk + 0.5 * damping * cp.sum_squares(x)), limits)
    return problem.solve("CLARABEL")


@pytest.mark.parametrize(
    ("divergence", "nu"),
    [(KL(), 0.0), (KL(), 0.01), (KL(), 1.0), (ChiSquare(), 0.05), (ChiSquare(), 2.0),
     (CVaR(0.4), 0.0)],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(4))
def test_the_saddle_is_what_cvxpy_finds(divergence, nu, seed):
    K, D = [(2, 3), (5, 4), (9, 6), (20, 5)][seed]
    model, objective = quadratics(K, D, seed), objective_of(K, divergence, nu, seed)
    found = saddle(model, objective)
    assert found is not None
    assert abs(found.value - found.bound) <= 1e-10
    best = cvxpy_minimum(model, objective, 1e-3)
    assert found.value == pytest.approx(best, abs=1e-5)
    losses = model.evaluate(found.x).loss_K
    value = objective.risk(losses) + 0.5e-3 * float(found.x @ found.x)
    assert found.value == pytest.approx(value, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(1, 8),
    st.sampled_from(DIVERGENCES), st.sampled_from([0.0, 1e-4, 1e-2, 0.3, 10.0]),
)  # fmt: skip
def test_weights_and_points_prove_each_other_optimal(seed, K, D, divergence, nu):
    """The bound holds for every x, and weights are on the simplex, below their caps."""
    model, objective = quadratics(K, D, seed), objective_of(K, divergence, nu, seed)
    found = saddle(model, objective, tol=1e-8)
    assert found is not None
    weights, logs = found.weights
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= 0).all()
    form = separable(model, objective)
    assert (weights <= form.caps * (1 + 1e-9)).all()
    np.testing.assert_allclose(np.exp(logs), weights, rtol=1e-6, atol=1e-13)
    assert found.value - found.bound <= 1e-8
    rng = np.random.default_rng(seed)
    for size in (1e-3, 0.1, 1.0):
        x = found.x + size * rng.normal(size=D)
        risk = objective.risk(model.evaluate(x).loss_K) + 0.5e-3 * float(x @ x)
        assert risk >= found.bound - 1e-12


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("nu", [0.0, 0.02])
def test_smoothing_finds_the_same(divergence, nu, monkeypatch):
    model, objective = quadratics(6, 5, 7), objective_of(6, divergence, nu, 7)
    place = dict(origin=np.zeros(5), coordinates=unscaled(5, False, None), damping=1e-3)
    fast = minimise_quadratics(model, objective, **place)
    slow = by_smoothing(model, objective, monkeypatch, **place)
    assert fast.value == pytest.approx(slow.value, abs=1e-8)
    np.testing.assert_allclose(fast.u, slow.u, atol=1e-4)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("nu", [0.0, 0.02])
def test_the_ball_holds_the_minimiser(divergence, nu, monkeypatch):
    model, objective = quadratics(5, 4, 3), objective_of(5, divergence, nu, 3)
    free = minimise_quadratics(
        model, objective, origin=np.zeros(4), coordinates=unscaled(4, False, None)
    )
    radius = 0.5 * float(np.linalg.norm(free.u))
    place = dict(origin=np.zeros(4), coordinates=unscaled(4, False, radius))
    found = minimise_quadratics(model, objective, **place)
    assert np.linalg.norm(found.u) == pytest.approx(radius, rel=1e-8)
    assert found.gap <= 1e-7 * found.value
    slow = by_smoothing(model, objective, monkeypatch, **place)
    assert found.value == pytest.approx(slow.value, abs=1e-7)


@pytest.mark.parametrize("nu", [0.0, 1e-9, 1e-3])
def test_a_group_far_below_the_others_keeps_the_logarithm_of_its_weight(nu):
    """A weight of exp(-1e6) is zero, but its logarithm is not lost if ``nu`` is positive."""
    model, objective = quadratics(3, 4, 1), objective_of(3, nu=nu)
    model.loss_K[0] -= 1e3
    found = saddle(model, objective, tol=1e-6)
    assert found is not None
    expected = objective.respond(model.evaluate(found.x).loss_K).logs[0] if nu else -np.inf
    assert found.weights.weights[0] == 0.0
    assert found.weights.logs[0] == pytest.approx(expected, rel=1e-6)


def test_singular_matrices_are_left_to_smoothing(monkeypatch):
    """A mixture of them may have no minimiser; the method gives up, and smoothing goes on."""
    model, objective = quadratics(4, 6, 3, rank=2), objective_of(4)
    model.hess[:, :, 5] = model.hess[:, 5, :] = 0.0
    assert saddle(model, objective, damping=0.0) is None
    place = dict(origin=np.zeros(6), coordinates=unscaled(6, False, None))
    slow = by_smoothing(model, objective, monkeypatch, **place)
    fast = minimise_quadratics(model, objective, **place)
    assert fast.value == slow.value
    np.testing.assert_array_equal(fast.u, slow.u)


def test_where_it_applies():
    def applies(objective, model=None):
        return separable(model or quadratics(objective.n_groups, 2, 0), objective) is not None

    assert applies(objective_of(3))
    assert applies(objective_of(3, nu=0.1))
    assert applies(objective_of(3, ChiSquare(), nu=0.1))
    assert applies(objective_of(3, CVaR(0.5)))
    assert not applies(objective_of(1))
    assert not applies(objective_of(MOST_GROUPS + 1))
    assert not applies(objective_of(3, Fixed()))
    assert not applies(objective_of(3, CVaR(1.0)))  # whose caps leave no choice
    model = quadratics(3, 2, 0)
    shared = QuadraticEngine(model.loss_K, model.grad_KD, model.hess[:1])
    assert not applies(objective_of(3), shared)


def test_a_subclass_that_changes_a_divergence_must_describe_it_anew():
    class Named(KL):
        name = "named"

    class Capped(KL):
        def respond(self, losses, prior, **options):
            return SimplexPoint.of(prior)

    class Described(Capped):
        def separable(self, prior):
            return Separable(True, np.ones_like(prior))

    model = quadratics(3, 2, 0)
    assert separable(model, objective_of(3, Named(), nu=0.1)) is not None
    assert separable(model, objective_of(3, Capped(), nu=0.1)) is None
    assert separable(model, objective_of(3, Described(), nu=0.1)) is not None


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.5, 0.9]))
def test_starts_are_moved_below_the_caps(K, seed, alpha):
    rng = np.random.default_rng(seed)
    prior, start = rng.dirichlet(np.ones(K)), rng.dirichlet(np.full(K, 0.3))
    caps = np.minimum(prior / alpha, 1.0)
    found = allowed(start, caps)
    assert found.sum() == pytest.approx(1.0)
    assert (found <= caps * (1 + 1e-12)).all()
    assert (found >= 0).all()
    if (start <= caps).all():
        np.testing.assert_array_equal(found, start)
