"""Baselines that classify, against scikit-learn, SciPy and cvxpy."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from references import risk_of, solved
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from counterpoise import Chunks, GroupDROClassifier
from counterpoise.baselines import (
    AverageClassifier,
    ExponentiatedGradientClassifier,
    RowChiSquareClassifier,
    RowCVaRClassifier,
    SubsampledClassifier,
    TiltedClassifier,
)
from counterpoise.baselines._descent_ascent import drawn_rows
from counterpoise.baselines._rows import RowProblem
from counterpoise.dual.divergences import KL
from counterpoise.dual.objective import Objective
from counterpoise.losses import LogLoss, Multinomial
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.coordinates import unscaled
from counterpoise.solver.ridge import Ridge
from counterpoise.solver.stacked import Stacked

ALL = [
    AverageClassifier(),
    AverageClassifier(prior=None),
    SubsampledClassifier(n_draws=2),
    ExponentiatedGradientClassifier(max_iter=50),
    ExponentiatedGradientClassifier(max_iter=50, batch_size=16),
    TiltedClassifier(),
    TiltedClassifier(level="row"),
    RowCVaRClassifier(),
    RowChiSquareClassifier(),
]


def class_data(sizes=(120, 60, 90), d=3, n_classes=2, seed=0):
    """Groups of unequal size with their own slopes; labels are drawn, so no group is separable."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(groups), d)) * np.geomspace(1.0, 5.0, d)
    common = rng.normal(size=(n_classes, d)) / np.geomspace(1.0, 5.0, d)
    own = common + 0.5 * rng.normal(size=(len(sizes), n_classes, d)) / np.geomspace(1.0, 5.0, d)
    scores = np.einsum("nd,ncd->nc", X, own[groups]) + rng.gumbel(size=(len(groups), n_classes))
    return X, scores.argmax(axis=1), groups


def log_losses(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y])


def parameters(model):
    """Coefficients with the intercept last, for two classes."""
    return np.append(model.coef_[0], model.intercept_)


@pytest.fixture
def data():
    return class_data()


# -- what all have in common ---------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", ALL, ids=str)
def test_attributes_labels_and_determinism(model, n_classes):
    X, codes, g = class_data(n_classes=n_classes)
    y = np.array(["no", "perhaps", "yes"])[codes]
    names = np.array(["south", "north", "east"])[g]
    copies = X.copy(), y.copy(), names.copy()
    if "random_state" in model.get_params():
        model.set_params(random_state=3)
    model.fit(X, y, groups=names)
    for given, copy in zip((X, y, names), copies, strict=True):
        np.testing.assert_array_equal(given, copy)
    assert model.classes_.tolist() == ["no", "perhaps", "yes"][:n_classes]
    assert model.coef_.shape == (1 if n_classes == 2 else 3, 3)
    assert model.groups_.tolist() == ["east", "north", "south"]
    losses = log_losses(model, X, codes)
    means = [losses[names == name].mean() for name in model.groups_]
    np.testing.assert_allclose(model.group_risks_, means, rtol=1e-9)
    assert model.group_weights_.sum() == pytest.approx(1.0)
    assert model.status_.endswith(".")
    assert model.n_iter_ >= 1
    assert model.score(X, y) > 1.2 / n_classes
    exact = isinstance(model, AverageClassifier) or getattr(model, "level", "") == "group"
    assert hasattr(model, "certificate_") == exact
    first = model.coef_.copy()
    np.testing.assert_array_equal(model.fit(X, y, groups=names).coef_, first)


@pytest.mark.parametrize("model", ALL, ids=str)
def test_plain_twin_is_logistic_regression(model, data):
    X, y, g = data
    twin = model.plain_twin().fit(X, y, groups=g)
    best = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(parameters(twin), parameters(best), atol=2e-3)


