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


def _losses(X, y, groups, tol=1e-9, **options):
    solver = open_solver(X, y, groups, options=FitOptions(**options))
    with running(solver):
        setup = solver.set_up(np.inf)
        start = np.zeros(setup.problem.size)
        if options.get("activation") == "relu":  # zero is stationary for a ReLU
            start = setup.problem.coordinates.from_user(solver.average()[0])
        U, found = fit_each_alone(setup.problem, start, tol=tol, floor=setup.floor)
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


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "softplus"])
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
    sums = engine.ask(EvaluateEach(W, loss, 1.5))
    matrices = engine.ask(GramEach(W, loss, engine.shift))
    by_rows = engine.part._by_rows(EvaluateEach(W, loss, 1.5))  # what engines without kernels do
    for k, w in enumerate(W):
        expected = engine.ask(Evaluate(w, loss, False, 1.5))[k]
        np.testing.assert_allclose(sums[k], expected, rtol=1e-12)
        np.testing.assert_allclose(by_rows[k], expected, rtol=1e-10, atol=1e-10)
        gram = engine.ask(Gram(w, loss, None, engine.shift, None))[k]
        np.testing.assert_allclose(matrices[k], gram, rtol=1e-12)
    own = engine.part._by_rows(GramEach(W, loss, engine.shift))
    np.testing.assert_allclose(own, matrices, rtol=1e-10, atol=1e-10)
