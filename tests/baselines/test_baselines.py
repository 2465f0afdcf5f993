"""Baselines against closed forms and independent references."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from problems import (
    coefficients,
    group_losses,
    least_squares,
    linear_groups,
    linear_with_known_minimiser,
    neuron_data,
    realisable,
)
from references import distance, solved
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from counterpoise import Chunks, GroupDRONeuron, relu
from counterpoise.baselines import (
    AverageNeuron,
    ExponentiatedGradientNeuron,
    GroupCVaRNeuron,
    PrimalExtrapolationNeuron,
    RowChiSquareNeuron,
    StochasticMirrorNeuron,
    TiltedNeuron,
)
from counterpoise.baselines._descent_ascent import descent_ascent, drawn_rows
from counterpoise.dual.divergences import ChiSquare
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.algorithm import primal_dual
from counterpoise.solver.coordinates import unscaled
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import AdaptiveSteps, ProblemScale

ALL = [
    AverageNeuron(),
    ExponentiatedGradientNeuron(max_iter=50),
    PrimalExtrapolationNeuron(),
    StochasticMirrorNeuron(max_iter=50),
    TiltedNeuron(),
    TiltedNeuron(level="row"),
    GroupCVaRNeuron(),
    RowChiSquareNeuron(),
]


@pytest.fixture
def data():
    return neuron_data(K=4, n=100, d=5)


@pytest.fixture
def linear():
    return linear_groups()


# -- what all have in common ---------------------------------------------------------------


@pytest.mark.parametrize("model", ALL, ids=str)
def test_attributes_inputs_and_determinism(model, data):
    X, y, g = data
    names = np.array(["north", "east", "south", "west"])[g]
    copies = X.copy(), y.copy(), names.copy()
    if "random_state" in model.get_params():
        model.set_params(random_state=3)
    model.fit(X, y, groups=names)
    for given, copy in zip((X, y, names), copies, strict=True):
        np.testing.assert_array_equal(given, copy)
    assert model.groups_.tolist() == ["east", "north", "south", "west"]
    losses = group_losses(np.maximum(X @ model.coef_ + model.intercept_, 0.0), y, names)
    np.testing.assert_allclose(model.group_risks_, losses, rtol=1e-10)
    assert model.group_weights_.sum() == pytest.approx(1.0)
    assert model.status_.endswith(".")
    assert model.n_iter_ >= 1
    assert model.n_passes_ >= 1
    assert len(model.history_["risk"]) in (model.n_iter_, 0)
    assert np.isfinite(model.risk_)
    proved = isinstance(model, GroupCVaRNeuron) or getattr(model, "level", "") == "group"
    assert hasattr(model, "certificate_") == proved
    first = coefficients(model)
    np.testing.assert_array_equal(coefficients(model.fit(X, y, groups=names)), first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        AverageNeuron(),
        AverageNeuron(gradient="true", start="random", random_state=0),
        ExponentiatedGradientNeuron(max_iter=50, random_state=0),
        PrimalExtrapolationNeuron(nu=0.1),
        TiltedNeuron(),
        GroupCVaRNeuron(),
    ],
    ids=str,
)
def test_rows_in_chunks_and_sparse_rows_give_the_same(model, data):
    X, y, g = data
    base = coefficients(model.fit(X, y, groups=g))
    cuts = [(X[i : i + 90], y[i : i + 90], g[i : i + 90]) for i in range(0, 400, 90)]
    np.testing.assert_allclose(
        coefficients(model.fit(Chunks(lambda: iter(cuts)))), base, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        coefficients(model.fit(sparse.csr_matrix(X), y, groups=g)), base, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (StochasticMirrorNeuron(), "draws single rows.*in memory; got X of type Chunks.*Use Exp"),
        (ExponentiatedGradientNeuron(batch_size=8), "batch_size=8 needs.*Use batch_size=None"),
        (RowChiSquareNeuron(), "in memory; got X of type Chunks. Use GroupDRONeuron"),
        (TiltedNeuron(level="row"), "level='row' needs its rows in memory.*Use level='group'"),
    ],
    ids=str,
)
def test_methods_that_need_memory_say_so(model, message, data):
    def never():
        raise AssertionError("a row was read")
        yield

    with pytest.raises(ValueError, match=message):
        model.fit(Chunks(never))


BAD = [
    (AverageNeuron(gradient="exact"), "gradient must be one of 'surrogate', 'true'; got 'exact'"),
    (AverageNeuron(start="ones"), "start='ones' is not known; use 'zero', 'random' or an array"),
    (AverageNeuron(start=[1.0, 2.0]), r"start must hold 6 coefficients.*got shape \(2,\)"),
    (AverageNeuron(start=[np.nan] * 6), "array of finite coefficients"),
    (AverageNeuron(prior="all"), "prior='all' is not known; use 'rows'"),
    (AverageNeuron(max_iter=0), "max_iter must be a positive integer; got 0"),
    (AverageNeuron(tol=-1.0), "tol must be a number >= 0; got -1.0"),
    (AverageNeuron(fit_intercept="no"), "fit_intercept must be True or False; got 'no'"),
    (AverageNeuron("tanh"), "activation='tanh' is not known"),
    (ExponentiatedGradientNeuron(step_size=0.0), "step_size must be a positive finite number; got"),
    (
        ExponentiatedGradientNeuron(learning_rate="big"),
        "positive finite number or 'auto'; got 'big",
    ),
    (ExponentiatedGradientNeuron(adjustment=-1.0), "adjustment must be a finite number >= 0; got"),
    (ExponentiatedGradientNeuron(batch_size=0), "batch_size must be a positive integer; got 0"),
    (PrimalExtrapolationNeuron(extrapolation="both"), "extrapolation must be one of .*got 'both'"),
    (PrimalExtrapolationNeuron(nu=-1.0), "nu must be >= 0; got -1.0"),
    (PrimalExtrapolationNeuron(divergence="tv"), "divergence='tv' is not known"),
    (StochasticMirrorNeuron(batch_size=1.5), "batch_size must be a positive integer; got 1.5"),
    (StochasticMirrorNeuron(radius=-1.0), "radius must be None or a positive finite number"),
    (
        TiltedNeuron(t=-1.0),
        "t must be a finite number >= 0; got -1.0. A negative tilt would favour",
    ),
    (TiltedNeuron(level="rows"), "level must be one of 'group', 'row'; got 'rows'"),
    (TiltedNeuron(level="row", prior="rows"), "prior='rows' weights groups, but level='row'"),
    (GroupCVaRNeuron(alpha=0.0), r"alpha must be a share of the groups in \(0, 1\]; got 0.0"),
    (RowChiSquareNeuron(nu=0.0), "nu must be positive; got 0, which would fit the worst row alone"),
    (RowChiSquareNeuron(nu="big"), "nu must be a number >= 0 or 'auto'; got 'big'"),
]


@pytest.mark.parametrize(("model", "message"), BAD, ids=[str(m) for m, _ in BAD])
def test_bad_options(model, message, data):
    X, y, g = data
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, groups=g)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    "model",
    [
        AverageNeuron(max_iter=1),
        PrimalExtrapolationNeuron(max_iter=2),
        RowChiSquareNeuron(max_iter=1),
        TiltedNeuron(level="row", max_iter=1),
    ],
    ids=str,
)
def test_stopping_early_is_said(model, data):
    X, y, g = data
    with pytest.warns(
        ConvergenceWarning, match=r"Not converged: reached max_iter=\d.*Raise max_iter"
    ):
        model.fit(X, y, groups=g)


# -- the average ---------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["surrogate", "true"])
@pytest.mark.parametrize("precondition", ["auto", "scale", None])
def test_average_of_a_linear_neuron_is_least_squares(gradient, precondition, linear):
    X, y, g = linear
    X = X + np.arange(4.0)
    model = AverageNeuron(
        "identity", gradient=gradient, precondition=precondition, tol=1e-15, max_iter=20000
    )
    exact = least_squares(X, y)
    np.testing.assert_allclose(coefficients(model.fit(X, y, groups=g)), exact, atol=1e-5)
    sizes = np.random.default_rng(0).uniform(0.1, 3.0, size=len(y))
    weighted = model.fit(X, y, groups=g, sample_weight=sizes)
    np.testing.assert_allclose(coefficients(weighted), least_squares(X, y, sizes), atol=1e-5)


def test_average_over_groups_counts_groups_alike(linear):
    X, y, g = linear
    keep = np.concatenate([np.flatnonzero(g != 0), np.flatnonzero(g == 0)[:10]])
    X, y, g = X[keep], y[keep], g[keep]
    model = AverageNeuron("identity", prior=None, tol=1e-14).fit(X, y, groups=g)
    share = 1.0 / np.bincount(g)[g]
    np.testing.assert_allclose(coefficients(model), least_squares(X, y, share), atol=1e-6)
    np.testing.assert_allclose(model.group_weights_, 0.25)
    assert model.risk_ == pytest.approx(model.group_risks_.mean())


def test_surrogate_steps_recover_a_realisable_neuron():
    X, y, g, w = realisable()
    model = AverageNeuron(fit_intercept=False, tol=1e-14).fit(X, y, groups=g)
    np.testing.assert_allclose(model.coef_, w, atol=1e-5)


def test_surrogate_steps_are_the_textbook_recursion(data):
    X, y, g = data
    L = 2.0 * np.linalg.eigvalsh(X.T @ X / len(y))[-1]
    w, losses = np.zeros(5), []
    for _ in range(6):
        w = w - 2.0 / L * X.T @ (np.maximum(X @ w, 0.0) - y) / len(y)
        losses.append(np.mean((np.maximum(X @ w, 0.0) - y) ** 2))
    model = AverageNeuron(precondition=None, fit_intercept=False, max_iter=6, tol=0.0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y, groups=g)
    np.testing.assert_allclose(model.coef_, w, rtol=1e-9)
    np.testing.assert_allclose(model.history_["risk"], losses, rtol=1e-9)


def test_true_gradients_never_leave_zero(data):
    X, y, g = data
    model = AverageNeuron(gradient="true", fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="Never moved: the gradient at the start is zero"):
        model.fit(X, y, groups=g)
    np.testing.assert_array_equal(model.coef_, 0.0)
    assert model.risk_ == pytest.approx(np.mean(y**2))
    surrogate = AverageNeuron(fit_intercept=False).fit(X, y, groups=g)
    assert surrogate.risk_ < 0.85 * model.risk_


@pytest.mark.parametrize("seed", range(3))
def test_true_gradients_never_raise_the_loss_and_end_lower(seed, data):
    X, y, g = data
    surrogate = AverageNeuron(tol=1e-10).fit(X, y, groups=g)
    model = AverageNeuron(gradient="true", start=coefficients(surrogate), tol=1e-10)
    model.fit(X, y, groups=g)
    assert model.risk_ < surrogate.risk_
    random = AverageNeuron(gradient="true", start="random", random_state=seed).fit(X, y, groups=g)
    assert (np.diff(random.history_["risk"]) <= 0).all()
    assert len(random.history_["risk"]) > 3


def test_average_within_a_ball(data):
    X, y, g = data
    free = AverageNeuron("identity", fit_intercept=False).fit(X, y, groups=g)
    radius = 0.5 * float(np.linalg.norm(free.coef_))
    for gradient in ("surrogate", "true"):
        model = AverageNeuron(
            "identity", gradient=gradient, fit_intercept=False, radius=radius, tol=1e-12
        ).fit(X, y, groups=g)
        w = cp.Variable(5)
        solved(cp.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm(w) <= radius]))
        np.testing.assert_allclose(model.coef_, w.value, atol=1e-4)


# -- exponentiated gradient ----------------------------------------------------------------


def test_exponentiated_gradient_is_the_published_update():
    X, y, g = neuron_data(K=3, n=40, d=3, seed=4)
    keep = np.flatnonzero((g > 0) | (np.arange(len(y)) < 15))
    X, y, g = 3.0 * X[keep] + 1.0, y[keep], g[keep]
    groups = [np.flatnonzero(g == i) for i in range(3)]
    mean = np.mean([X[i].mean(axis=0) for i in groups], axis=0)
    scale = np.sqrt(np.mean([((X[i] - mean) ** 2).mean(axis=0) for i in groups], axis=0))
    Z = np.column_stack([(X - mean) / scale, np.ones(len(y))])
    start = np.array([0.3, -0.2, 0.1, 0.05])
    u, q = np.append(start[:3] * scale, start[3] + start[:3] @ mean), np.full(3, 1 / 3)
    for _ in range(7):
        s = Z @ u
        loss = np.array([np.mean((np.maximum(s[i], 0) - y[i]) ** 2) for i in groups])
        q = q * np.exp(0.5 * (loss + 0.7 / np.sqrt([len(i) for i in groups])))
        q /= q.sum()
        c = 2.0 * (np.maximum(s, 0) - y) * (s > 0)
        u = u - 0.05 * sum(q[k] * Z[i].T @ c[i] / len(i) for k, i in enumerate(groups))
    model = ExponentiatedGradientNeuron(
        step_size=0.5, learning_rate=0.05, adjustment=0.7, start=start, max_iter=7
    ).fit(X, y, groups=g)
    np.testing.assert_allclose(model.coef_, u[:3] / scale, rtol=0, atol=1e-10)
    assert model.intercept_ == pytest.approx(u[3] - (u[:3] / scale) @ mean, abs=1e-10)
    np.testing.assert_allclose(model.group_weights_, q, rtol=0, atol=1e-10)


def test_adjustment_moves_weights_in_closed_form():
    X, y, g = neuron_data(K=3, n=40, d=3)
    keep = np.flatnonzero((g > 0) | (np.arange(len(y)) < 10))
    X, y, g = X[keep], y[keep], g[keep]
    options = dict(step_size=0.2, max_iter=1, random_state=0)
    plainly = ExponentiatedGradientNeuron(**options).fit(X, y, groups=g).group_weights_
    adjusted = ExponentiatedGradientNeuron(adjustment=2.0, **options).fit(X, y, groups=g)
    expected = plainly * np.exp(0.2 * 2.0 / np.sqrt(np.bincount(g)))
    np.testing.assert_allclose(adjusted.group_weights_, expected / expected.sum(), rtol=1e-12)


@pytest.mark.slow
def test_exponentiated_gradient_comes_near_the_worst_group_optimum(linear):
    X, y, g = linear
    best = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=g)
    assert AverageNeuron("identity").fit(X, y, groups=g).group_risks_.max() > 1.05 * best.risk_
    full = ExponentiatedGradientNeuron("identity", step_size=0.05, max_iter=3000, random_state=0)
    assert best.risk_ * (1 - 1e-9) <= full.fit(X, y, groups=g).risk_ < 1.005 * best.risk_
    drawn = ExponentiatedGradientNeuron(
        "identity", step_size=0.01, learning_rate=0.01, batch_size=40, max_iter=3000, random_state=0
    )
    assert drawn.fit(X, y, groups=g).risk_ < 1.1 * best.risk_


def test_groups_absent_from_a_batch_have_loss_zero():
    """One row a batch: its group's weight rises, the others only fall by normalisation."""
    X, y, g = neuron_data(K=3, n=40, d=3)
    model = ExponentiatedGradientNeuron(batch_size=1, step_size=0.3, max_iter=40, random_state=1)
    weights = model.fit(X, y, groups=g).history_["weights"]
    before = np.vstack([np.full(3, 1 / 3), weights[:-1]])
    ratio = weights / before
    absent = np.isclose(ratio, ratio.min(axis=1, keepdims=True), rtol=1e-12)
    assert (absent.sum(axis=1) >= 2).all()
    rise = np.log(ratio.max(axis=1) / ratio.min(axis=1)) / 0.3
    np.testing.assert_allclose(rise, model.history_["worst"], rtol=1e-9, atol=1e-12)