@pytest.mark.parametrize(
    "model",
    [
        AverageClassifier(prior=None),
        ExponentiatedGradientClassifier(max_iter=50, random_state=0),
        TiltedClassifier(t=3.0),
    ],
    ids=str,
)
def test_rows_in_chunks_give_the_same(model, data):
    X, y, g = data
    base = parameters(model.fit(X, y, groups=g))
    cuts = [(X[i : i + 70], y[i : i + 70], g[i : i + 70]) for i in range(0, len(y), 70)]
    again = parameters(model.fit(Chunks(lambda: iter(cuts))))
    np.testing.assert_allclose(again, base, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", ALL, ids=str)
def test_sparse_rows_give_the_same(model, data):
    X, y, g = data
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    base = parameters(model.fit(X, y, groups=g))
    again = parameters(model.fit(sparse.csr_matrix(X), y, groups=g))
    np.testing.assert_allclose(again, base, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SubsampledClassifier(), r"Use AverageClassifier\(prior=None\)"),
        (ExponentiatedGradientClassifier(batch_size=4), "Use batch_size=None"),
        (TiltedClassifier(level="row"), "Use level='group'"),
        (RowCVaRClassifier(), r"Use GroupDROClassifier\(divergence=CVaR\(0.5\)\)"),
        (RowChiSquareClassifier(), r"Use GroupDROClassifier\(divergence='chi2'\)"),
    ],
    ids=str,
)
def test_methods_that_need_memory_say_so(model, message, data):
    X, y, g = data
    with pytest.raises(ValueError, match=message):
        model.fit(Chunks(lambda: iter([(X, y, g)])))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SubsampledClassifier(n_draws=0), "n_draws must be a positive integer; got 0"),
        (RowCVaRClassifier(share=0.0), r"share must be a share of the rows in \(0, 1\]; got 0.0"),
        (RowChiSquareClassifier(nu=0), r"or GroupDROClassifier\(nu=0\) for the worst group"),
        (TiltedClassifier(t=-1.0), "t must be a finite number >= 0; got -1.0"),
        (AverageClassifier(alpha=-1.0), "alpha must be a finite number >= 0; got -1.0"),
        (AverageClassifier("poisson"), "loss='poisson' is not a loss of classes"),
    ],
    ids=str,
)
def test_invalid_options(model, message, data):
    X, y, g = data
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, groups=g)


def test_squared_hinge(data):
    X, y, g = data
    model = AverageClassifier("squared_hinge", tol=1e-10).fit(X, y, groups=g)
    Z, sign = np.column_stack([X, np.ones(len(y))]), 2.0 * y - 1.0

    def mean(w):
        short = np.maximum(1.0 - sign * (Z @ w), 0.0)
        return np.mean(short**2), -2.0 * (sign * short) @ Z / len(y)

    best = minimize(mean, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert model.risk_ == pytest.approx(best.fun, rel=1e-7)
    np.testing.assert_allclose(parameters(model), best.x, atol=1e-4)


# -- averages ------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("balanced", [False, True])
def test_average_and_balanced_groups_are_weighted_logistic_regression(balanced, weighted, data):
    X, y, g = data
    sizes = np.random.default_rng(1).uniform(0.2, 2.0, size=len(y)) if weighted else np.ones(len(y))
    share = sizes / np.bincount(g, weights=sizes)[g] if balanced else sizes
    best = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y, sample_weight=share)
    model = AverageClassifier(prior=None if balanced else "rows", tol=1e-9)
    model.fit(X, y, groups=g, sample_weight=sizes if weighted else None)
    np.testing.assert_allclose(parameters(model), parameters(best), atol=1e-4)
    assert model.risk_ == pytest.approx(np.average(log_losses(best, X, y), weights=share))


def test_ridge_is_on_standardised_features(data):
    X, y, g = data
    alpha = 0.3
    model = AverageClassifier(alpha=alpha, tol=1e-10).fit(X, y, groups=g)
    spread = X.std(axis=0)
    # scikit-learn minimises C sum(loss) + |w|^2 / 2.
    best = LogisticRegression(C=1.0 / (alpha * len(y)), tol=1e-10).fit(X / spread, y)
    np.testing.assert_allclose(model.coef_, best.coef_ / spread, atol=1e-5)


def test_subsamples_have_equal_groups():
    # Constant rows, so that only shares of labels matter: one for a fit of equal groups.
    X, g = np.zeros((30, 1)), np.repeat([0, 1], [24, 6])
    y = np.append(np.zeros(24), np.ones(6)).astype(int)
    model = SubsampledClassifier(random_state=0).fit(X, y, groups=g)
    assert model.n_drawn_ == 6
    np.testing.assert_allclose(model.predict_proba(X)[0], [0.5, 0.5], atol=1e-6)
    plain = SubsampledClassifier().fit(X, y)
    assert plain.n_drawn_ == 30
    np.testing.assert_allclose(plain.predict_proba(X)[0], [0.8, 0.2], atol=1e-6)


def test_a_subsample_is_a_fit_to_some_rows(data):
    X, y, g = data
    model = SubsampledClassifier(random_state=0).fit(X, y, groups=g)
    # The smallest group is used whole; rows of others change the fit only if drawn.
    assert model.n_drawn_ == 60
    moved = X.copy()
    moved[g == 1] += 1.0
    after = parameters(SubsampledClassifier(random_state=0).fit(moved, y, groups=g))
    assert not np.allclose(after, parameters(model))
    one = parameters(SubsampledClassifier(random_state=5).fit(X, y, groups=g))
    two = SubsampledClassifier(n_draws=40, random_state=5).fit(X, y, groups=g)
    best = parameters(AverageClassifier(prior=None).fit(X, y, groups=g))
    assert np.linalg.norm(parameters(two) - best) < np.linalg.norm(one - best)


