"""Every group fitted alone, all at once: each ends where a fit of its rows alone does."""

from __future__ import annotations

import numpy as np
import pytest
from problems import neuron_data
from scipy import sparse
from scipy.optimize import minimize

from counterpoise.activations import get_activation
from counterpoise.losses import LogLoss, NeuronLoss
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.questions import Evaluate, EvaluateEach, Gram, GramEach
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.alone import fit_each_alone
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running

IDENTITY = {"activation": "identity"}


def _losses(X, y, groups, tol=1e-9, **options):
    solver = open_solver(X, y, groups, options=FitOptions(**options))
    with running(solver):
        setup = solver.set_up(np.inf)
        start = np.zeros(setup.problem.size)  # which is stationary for a ReLU
        linear = options.get("activation", "identity") == "identity"
        moments = None if linear else solver.frame.matrices
        U, found = fit_each_alone(
            setup.problem, start, tol=tol, floor=setup.floor, moments=moments
        )  # fmt: skip
        return setup.problem.coordinates.to_user(U), found.loss_K


def test_linear_models_end_at_least_squares():
    X, y, groups = neuron_data(n=600, d=4, K=3, seed=1)
    W, losses = _losses(X, y, groups, activation="identity")
    for k, w in enumerate(W):
        rows = groups == np.unique(groups)[k]
        design = np.column_stack([X[rows], np.ones(rows.sum())])
        best, (square,), *_ = np.linalg.lstsq(design, y[rows])
        np.testing.assert_allclose(w, best, atol=1e-9)
        assert losses[k] == pytest.approx(square / rows.sum(), rel=1e-9)


def test_classifiers_end_where_scipy_does():
    rng = np.random.default_rng(2)
    X, groups = rng.normal(size=(900, 3)), np.repeat([0, 1, 2], 300)
    slopes = np.array([[3.0, 0, 0], [0, -2.0, 1], [0.2, 0, 0]])[groups]
    y = (np.sum(slopes * X, axis=1) + rng.logistic(size=900) > 0).astype(float)
    _, losses = _losses(X, y, groups, loss=LogLoss())
    for k in range(3):
        Z, sign = X[groups == k], 2 * y[groups == k] - 1

        def mean(w, Z=Z, sign=sign):
            return float(np.logaddexp(0, -sign * (Z @ w[:3] + w[3])).mean())

        assert losses[k] == pytest.approx(minimize(mean, np.zeros(4)).fun, rel=1e-6)


@pytest.mark.parametrize("loss", [LogLoss(), None])
def test_a_ball_holds_every_group(loss):
    """With a radius, the minimiser of a group is on the ball, away from where it starts."""
    rng = np.random.default_rng(3)
    X, groups = rng.normal(size=(900, 3)), np.repeat([0, 1, 2], 300)
    slopes = np.array([[3.0, 0, 0], [0, -2.0, 1], [0.2, 0, 0]])[groups]
    y = np.sum(slopes * X, axis=1) + rng.logistic(size=900)
    y = (y > 0).astype(float) if loss else y
    W, losses = _losses(X, y, groups, radius=0.5, **({"loss": loss} if loss else IDENTITY))
    assert np.linalg.norm(W[:, :3], axis=1).max() <= 0.5 + 1e-9
    for k in range(3):
        Z, own = X[groups == k], y[groups == k]

        def mean(w, Z=Z, own=own):
            z = Z @ w[:3] + w[3]
            rows = np.logaddexp(0, (1 - 2 * own) * z) if loss else (z - own) ** 2
            return float(rows.mean())

        ball = {"type": "ineq", "fun": lambda w: 0.25 - w[:3] @ w[:3]}
        best = minimize(mean, np.full(4, 0.1), constraints=ball, method="SLSQP", tol=1e-10)
        assert losses[k] == pytest.approx(best.fun, rel=1e-5)


def test_groups_that_are_done_stay_done():
    """Else their damping would shrink until they fail again, on and on."""
    X, y, groups = neuron_data(n=4000, d=30, K=10, seed=0)
    solver = open_solver(X, y, groups, options=FitOptions(activation="relu"))
    with running(solver):
        setup = solver.set_up(np.inf)
        start = setup.problem.coordinates.from_user(solver.average()[0])
        before = solver.engine.passes
        fit_each_alone(
            setup.problem, start, tol=1e-3, floor=setup.floor, moments=solver.frame.matrices
        )
    assert solver.engine.passes - before < 50


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "softplus", "elu"])
def test_neurons_end_as_low_as_fits_of_the_rows_alone(activation):
    X, y, groups = neuron_data(n=1500, d=5, K=3, seed=3)
    _, losses = _losses(X, y, groups, tol=1e-7, activation=activation)
    for k, label in enumerate(np.unique(groups)):
        rows = groups == label
        alone = open_solver(X[rows], y[rows], options=FitOptions(activation=activation))
        with running(alone):
            _, found = alone.end(np.inf)
        assert losses[k] <= found.loss_K[0] * (1 + 1e-4)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_group_is_asked_at_its_own_coefficients(convert, weighted):
    X, y, groups = neuron_data(n=400, d=4, K=3, seed=4)
    rng = np.random.default_rng(5)
    weights = rng.uniform(0.5, 2.0, size=len(y)) if weighted else None
    data = GroupedData.build(convert(X), y, groups, weights, intercept=True)
    loss, W = NeuronLoss(get_activation("relu")), rng.normal(size=(3, 5))
    engine = make_engine(data, loss)
    sums = engine.ask(EvaluateEach(W, loss, False, 1.5))
    matrices = engine.ask(GramEach(W, loss, engine.shift))
    # What engines without kernels do.
    by_rows = engine.part._by_rows(EvaluateEach(W, loss, False, 1.5))
    for k, w in enumerate(W):
        expected = engine.ask(Evaluate(w, loss, False, 1.5))[k]
        np.testing.assert_allclose(sums[k], expected, rtol=1e-12)
        np.testing.assert_allclose(by_rows[k], expected, rtol=1e-10, atol=1e-10)
        surrogate = engine.ask(EvaluateEach(W, loss, True, 1.5))[k]
        expected = engine.ask(Evaluate(w, loss, True, 1.5))[k]
        np.testing.assert_allclose(surrogate, expected, rtol=1e-12)
        gram = engine.ask(Gram(w, loss, None, engine.shift, None))[k]
        np.testing.assert_allclose(matrices[k], gram, rtol=1e-12)
    own = engine.part._by_rows(GramEach(W, loss, engine.shift))
    np.testing.assert_allclose(own, matrices, rtol=1e-10, atol=1e-10)