def test_divergence_is_said_and_the_result_is_finite(data):
    X, y, g = data
    model = ExponentiatedGradientNeuron("identity", learning_rate=50.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"Diverged after \d+ iterations; lower learning"):
        model.fit(X, y, groups=g)
    assert np.isfinite(coefficients(model)).all()


# -- primal extrapolation ------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 0.1, "auto"])
def test_dual_extrapolation_makes_the_iterates_of_the_solver(activation, divergence, nu):
    X, y, g = neuron_data(K=4, n=100, d=5, activation=activation)
    options = dict(activation=activation, divergence=divergence, nu=nu, tol=1e-3)
    ours = GroupDRONeuron(polish=False, **options).fit(X, y, groups=g)
    model = PrimalExtrapolationNeuron(extrapolation="dual", **options).fit(X, y, groups=g)
    for name in ours.history_:
        np.testing.assert_array_equal(model.history_[name], ours.history_[name])
    np.testing.assert_array_equal(coefficients(model), coefficients(ours))
    assert model.nu_ == ours.nu_
    assert model.risk_ == ours.risk_


class ConstantStep(AdaptiveSteps):
    def step(self, scale, c1, nu0, now):
        return 0.05


@pytest.mark.parametrize("extrapolation", ["primal", "none"])
def test_extrapolation_is_the_recursion(extrapolation, data):
    X, y, g = data
    nu, nu0, c1, a, K = 0.1, 0.2, 0.3, 0.05, 4
    prior = np.full(K, 1 / K)
    engine = make_engine(GroupedData.build(X, y, g, intercept=False), relu())
    problem = Problem(
        engine, unscaled(5, False, None), Objective(ChiSquare(), nu, prior, np.zeros(K))
    )
    scale = ProblemScale(1.0, K, 1.0, nu, 1.0, 1.0, 1.0, 1.0)
    run = primal_dual(
        problem, ConstantStep(c1=c1, nu0=nu0), scale, start=np.zeros(5), max_iter=12, tol=0.0,
        extrapolation=extrapolation,
    )  # fmt: skip

    def look(w):
        r = np.maximum(X @ w, 0.0) - y
        loss = np.array([np.mean(r[g == i] ** 2) for i in range(K)])
        return loss, np.array([2 * X[g == i].T @ r[g == i] / np.sum(g == i) for i in range(K)])

    w, lam, A = np.zeros(5), prior, 0.0
    gradient = old = lam @ look(w)[1]
    for _ in range(12):
        # the first step has nothing to extrapolate from: a_0 = 0
        g_bar = gradient + (gradient - old) * (extrapolation == "primal" and A > 0)
        w = w - a / (1 + c1 * (A + a) / 2) * g_bar
        loss, V = look(w)
        q = cp.Variable(K)
        value = a * (q @ loss - nu * distance("chi2", q, prior, prior))
        value -= (nu0 + nu * A) * distance("chi2", q, lam, prior)
        solved(cp.Problem(cp.Maximize(value), [q >= 0, cp.sum(q) == 1]))
        lam, A = q.value, A + a
        old, gradient = gradient, lam @ V
    np.testing.assert_allclose(run.u, w, atol=1e-6)
    np.testing.assert_allclose(run.dual.weights, lam, atol=1e-6)


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 0.1])
def test_all_extrapolations_have_one_limit(divergence, nu, linear):
    X, y, g = linear
    options = dict(activation="identity", divergence=divergence, nu=nu)
    best = GroupDRONeuron(tol=1e-9, **options).fit(X, y, groups=g).risk_
    for extrapolation in ("primal", "dual", "none"):
        # tol=0: for nu = 0 weights that circle may pause the progress of the risk
        model = PrimalExtrapolationNeuron(
            extrapolation=extrapolation, tol=0.0, max_iter=500, **options
        )
        with pytest.warns(ConvergenceWarning, match="Not converged: reached max_iter=500"):
            model.fit(X, y, groups=g)
        assert model.risk_ == pytest.approx(best, rel=1e-6)
        slack = model.history_["slack"]
        assert np.isnan(slack).all() == (extrapolation != "dual")


