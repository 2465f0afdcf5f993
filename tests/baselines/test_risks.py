"""Baselines with risks of their own: tilted, CVaR, chi-squared over rows."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from problems import coefficients, least_squares, linear_groups, neuron_data
from references import linear_losses, risk_of, solved
from scipy import sparse
from scipy.optimize import minimize

from counterpoise import GroupDRONeuron, risk
from counterpoise.baselines import (
    AverageNeuron,
    GroupCVaRNeuron,
    RowChiSquareNeuron,
    TiltedNeuron,
)


@pytest.fixture
def linear():
    return linear_groups()


# -- tilted risk and CVaR ------------------------------------------------------------------


def linear_optimum(X, y, g, objective):
    """The minimum of a convex function of the group losses of a linear neuron."""
    losses = linear_losses(X, y, g, cp.Variable(X.shape[1]), cp.Variable())
    return solved(cp.Problem(cp.Minimize(objective(losses))))


@pytest.mark.parametrize("t", [0.3, 5.0])
def test_tilted_over_groups(t, linear):
    X, y, g = linear
    model = TiltedNeuron("identity", t=t).fit(X, y, groups=g)
    assert model.risk_ == pytest.approx(np.log(np.mean(np.exp(t * model.group_risks_))) / t)
    best = linear_optimum(X, y, g, lambda losses: risk_of(losses, nu=1 / t))
    assert model.risk_ == pytest.approx(best, rel=1e-5)
    same = GroupDRONeuron("identity", nu=1 / t).fit(X, y, groups=g)
    np.testing.assert_array_equal(coefficients(model), coefficients(same))


@pytest.mark.parametrize("t", [0.3, 2.0])
def test_tilted_over_rows(t, linear):
    X, y, g = linear
    Z = np.column_stack([X, np.ones(len(y))])

    def tilted(w):
        loss = t * (Z @ w - y) ** 2
        top = loss.max()
        e = np.exp(loss - top)
        value = (top + np.log(e.mean())) / t
        return value, 2.0 * Z.T @ (e / e.sum() * (Z @ w - y))

    best = minimize(tilted, least_squares(X, y), jac=True, method="BFGS", options={"gtol": 1e-9})
    model = TiltedNeuron("identity", t=t, level="row", tol=1e-10).fit(X, y, groups=g)
    assert model.risk_ == pytest.approx(best.fun, rel=1e-8)
    np.testing.assert_allclose(coefficients(model), best.x, atol=1e-3)
    weights = np.exp(t * ((Z @ coefficients(model) - y) ** 2))
    share = np.bincount(g, weights=weights) / weights.sum()
    np.testing.assert_allclose(model.group_weights_, share, rtol=1e-9)


@pytest.mark.parametrize("level", ["group", "row"])
def test_no_tilt_is_the_average(level, linear):
    X, y, g = linear
    model = TiltedNeuron("identity", t=0, level=level, tol=1e-10).fit(X, y, groups=g)
    np.testing.assert_allclose(coefficients(model), least_squares(X, y), atol=1e-5)
    assert model.nu_ == np.inf


def test_cvar_over_groups(linear):
    X, y, g = linear
    model = GroupCVaRNeuron("identity", alpha=0.5).fit(X, y, groups=g)
    best = linear_optimum(X, y, g, lambda losses: cp.sum_largest(losses, 2) / 2)
    assert model.risk_ == pytest.approx(best, rel=1e-5)
    assert model.risk_ == pytest.approx(np.sort(model.group_risks_)[2:].mean())
    assert (model.group_weights_ <= 0.5 + 1e-9).all()
    worst = GroupCVaRNeuron("identity", alpha=0.25).fit(X, y, groups=g)
    assert worst.risk_ == pytest.approx(linear_optimum(X, y, g, cp.max))
    assert worst.risk_ == pytest.approx(worst.group_risks_.max())
    average = GroupCVaRNeuron("identity", alpha=1.0).fit(X, y, groups=g)
    np.testing.assert_allclose(coefficients(average), least_squares(X, y), atol=1e-4)


# -- chi-squared over rows -----------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_chi_square_over_rows(nu, weighted):
    X, y, g = neuron_data(K=3, n=15, d=2, activation="identity")
    sizes = np.random.default_rng(0).uniform(0.2, 2.0, size=45) if weighted else np.ones(45)
    p = sizes / sizes.sum()
    model = RowChiSquareNeuron("identity", nu=nu, tol=1e-10)
    model.fit(X, y, groups=g, sample_weight=sizes if weighted else None)
    rows = cp.square(X @ cp.Variable(2) + cp.Variable() - y)
    value = risk_of(rows, nu=nu, divergence="chi2", prior=p)
    best = solved(cp.Problem(cp.Minimize(value)))
    assert model.risk_ == pytest.approx(best, rel=1e-5)
    losses = (model.predict(X) - y) ** 2
    assert model.risk_ == pytest.approx(risk(losses, nu, "chi2", p))
    by_group = [np.average(losses[g == i], weights=sizes[g == i]) for i in range(3)]
    np.testing.assert_allclose(model.group_risks_, by_group)
    x = RowChiSquareNeuron("identity", nu=nu, tol=1e-10)
    x.fit(sparse.csr_matrix(X), y, groups=g, sample_weight=sizes if weighted else None)
    assert x.risk_ == pytest.approx(model.risk_, rel=1e-8)


def test_chi_square_over_rows_limits_and_groups(linear):
    X, y, g = linear
    average = RowChiSquareNeuron("identity", nu=np.inf, tol=1e-12).fit(X, y, groups=g)
    np.testing.assert_allclose(coefficients(average), least_squares(X, y), atol=1e-5)
    with_groups = RowChiSquareNeuron("identity").fit(X, y, groups=g)
    without = RowChiSquareNeuron("identity").fit(X, y)
    np.testing.assert_allclose(coefficients(with_groups), coefficients(without), atol=1e-8)
    assert with_groups.nu_ == pytest.approx(0.1 * average.risk_, rel=1e-2)


def test_chi_square_over_rows_lowers_its_risk_for_relu():
    X, y, g = neuron_data(K=4, n=100, d=5)
    average = AverageNeuron().fit(X, y, groups=g)
    model = RowChiSquareNeuron(nu=0.2).fit(X, y, groups=g)
    start = risk((average.predict(X) - y) ** 2, 0.2, "chi2")
    assert model.risk_ < 0.98 * start
    assert (np.diff(model.history_["risk"]) <= 1e-12).all()
