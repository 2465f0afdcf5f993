"""Features of any condition: the fit reaches what the rows, as stored, allow.

The reference shares nothing with the library: an orthonormal basis of the columns in sixty
digits, then the dual of the min-max in those coordinates, closed by a bracket.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize, root

from counterpoise import Chunks, solve
from counterpoise.activations import identity
from counterpoise.rows.backends import backend_of
from counterpoise.rows.engines.torch import TorchEngine
from counterpoise.solver.frame import Frame

EPS = np.finfo(float).eps
K = 3
INTERCEPT = pytest.mark.parametrize("intercept", [True, False])


def problem(cond, mean=0.0, seed=0, n=60, d=5):
    """Three groups with slopes of their own; labels depend on the smallest direction as on others.

    ``X`` has the condition number ``cond`` about its ``mean``.
    """
    rng = np.random.default_rng(seed)
    Z = np.linalg.qr(rng.normal(size=(K * n, d)))[0] * np.sqrt(K * n)
    V = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = (Z * np.geomspace(1.0, 1.0 / cond, d)) @ V.T + mean
    g = np.repeat(np.arange(K), n)
    slopes = rng.normal(size=d) + 0.4 * rng.normal(size=(K, d))
    noise = rng.uniform(0.2, 1.0, K)[g] * rng.normal(size=K * n)
    return X, np.einsum("nj,nj->n", Z, slopes[g]) + noise + 0.7, g


def orthonormal(X, intercept):
    """A basis of the columns, as stored to the bit, by Gram-Schmidt in sixty digits."""
    columns = [np.ones(len(X))] * intercept + list(X.T)
    with mpmath.workdps(60):
        basis = []
        for column in columns:
            c = np.array([mpmath.mpf(float(v)) for v in column], dtype=object)
            for q in basis:
                c = c - q * (q @ c)
            basis.append(c / mpmath.sqrt(c @ c))
        return np.array([[float(v) for v in q] for q in basis]).T * np.sqrt(len(X))


def risk_of(losses, nu):
    top = losses.max()
    return top if nu == 0 else top + nu * np.log(np.mean(np.exp((losses - top) / nu)))


def reference(X, y, g, nu, intercept):
    """The least risk, to twelve digits: maximise the dual, then solve its optimality condition."""
    Q = orthonormal(X, intercept)
    parts = [(Q[g == i], y[g == i]) for i in range(K)]
    grams = np.array([a.T @ a / len(a) for a, _ in parts])
    pulls = np.array([a.T @ b / len(a) for a, b in parts])

    def losses(weights):
        """Of the point that minimises their weighted mean."""
        z = np.linalg.solve(np.tensordot(weights, grams, 1), weights @ pulls)
        return np.array([np.mean((a @ z - b) ** 2) for a, b in parts])

    def dual(weights):
        loss = losses(weights)
        logs = np.log(np.maximum(weights, 1e-300) * K)
        return weights @ (loss - nu * logs), loss - nu * (logs + 1.0)

    found = minimize(
        lambda w: tuple(-v for v in dual(w)), np.full(K, 1 / K), jac=True, method="SLSQP",
        bounds=[(1e-12, 1.0)] * K, options={"ftol": 1e-14, "maxiter": 300},
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(K)},
    )  # fmt: skip
    weights = found.x / found.x.sum()
    active = np.flatnonzero(weights > 1e-6)

    def whole(free):
        out = np.zeros(K)
        out[active] = np.append(free, 1.0 - free.sum())
        return out

    def uneven(free):
        w = whole(free)
        level = losses(w)[active] - (nu * np.log(w[active]) if nu else 0.0)
        return level[:-1] - level[-1]

    if len(active) > 1:
        weights = whole(root(uneven, weights[active[:-1]], tol=1e-14).x)
    above, below = risk_of(losses(weights), nu), dual(weights)[0]
    assert 0 <= above - below + 1e-13 * above <= 1e-11 * above, "the reference proves itself"
    return above


def exact_risk(X, y, g, found):
    """The risk of the coefficients returned, in sixty digits."""
    with mpmath.workdps(60):
        numbers = [[mpmath.mpf(float(v)) for v in row] for row in X]
        coef = [mpmath.mpf(float(v)) for v in found.coef]
        bias = mpmath.mpf(float(found.intercept))
        squares = np.array(
            [
                float((mpmath.fdot(row, coef) + bias - mpmath.mpf(float(v))) ** 2)
                for row, v in zip(numbers, y, strict=True)
            ]
        )
    return risk_of(np.array([squares[g == i].mean() for i in range(K)]), found.nu)


# -- condition numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("exponent", range(2, 10))
@pytest.mark.parametrize("nu", [0.0, 0.1])
@INTERCEPT
def test_the_risk_is_the_least_whatever_the_condition(exponent, nu, intercept):
    cond = 10.0**exponent
    X, y, g = problem(cond)
    assert np.linalg.cond(X) == pytest.approx(cond, rel=1e-3)
    found = solve(X, y, g, nu=nu, activation="identity", fit_intercept=intercept)
    least = reference(X, y, g, nu, intercept)
    # Scores X @ coef themselves are rounded by about EPS * cond.
    tol = max(1e-8, 0.1 * EPS * cond)
    assert found.risk == pytest.approx(least, rel=tol)
    assert least * (1 - 1e-11) <= exact_risk(X, y, g, found) <= least * (1 + tol)
    assert found.converged
    assert found.certificate.dropped == 0


@pytest.mark.parametrize("exponent", [0.5, 2, 4, 5, 6])
@pytest.mark.parametrize("nu", [0.0, 0.1])
@INTERCEPT
def test_a_large_common_mean_is_no_obstacle(exponent, nu, intercept):
    cond, mean = 10.0**exponent, 1e4
    X, y, g = problem(cond, mean, seed=1)
    found = solve(X, y, g, nu=nu, activation="identity", fit_intercept=intercept)
    least = reference(X, y, g, nu, intercept)
    tol = max(1e-8, 0.2 * EPS * cond * mean)
    assert found.risk == pytest.approx(least, rel=tol)
    assert least * (1 - 1e-11) <= exact_risk(X, y, g, found) <= least * (1 + tol)
    assert found.converged
    assert found.certificate.dropped == 0


@pytest.mark.parametrize("seed", range(2, 6))
def test_other_draws_at_a_condition_of_ten_million(seed):
    X, y, g = problem(1e7, seed=seed, d=7)
    found = solve(X, y, g, nu=0.0, activation="identity")
    assert found.risk == pytest.approx(reference(X, y, g, 0.0, True), rel=1e-8)


def test_columns_of_very_different_units_are_not_ill_conditioned():
    X, y, g = problem(10.0)
    units = np.array([1e-12, 1e9, 1.0, 1e-5, 1e14])
    base = solve(X, y, g, nu=0.0, activation="identity")
    found = solve(X * units, y, g, nu=0.0, activation="identity")
    assert found.risk == pytest.approx(base.risk, rel=1e-9)
    np.testing.assert_allclose(found.coef * units, base.coef, rtol=1e-5)
    assert found.certificate.dropped == 0


@pytest.mark.parametrize("nu", ["auto", 0.0])
def test_auto_and_a_ball_at_a_high_condition(nu):
    """A ball that excludes the small directions: their coefficients would be enormous."""
    X, y, g = problem(1e6)
    free = solve(X, y, g, nu=nu, activation="identity")
    found = solve(X, y, g, nu=nu, activation="identity", radius=100.0)
    assert np.linalg.norm(free.coef) > 1e4
    assert np.linalg.norm(found.coef) <= 100.0 * (1 + 1e-9)
    assert found.risk > free.risk


def test_relu_and_softplus_keep_what_the_condition_leaves():
    """Scores, not coefficients, are what is fitted: whitened features give the same risk."""
    X, y, g = problem(1e7, seed=3)
    Q = orthonormal(X, True)[:, 1:]
    for activation in ("relu", "softplus"):
        found = solve(X, y, g, nu=0.1, activation=activation, tol=1e-9)
        same = solve(Q, y, g, nu=0.1, activation=activation, tol=1e-9)
        assert found.risk == pytest.approx(same.risk, rel=1e-3)


# -- no information, no coefficient --------------------------------------------------------


def beside(found, X):
    """The share of the coefficients that changes no prediction (about the mean)."""
    values, rows = np.linalg.svd(X - X.mean(axis=0))[1:]
    null = rows[np.append(values, np.zeros(len(rows) - len(values))) < 1e-10 * values[0]]
    return np.linalg.norm(null @ found.coef) / np.linalg.norm(found.coef)


TRAPS = {
    "duplicate": lambda X: np.c_[X, X[:, 1]],
    "scaled duplicate": lambda X: np.c_[X, -30.0 * X[:, 1]],
    "duplicate up to rounding": lambda X: np.c_[X, X[:, 1] / 3.0 * 3.0 * (1.0 + EPS)],
    "sum of others": lambda X: np.c_[X, X[:, 0] + X[:, 2]],
    "all columns twice": lambda X: np.c_[X, X],
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("cond", [3.0, 1e3, 1e5])
def test_repeated_information_is_dropped(trap, cond):
    X, y, g = problem(cond)
    trapped = TRAPS[trap](X)
    found = solve(trapped, y, g, nu=0.0, activation="identity")
    assert found.certificate.dropped == trapped.shape[1] - 5
    assert found.risk == pytest.approx(reference(X, y, g, 0.0, True), rel=1e-8)
    assert beside(found, trapped) < 1e-6
    assert found.converged
    if trap in ("duplicate", "duplicate up to rounding"):
        np.testing.assert_allclose(found.coef[1], found.coef[5], rtol=1e-5)


@INTERCEPT
@pytest.mark.parametrize("cond", [3.0, 1e3])
def test_the_dummy_variable_trap(intercept, cond):
    """Dummies of all categories sum to one: with an intercept, one direction says nothing new."""
    X, y, g = problem(cond)
    kind = np.random.default_rng(2).integers(0, 4, len(y))
    dummies = np.eye(4)[kind]
    y = y + np.array([0.0, 1.0, -1.0, 3.0])[kind]
    found = solve(np.c_[X, dummies], y, g, nu=0.0, activation="identity", fit_intercept=intercept)
    assert found.certificate.dropped == (1 if intercept else 0)
    least = reference(np.c_[X, dummies[:, 1:]], y, g, 0.0, True)
    assert found.risk == pytest.approx(least, rel=1e-8)
    if intercept:
        assert abs(found.coef[5:].sum()) < 1e-6 * np.abs(found.coef[5:]).max()


def test_dummies_far_from_centred_are_still_dropped():
    """A trap among columns with means of their own, and ill-conditioned company."""
    X, y, g = problem(1e4, mean=50.0)
    dummies = np.eye(3)[np.random.default_rng(2).integers(0, 3, len(y))]
    found = solve(np.c_[X, 1e3 * dummies], y, g, nu=0.1, activation="identity")
    assert found.certificate.dropped == 1
    least = reference(np.c_[X, dummies[:, 1:]], y, g, 0.1, True)
    assert found.risk == pytest.approx(least, rel=1e-8)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-8])
def test_nearly_the_same_is_not_the_same(gap):
    """Two columns whose small difference carries the signal are both kept."""
    X, y, g = problem(3.0)
    extra = np.random.default_rng(4).normal(size=len(y))
    near = np.c_[X, X[:, 1] + gap * extra]
    y = y + 2.0 * extra
    found = solve(near, y, g, nu=0.0, activation="identity")
    assert found.certificate.dropped == 0
    # Coefficients of 2 / gap: scores are rounded by EPS times that.
    tol = max(1e-8, 2.0 * EPS / gap)
    assert found.risk == pytest.approx(reference(near, y, g, 0.0, True), rel=tol)
    assert found.coef[5] == pytest.approx(2.0 / gap, rel=0.5)


def test_single_precision_features_are_judged_by_their_own_rounding():
    """A difference that float32 can hold is kept; a copy is not."""
    X, y, g = problem(3.0)
    X = X.astype(np.float32)
    extra = np.random.default_rng(4).normal(size=len(y))
    near = np.c_[X, (X[:, 1] + 1e-3 * extra).astype(np.float32)]
    found = solve(near, y + 2.0 * extra, g, nu=0.0, activation="identity")
    least = reference(near.astype(float), y + 2.0 * extra, g, 0.0, True)
    assert found.certificate.dropped == 0
    assert found.risk == pytest.approx(least, rel=1e-7)
    same = np.c_[X, X[:, 1]]
    found = solve(same, y, g, nu=0.0, activation="identity")
    assert found.certificate.dropped == 1
    np.testing.assert_allclose(found.coef[1], found.coef[5], rtol=1e-5)


def test_more_features_than_rows_are_interpolated_with_small_coefficients():
    rng = np.random.default_rng(0)
    X, y, g = rng.normal(size=(12, 20)), rng.normal(size=12), np.repeat(np.arange(3), 4)
    found = solve(X, y, g, nu=0.0, activation="identity")
    assert found.risk < 1e-12
    centred = X - X.mean(axis=0)
    least = np.linalg.pinv(centred) @ (y - y.mean())
    np.testing.assert_allclose(found.coef, least, atol=1e-6)


# -- sizes that squares cannot hold --------------------------------------------------------

TINY_TO_HUGE = [1e-300, 1e-200, 1e-162, 1e-100, 1e100, 1e162, 1e200, 1e300]


@pytest.mark.parametrize("activation", ["identity", "relu", "softplus"])
@pytest.mark.parametrize("size", TINY_TO_HUGE)
def test_the_size_of_a_feature_does_not_matter(size, activation):
    X, y, g = problem(3.0)
    power = 2.0 ** np.round(np.log2(size))
    base = solve(X, y, g, nu=0.1, activation=activation)
    found = solve(X * [power, 1, 1, 1, 1], y, g, nu=0.1, activation=activation)
    assert found.risk == pytest.approx(base.risk, rel=1e-9)
    np.testing.assert_allclose(found.coef * [power, 1, 1, 1, 1], base.coef, rtol=1e-4)
    assert found.converged
    assert found.certificate.dropped == 0


@pytest.mark.parametrize("size", [1e-200, 1e200])
@pytest.mark.parametrize("form", ["all", "sparse", "chunks", "scale", "no intercept", "torch"])
def test_the_size_of_a_feature_does_not_matter_in_any_form(size, form):
    X, y, g = problem(3.0)
    power = np.full(5, 2.0 ** np.round(np.log2(size)))
    power[1:] = power[1:] if form == "all" else 1.0
    options = {"nu": 0.1, "activation": "identity"}
    if form == "scale":
        options["precondition"] = "scale"
    options["fit_intercept"] = form != "no intercept"
    base = solve(X, y, g, **options)
    Z = X * power
    if form == "sparse":
        found = solve(sparse.csr_matrix(Z), y, g, **options)
    elif form == "chunks":
        cut = [(Z[i::2], y[i::2], g[i::2]) for i in range(2)]
        found = solve(Chunks(lambda: cut), **options)
    elif form == "torch":
        engine = TorchEngine(
            torch.from_numpy(Z), y, g, None, identity(), intercept=True, centred=True
        )
        frame = Frame.measure(engine, np.full(K, 1 / K), "auto", None)
        moment = np.tensordot(np.full(K, 1 / K), frame.matrices, 1)
        np.testing.assert_allclose(moment, 2.0 * np.eye(6), atol=1e-9)
        return
    else:
        found = solve(Z, y, g, **options)
    assert found.risk == pytest.approx(base.risk, rel=1e-8)
    np.testing.assert_allclose(found.coef * power, base.coef, rtol=1e-4)


def test_a_tiny_feature_is_not_a_column_of_zeros():
    """Squares of both are zero; only one of them says nothing."""
    X, y, g = problem(3.0)
    least = solve(X, y, g, nu=0.0, activation="identity").risk
    for tiny in (1e-170, 1e-290):
        found = solve(np.c_[X[:, 1:], X[:, 0] * tiny], y, g, nu=0.0, activation="identity")
        assert found.risk == pytest.approx(least, rel=1e-6)
    with pytest.raises(ValueError, match="a coefficient exceeds the largest double"):
        solve(np.c_[X[:, 1:], X[:, 0] * 1e-310], y, g, nu=0.0, activation="identity")
    empty = solve(np.c_[X, 0.0 * y], y, g, nu=0.0, activation="identity")
    assert empty.coef[5] == 0


@pytest.mark.parametrize("option", [{"precondition": None}, {"radius": 2.0}])
def test_options_in_the_units_of_a_feature_refuse_an_extreme_one(option):
    X, y, g = problem(3.0)
    with pytest.raises(ValueError, match=r"feature 0 has a typical size of 8e\+199; multiply"):
        solve(X * [1e200, 1, 1, 1, 1], y, g, nu=0.1, **option)


def test_features_near_the_largest_double_are_refused():
    X, y, g = problem(3.0)
    with pytest.raises(ValueError, match="X: feature 1 has values near the largest double"):
        solve(X * [1, 5e307, 1, 1, 1], y, g, nu=0.1)


def test_a_coefficient_beyond_the_largest_double_is_refused():
    X, y, g = problem(3.0)
    with pytest.raises(ValueError, match="a coefficient exceeds the largest double"):
        solve(X * [1e-300, 1, 1, 1, 1], 1e20 * y, g, nu=0.1, activation="identity")


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-100, 1e150, 1e200, 1e300])
@pytest.mark.parametrize("truncate", [None, 1e299])
def test_labels_whose_squares_vanish_or_overflow_are_refused(size, truncate):
    X, y, g = problem(3.0)
    with pytest.raises(ValueError, match=r"^y: .* (multiply|divide) y by a power of ten"):
        solve(X, y * size, g, nu=0.1, truncate=truncate)


@pytest.mark.parametrize("size", [1e-85, 1e-40, 1e40, 1e120])
def test_labels_of_other_sizes_are_fitted_alike(size):
    X, y, g = problem(3.0)
    base = solve(X, y, g, nu=0.0, activation="relu")
    found = solve(X, y * size, g, nu=0.0, activation="relu")
    assert found.risk / size**2 == pytest.approx(base.risk, rel=1e-9)
    assert found.converged


def test_tiny_labels_that_balance_are_not_zero():
    X, _, g = problem(3.0)
    y = np.tile([1e-170, 0.0, -1e-170], len(g) // 3)
    with pytest.raises(ValueError, match="y: no label exceeds 1e-170"):
        solve(X, y, g, nu=0.1)
    assert solve(X, 0.0 * y, g, nu=0.1).risk == 0


# -- outlying rows, offsets, what is left out ----------------------------------------------


def fitted_by_qr(X, y):
    Q = np.linalg.qr(np.c_[X - X.mean(axis=0), np.ones(len(X))])[0]
    return float(np.mean((y - Q @ (Q.T @ y)) ** 2))


@pytest.mark.parametrize("size", [1e4, 1e8, 1e12, 1e13])
def test_one_enormous_row_does_not_hide_the_others(size):
    X, y, _ = problem(3.0)
    X[7] = size
    found = solve(X, y, nu=np.inf, activation="identity")
    Q = orthonormal(X, True)
    assert found.risk == pytest.approx(np.mean((y - Q @ (Q.T @ y) / len(y)) ** 2), rel=1e-6)
    assert found.converged


@pytest.mark.parametrize("size", [1e16, 1e18])
def test_rows_that_hide_the_others_are_told(size):
    X, y, _ = problem(3.0)
    X[7] = size
    found = solve(X, y, nu=np.inf, activation="identity")
    assert not found.converged
    assert "rows with enormous entries" in found.status


@pytest.mark.parametrize("gap", 10.0 ** -np.arange(9, 18))
@pytest.mark.parametrize("seed", range(4))
def test_nearly_equal_columns_are_fitted_or_told(gap, seed):
    """The difference carries most of the signal: it is used, or the status says what is lost."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4)) + 3.0 * (seed % 2)
    extra = rng.normal(size=300)
    X = np.c_[X, X[:, 1] + gap * extra]
    difference = X[:, 4] - X[:, 1]
    y = X[:, 0] + 0.3 * rng.normal(size=300)
    if difference.std() > 0:
        y += (difference - difference.mean()) / difference.std()
    found = solve(X, y, nu=np.inf, activation="identity")
    if gap < 1e-14:  # a few units in the last place are rounding, whatever they would explain
        return
    if found.converged:
        assert found.risk <= 1.05 * fitted_by_qr(X, y)
    else:
        assert "could lower the risk by up to" in found.status
    if gap >= 1e-12:
        assert found.converged