def test_rows_without_weight_are_not_drawn(data):
    X, y, g = data
    weights = np.ones(len(y))
    weights[:80] = 0.0  # of the first group, which then has 40 rows
    model = SubsampledClassifier(random_state=0).fit(X, y, groups=g, sample_weight=weights)
    assert model.n_drawn_ == 40


def test_a_subsample_of_one_class_is_refused():
    X, g = np.arange(12.0)[:, None], np.repeat([0, 1], [11, 1])
    y = np.append(1, np.zeros(11))
    with pytest.raises(ValueError, match=r"groups=1 has 1 rows.*merge small groups"):
        SubsampledClassifier(random_state=0).fit(X, y, groups=g)


# -- the worst group -----------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_exponentiated_gradient_comes_close_to_the_worst_group_optimum(n_classes, alpha):
    X, y, g = class_data(n_classes=n_classes)
    best = GroupDROClassifier(nu=0.0, alpha=alpha).fit(X, y, groups=g)
    model = ExponentiatedGradientClassifier(
        alpha=alpha, step_size=0.3, max_iter=1500, random_state=0
    ).fit(X, y, groups=g)
    assert best.risk_ * (1 - 1e-6) <= model.risk_ < best.risk_ * (1 + 2e-3)
    drawn = ExponentiatedGradientClassifier(
        alpha=alpha, step_size=0.01, batch_size=32, learning_rate=0.02, max_iter=3000,
        random_state=0,
    ).fit(X, y, groups=g)  # fmt: skip
    assert best.risk_ * (1 - 1e-6) <= drawn.risk_ < best.risk_ * 1.05


def test_exponentiated_gradient_starts_where_it_is_told(data):
    X, y, g = data
    for start, shape in ((np.array([0.1, -0.2, 0.3, 0.4]), (4,)), (np.zeros(3), (3,))):
        model = ExponentiatedGradientClassifier(
            start=start, learning_rate=1e-12, max_iter=1, alpha=0.0
        )
        if shape == (3,):
            with pytest.raises(ValueError, match="start must hold 4 coefficients"):
                model.fit(X, y, groups=g)
        else:
            np.testing.assert_allclose(parameters(model.fit(X, y, groups=g)), start, atol=1e-9)


@pytest.mark.parametrize("loss", [LogLoss(), Multinomial(3)], ids=str)
def test_drawn_rows_match_the_engine_when_all_are_drawn_often(loss):
    X, y, g = class_data(sizes=(3, 4), n_classes=max(loss.n_scores, 2))
    data = GroupedData.build(X, y.astype(float), g, intercept=True)
    engine = make_engine(data, loss)
    each = unscaled(3, True, None)
    coordinates = each if loss.n_scores == 1 else Stacked(each, loss.n_scores)
    ridge = Ridge(0.2, np.ones(3), np.array([1.0, 1.0, 1.0, 0.0]), max(1, loss.n_scores - 1))
    rng = np.random.RandomState(0)
    look = drawn_rows(data, loss, coordinates, iter([rng.randint(2, size=200_000)]), rng, ridge)
    u, weights = 0.3 * rng.normal(size=coordinates.size), np.array([0.3, 0.7])
    losses, gradient = look(u)
    loss_K, grad = engine.evaluate(coordinates.to_user(u), surrogate=False)
    np.testing.assert_allclose(losses, loss_K, rtol=0.02)
    expected = weights @ coordinates.pull(grad) + ridge.pull(u)
    np.testing.assert_allclose(gradient(weights), expected, atol=0.05)


# -- risks over groups and rows ------------------------------------------------------------


def row_losses(X, y, v, b):
    """Log losses of rows as expressions of cvxpy's."""
    z = X @ v + b
    return cp.logistic(z) - cp.multiply(y, z)


@pytest.mark.parametrize("t", [0.5, 20.0])
def test_tilted_over_groups(t, data):
    X, y, g = data
    model = TiltedClassifier(t=t, alpha=0.0).fit(X, y, groups=g)
    rows = row_losses(X, y, cp.Variable(3), cp.Variable())
    means = cp.hstack([cp.sum(rows[np.flatnonzero(g == k)]) / np.sum(g == k) for k in range(3)])
    best = solved(cp.Problem(cp.Minimize(risk_of(means, nu=1 / t))))
    assert model.risk_ == pytest.approx(best, rel=1e-6)
    assert model.nu_ == pytest.approx(1 / t)


