"""Polish: as low as the best of many random starts, and never above where it began."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from problems import neuron_data
from references import linear_losses, risk_of, solved
from scipy.optimize import minimize

from counterpoise import solve
from counterpoise.dual.divergences import get_divergence


def random_start_risks(X, y, g, *, divergence, nu, starts=8, seed=0):
    """L-BFGS on the risk from random starts; nu = 0 by ever sharper smoothing."""
    rng = np.random.default_rng(seed)
    rows = [(X[g == i], y[g == i]) for i in np.unique(g)]
    d_f, prior = get_divergence(divergence), np.full(len(rows), 1 / len(rows))

    def losses(w):
        loss, grad = [], []
        for x, t in rows:
            z = x @ w
            r = np.maximum(z, 0) - t
            loss.append(np.mean(r * r))
            grad.append(2 * x.T @ (r * (z > 0)) / len(t))
        return np.array(loss), np.array(grad)

    def goal(w, smooth):
        loss, grad = losses(w)
        weights = d_f.respond(loss, prior, nu=smooth).weights
        return d_f.risk(loss, prior, smooth), weights @ grad

    risks = []
    for _ in range(starts):
        w = rng.normal(size=X.shape[1])
        for smooth in [nu] if nu else [1e-1, 1e-2, 1e-3, 1e-4]:
            w = minimize(goal, w, args=(smooth,), jac=True, method="L-BFGS-B").x
        risks.append(d_f.risk(losses(w)[0], prior, nu))
    return np.array(risks)


@pytest.mark.slow
@pytest.mark.parametrize("corrupt", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("divergence", "nu"), [("kl", 0.0), ("kl", 0.1), ("chi2", 0.1)])
def test_polished_risk_matches_the_best_of_random_starts(corrupt, divergence, nu):
    X, y, g = neuron_data(K=5, n=200, d=12, corrupt=corrupt, spread=0.5, seed=1)
    others = random_start_risks(X, y, g, divergence=divergence, nu=nu)
    found = solve(X, y, g, divergence=divergence, nu=nu, fit_intercept=False)
    rough = solve(X, y, g, divergence=divergence, nu=nu, fit_intercept=False, polish=False)
    assert found.risk <= np.median(others) * (1 + 1e-3)
    assert found.risk <= others.min() * (1 + 1e-2)
    assert found.risk <= rough.risk
    assert found.n_passes <= 250


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("nu", [0.0, 0.05])
def test_never_above_the_risk_before_polish_or_of_zero(seed, nu):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2.5, size=(60, 6))
    y = rng.standard_cauchy(size=60)
    g = rng.integers(0, 4, size=60)
    rough = solve(X, y, g, nu=nu, polish=False)
    found = solve(X, y, g, nu=nu)
    zero = np.array([np.mean(y[g == i] ** 2) for i in range(4)])
    at_zero = get_divergence("kl").risk(zero, np.full(4, 0.25), nu)
    assert found.risk <= rough.risk * (1 + 1e-12)
    assert found.risk <= at_zero
    assert rough.risk <= at_zero


@pytest.mark.parametrize(
    ("divergence", "nu"),
    [
        ("kl", 0.0),
        ("kl", 1e-3),
        ("kl", 0.2),
        ("kl", 1e3),
        ("chi2", 1.0),
        ("chi2", 0.2),
        ("chi2", 5.0),
    ],
)
@pytest.mark.parametrize("intercept", [True, False])
def test_identity_equals_the_exact_solution(divergence, nu, intercept):
    X, y, g = neuron_data(K=5, n=80, d=6, activation="identity", seed=4)
    y = y + 2.0
    prior = np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    reference = np.array([0.0, 0.1, 0.2, 0.0, 0.3])
    found = solve(
        X, y, g, activation="identity", divergence=divergence, nu=nu, prior=prior,
        reference=reference, fit_intercept=intercept,
    )  # fmt: skip
    w, b = cp.Variable(6), cp.Variable() if intercept else 0.0
    excess = linear_losses(X, y, g, w, b) - reference
    goal = risk_of(excess, nu=nu, divergence=divergence, prior=prior)
    exact = solved(cp.Problem(cp.Minimize(goal)))
    assert found.risk == pytest.approx(exact, rel=1e-6)
    np.testing.assert_allclose(found.coef, w.value, atol=5e-4)
    assert found.certificate.duality_gap <= 1e-6 * abs(exact)
    assert found.n_passes <= 12  # iterations do not read rows


def test_wide_problems_descend_by_first_order_steps():
    X, y, g = neuron_data(K=3, n=150, d=40, seed=2)
    wide = np.hstack([X, np.zeros((len(X), 560))])
    narrow = solve(X, y, g, nu=0.1)
    found = solve(wide, y, g, nu=0.1)
    assert found.risk <= narrow.risk * (1 + 1e-2)
    exact = solve(X, y, g, activation="identity", nu=0.1)
    linear = solve(wide, y, g, activation="identity", nu=0.1, tol=1e-10)
    assert linear.risk == pytest.approx(exact.risk, rel=1e-6)
    assert linear.certificate.duality_gap <= 1e-4 * exact.risk


@pytest.mark.parametrize("width", [40, 600])
def test_ball_is_kept_while_polishing(width):
    X, y, g = neuron_data(K=3, n=150, d=40, seed=2)
    X = np.hstack([X, np.zeros((len(X), width - 40))])
    free = solve(X, y, g, nu=0.1)
    radius = 0.5 * float(np.linalg.norm(free.coef))
    held = solve(X, y, g, nu=0.1, radius=radius)
    assert np.linalg.norm(held.coef) <= radius * (1 + 1e-12)
    assert held.risk > free.risk
    slack = solve(X, y, g, nu=0.1, radius=10 * radius)
    assert slack.risk == pytest.approx(free.risk, rel=5e-3)


def test_many_groups_use_one_weighted_matrix():
    rng = np.random.default_rng(0)
    K = 600
    X = rng.normal(size=(6 * K, 5))
    g = np.repeat(np.arange(K), 6)
    y = np.maximum(X[:, 0] + 0.5 * X[:, 1], 0) + 0.3 * rng.normal(size=6 * K)
    for nu in (0.0, 0.1):
        found = solve(X, y, g, nu=nu)
        rough = solve(X, y, g, nu=nu, polish=False)
        assert found.risk <= rough.risk
        exact = solve(X, y, g, nu=nu, activation="identity", tol=1e-9)
        assert exact.certificate.duality_gap <= 1e-5 * exact.risk