def test_rounding_that_depends_on_categories_is_no_signal():
    """Standardised dummies of two columns sum to constants, up to rounding that knows both."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, 3000), rng.integers(0, 4, 3000)
    dummies = np.c_[np.eye(5)[first], np.eye(4)[second], rng.normal(size=(3000, 2))]
    X = (dummies - dummies.mean(axis=0)) / dummies.std(axis=0)
    y = 3.0 * (first == 2) * (second == 1) + rng.normal(size=3000)
    for groups in (None, first):
        found = solve(X, y, groups, nu=0.1, activation="identity")
        assert found.converged, found.status
        assert found.certificate.dropped >= 2


@pytest.mark.parametrize("seed", range(20))
def test_copies_up_to_rounding_are_no_signal(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    copies = np.c_[X, X[:, :2] / 3.0 * 3.0, X @ [1.0, 2.0, 0.0]]
    found = solve(copies, y, nu=np.inf, activation="identity")
    assert found.converged
    assert found.certificate.dropped == 3


@pytest.mark.parametrize("offset", [1e6, 1e8, 1e9, 1e10])
@pytest.mark.parametrize("which", ["X", "y"])
def test_the_gap_includes_its_own_rounding(offset, which):
    """Against the least risk in sixty digits: no lower bound may exceed it."""
    for seed in range(3):
        X, y, g = problem(3.0, seed=seed)
        X, y = (X + offset, y) if which == "X" else (X, y + offset)
        found = solve(X, y, g, nu=0.0, activation="identity")
        centre = y.mean() if which == "y" else 0.0
        least = reference(X, y - centre, g, 0.0, True)
        assert found.risk - found.certificate.duality_gap <= least * (1 + 1e-12)
        assert exact_risk(X, y, g, found) >= least * (1 - 1e-11)
        assert found.converged
    if which == "X" and offset >= 1e10:
        assert "Rounding limits what is proved" in found.status


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1.0, 1e6, 1e9])
def test_the_split_between_copies_does_not_depend_on_the_unit(size):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 200))
    y = x + z + 0.1 * rng.normal(size=200)
    X = np.c_[x, 2.0 * x, z]
    base = solve(X, y, nu=np.inf, activation="identity").coef
    found = solve(size * X, y, nu=np.inf, activation="identity").coef
    np.testing.assert_allclose(size * found, base, rtol=1e-6)
    constant = solve(np.c_[size * X, np.ones(200)], y, nu=np.inf, activation="identity").coef
    np.testing.assert_allclose(size * constant[:3], base, rtol=1e-6)


def test_what_is_left_out_counts_together_with_what_is_kept():
    """Under the fit's weights, the two may be correlated; the gain is that of a joint step."""
    rng = np.random.default_rng(0)
    n = 4000
    extra = rng.normal(size=n)
    g = np.repeat([0, 1], n // 2)
    x = np.where(g == 0, -1.0, 1.0) * 0.999 * extra + 0.04 * rng.normal(size=n)
    y = np.where(g == 1, x - extra, 0.0) * 20.0
    near = np.c_[x, rng.normal(size=n)]
    near = np.c_[near, near[:, 1] + 1e-14 * extra]
    found = solve(near, y, g, nu=0.0, activation="identity")
    assert not found.converged
    assert "could lower the risk by up to" in found.status


@pytest.mark.parametrize(("n", "d"), [(20_000, 1), (5_000, 80)])
@pytest.mark.parametrize("form", ["dense", "sparse", "chunks"])
def test_sums_have_no_more_additions_in_a_row_than_the_engine_says(n, d, form):
    """Of ones times 0.1, every addition may round; the bound must cover the worst order."""
    X, y = np.ones((n, d)), np.full(n, 0.1)
    data = sparse.csr_matrix(X) if form == "sparse" else X
    cut = Chunks(lambda: [(X[i : i + 100], y[i : i + 100]) for i in range(0, n, 100)])
    backend = backend_of(cut if form == "chunks" else data)
    rows = (cut, None) if form == "chunks" else (data, y)
    engine = backend.open(*rows, None, None, identity(), intercept=True, centred=False)
    loss, grad = engine.evaluate(np.zeros(d + 1), surrogate=False)
    with mpmath.workdps(40):
        exact = mpmath.mpf(0.1)
        off = abs(mpmath.mpf(float(loss[0])) / exact**2 - 1)
        turn = abs(mpmath.mpf(float(grad[0, 0])) / (-2 * exact) - 1)
    assert max(off, turn) <= (engine.additions + 8) * 0.5 * EPS


def test_nearly_equal_columns_are_not_told_to_be_centred():
    rng = np.random.default_rng(0)
    x, extra = rng.normal(size=(2, 300))
    found = solve(np.c_[x, x + 3e-13 * extra], extra, nu=np.inf, activation="identity")
    if "Rounding limits" in found.status:
        assert "replace nearly equal columns" in found.status