@pytest.mark.parametrize("t", [0.5, 3.0])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_tilted_over_rows(t, alpha, data):
    X, y, g = data
    Z, ridge = np.column_stack([X, np.ones(len(y))]), alpha * np.append(X.var(axis=0), 0.0)

    def tilted(w):
        z = Z @ w
        loss = np.logaddexp(0.0, z) - y * z
        share = np.exp(t * loss - logsumexp(t * loss))
        value = (logsumexp(t * loss) - np.log(len(y))) / t + 0.5 * w @ (ridge * w)
        return value, (share * (expit(z) - y)) @ Z + ridge * w

    best = minimize(tilted, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})
    model = TiltedClassifier(t=t, level="row", alpha=alpha, tol=1e-10).fit(X, y, groups=g)
    assert model.risk_ == pytest.approx(best.fun, rel=1e-8)
    np.testing.assert_allclose(parameters(model), best.x, atol=1e-3)


def separated(n=200, seed=0):
    """Labels of little noise, so that the worst rows do not end at even odds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (2.0 * X[:, 0] - X[:, 1] + 0.5 + 0.4 * rng.logistic(size=n) > 0).astype(int)
    return X, y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_cvar_over_rows(share, weighted):
    X, y = separated()
    sizes = np.random.default_rng(1).uniform(0.2, 2.0, size=len(y)) if weighted else np.ones(len(y))
    p = sizes / sizes.sum()
    model = RowCVaRClassifier(share=share, alpha=0.0, tol=1e-8)
    model.fit(X, y, sample_weight=sizes if weighted else None)
    rows, level = row_losses(X, y, cp.Variable(3), cp.Variable()), cp.Variable()
    best = solved(cp.Problem(cp.Minimize(level + p @ cp.pos(rows - level) / share)))
    assert best * (1 - 1e-6) <= model.risk_ <= best * (1 + 2e-4)
    losses = log_losses(model, X, y)
    order = np.argsort(-losses)
    left = np.clip(share - np.append(0.0, np.cumsum(p[order])[:-1]), 0.0, p[order])
    assert model.risk_ == pytest.approx(left @ losses[order] / share)


def test_cvar_of_all_rows_is_the_average(data):
    X, y, g = data
    model = RowCVaRClassifier(share=1.0, tol=1e-10).fit(X, y, groups=g)
    average = AverageClassifier(tol=1e-10).fit(X, y)
    np.testing.assert_allclose(parameters(model), parameters(average), atol=1e-4)


@pytest.mark.parametrize("nu", [0.05, 2.0])
def test_chi_square_over_rows(nu):
    X, y = separated(n=80)
    model = RowChiSquareClassifier(nu=nu, alpha=0.0, tol=1e-10).fit(X, y)
    rows = row_losses(X, y, cp.Variable(3), cp.Variable())
    value = risk_of(rows, nu=nu, divergence="chi2", prior=np.full(80, 1 / 80))
    assert model.risk_ == pytest.approx(solved(cp.Problem(cp.Minimize(value))), rel=1e-5)


@pytest.mark.parametrize("loss", [LogLoss(), Multinomial(3)], ids=str)
def test_gradients_over_rows(loss):
    X, y, g = class_data(sizes=(8, 7), n_classes=max(loss.n_scores, 2))
    data = GroupedData.build(X, y.astype(float), g, intercept=True)
    each = unscaled(3, True, None)
    coordinates = each if loss.n_scores == 1 else Stacked(each, loss.n_scores)
    ridge = Ridge(0.2, np.ones(3), np.array([1.0, 1.0, 1.0, 0.0]), max(1, loss.n_scores - 1))
    objective = Objective(KL(), 0.5, np.full(15, 1 / 15), np.zeros(15))
    problem = RowProblem(data, loss, coordinates, objective, ridge)
    u = 0.2 * np.random.default_rng(0).normal(size=coordinates.size)
    step = 1e-6 * np.eye(len(u))
    numeric = [
        (problem.risk_and_gradient(u + e)[0] - problem.risk_and_gradient(u - e)[0]) / 2e-6
        for e in step
    ]
    np.testing.assert_allclose(problem.risk_and_gradient(u)[1], numeric, atol=1e-7)


@pytest.mark.parametrize(
    "model",
    [
        TiltedClassifier("squared_hinge", level="row", alpha=1.0),
        RowCVaRClassifier(alpha=1.0),
        RowChiSquareClassifier(alpha=1.0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_whole_weights_are_repeated_rows(model):
    rng = np.random.default_rng(7)
    X, times = rng.normal(size=(60, 3)), rng.integers(1, 4, 60)
    y = X[:, 0] + rng.normal(size=60) > 0
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