# -- stochastic mirror descent-ascent ------------------------------------------------------


def test_drawn_rows_match_the_engine_when_all_are_drawn_often():
    X, y, g = neuron_data(K=3, n=30, d=3)
    sizes = np.random.default_rng(1).uniform(0.2, 2.0, size=len(y))
    data = GroupedData.build(X, y, g, sizes)
    engine = make_engine(data, relu())
    w, q = np.array([0.5, -0.2, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    codes = np.repeat(np.arange(3), 200_000)
    rng = np.random.RandomState(0)
    look = drawn_rows(data, engine.loss, unscaled(3, True, None), iter([codes]), rng)
    losses, gradient = look(w)
    exact = engine.evaluate(w, surrogate=False)
    np.testing.assert_allclose(losses, exact.loss_K, rtol=0.02)
    np.testing.assert_allclose(gradient(q), q @ exact.grad_KD, atol=0.02)


def test_simultaneous_steps_and_averages_are_the_recursion():
    """On a bilinear-quadratic toy: two losses, written out a second time."""

    def look(u):
        losses = np.array([(u[0] - 1.0) ** 2, (u[0] + 2.0) ** 2 + u[1] ** 2])
        slopes = 2.0 * np.array([[u[0] - 1.0, 0.0], [u[0] + 2.0, u[1]]])
        return losses, lambda q: q @ slopes

    path = descent_ascent(
        look, np.array([1.0, 1.0]), np.array([0.5, 0.5]), rate=0.1, step=0.3, max_iter=10,
        decay=True, simultaneous=True,
    )  # fmt: skip
    u, q, seen = np.array([1.0, 1.0]), np.array([0.5, 0.5]), []
    for t in range(1, 11):
        seen.append((t**-0.5, u, q))
        losses, gradient = look(u)
        u, q = u - 0.1 * t**-0.5 * gradient(q), q * np.exp(0.3 * t**-0.5 * losses)
        q = q / q.sum()
    share, us, qs = zip(*seen[5:], strict=True)
    np.testing.assert_allclose(path.u, u, rtol=1e-12)
    np.testing.assert_allclose(path.mean_u, np.average(us, axis=0, weights=share), rtol=1e-12)
    np.testing.assert_allclose(path.mean_weights, np.average(qs, axis=0, weights=share), rtol=1e-12)


@pytest.mark.slow
def test_stochastic_mirror_comes_near_the_worst_group_optimum(linear):
    X, y, g = linear
    best = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=g)
    found = [
        StochasticMirrorNeuron("identity", batch_size=10, max_iter=2000, random_state=s)
        .fit(X, y, groups=g)
        .risk_
        for s in range(3)
    ]
    assert np.mean(found) < 1.03 * best.risk_
    assert len(set(found)) == 3


@pytest.mark.slow
def test_stochastic_mirror_with_one_group_is_least_squares():
    X, y, _, _, levels = linear_with_known_minimiser(K=1, n=200, d=3)
    model = StochasticMirrorNeuron("identity", fit_intercept=False, random_state=0).fit(X, y)
    assert model.risk_ == pytest.approx(levels[0], rel=0.01)
    np.testing.assert_array_equal(model.group_weights_, [1.0])


def test_stochastic_mirror_keeps_to_the_ball(data):
    X, y, g = data
    model = StochasticMirrorNeuron(radius=0.3, max_iter=300, random_state=0).fit(X, y, groups=g)
    assert np.linalg.norm(model.coef_) <= 0.3 * (1 + 1e-12)
