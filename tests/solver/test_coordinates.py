"""Coordinates: whitening, scaling, the way back, and the exact projection onto the ball."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import solved

from counterpoise.solver.coordinates import Coordinates, scaled, unscaled, whitened


def moment(X, shift, intercept):
    """Second moment of the rows about the shift, the constant feature last."""
    rows = X - shift
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))])
    return rows.T @ rows / len(rows)


def features(seed=0, n=60, d=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 5.0 * rng.normal(size=d)


def scores(coordinates, X, u):
    w = coordinates.to_user(u)
    return X @ w[: X.shape[1]] + (w[-1] if coordinates.intercept else 0.0)


def make(kind, intercept, radius=None, seed=0):
    X = features(seed)
    shift = X[:7].mean(axis=0) if intercept else np.zeros(4)
    M = moment(X, shift, intercept)
    if kind == "whitened":
        return whitened(M, shift, intercept, radius)
    if kind == "scaled":
        return scaled(np.diag(M).copy(), shift, intercept, radius)
    return unscaled(4, intercept, radius)


KINDS = pytest.mark.parametrize("kind", ["whitened", "scaled", "plain"])
INTERCEPT = pytest.mark.parametrize("intercept", [True, False])


# -- whitening -----------------------------------------------------------------------------


@INTERCEPT
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_whitening_makes_the_second_moment_the_identity(intercept, scale):
    X = features() * np.array([1.0, scale, 1.0, 1.0 / scale])
    shift = X[:9].mean(axis=0) if intercept else np.zeros(4)
    M = moment(X, shift, intercept)
    coordinates = whitened(M, shift, intercept, None)
    size = 4 + intercept
    assert coordinates.size == size
    np.testing.assert_allclose(coordinates.pull_curvature(M), np.eye(size), atol=1e-8)
    # In terms of the rows: the scores of random points have unit mean square.
    Z = np.column_stack([scores(coordinates, X, e) for e in np.eye(size)])
    np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(size), atol=1e-7)


def test_whitening_does_not_depend_on_the_shift():
    """Scores have the same second moment whatever centre the rows were summed about."""
    X, u = features(), np.array([0.3, -1.0, 0.5, 2.0, 0.7])
    norms = []
    for shift in (np.zeros(4), X.mean(axis=0), X[0]):
        coordinates = whitened(moment(X, shift, True), shift, True, None)
        norms.append(np.mean(scores(coordinates, X, u) ** 2))
    np.testing.assert_allclose(norms, u @ u, rtol=1e-9)


def test_the_last_whitened_coordinate_is_the_mean_score():
    X = features()
    coordinates = make("whitened", True)
    u = np.random.default_rng(1).normal(size=5)
    assert np.mean(scores(coordinates, X, u)) == pytest.approx(u[-1], abs=1e-12)


DEGENERATE = {
    "constant column": (lambda X: np.column_stack([X, np.full(len(X), 3.7)]), 4, 5),
    "large constant column": (lambda X: np.column_stack([X, np.full(len(X), 1e8 + 0.1)]), 4, 5),
    "zero column": (lambda X: np.column_stack([X, np.zeros(len(X))]), 4, 4),
    "duplicate column": (lambda X: np.column_stack([X, X[:, 1]]), 4, 4),
    "scaled duplicate": (lambda X: np.column_stack([X, -1e3 * X[:, 1]]), 4, 4),
    "fewer rows than features": (lambda X: X[:3], 2, 3),
    "one row": (lambda X: X[:1], 0, 1),
    "all zero": (lambda X: np.zeros_like(X), 0, 0),
}


@pytest.mark.parametrize("case", DEGENERATE)
@INTERCEPT
def test_directions_without_variation_are_left_out(case, intercept):
    change, rank_about_mean, rank = DEGENERATE[case]
    X = change(features())
    d = X.shape[1]
    shift = X.mean(axis=0) if intercept else np.zeros(d)
    M = moment(X, shift, intercept)
    coordinates = whitened(M, shift, intercept, None)
    size = rank_about_mean + 1 if intercept else rank
    assert coordinates.size == size
    np.testing.assert_allclose(coordinates.pull_curvature(M), np.eye(size), atol=1e-7)
    # Whatever linear scores the features allow, the coordinates reach.
    w = np.random.default_rng(2).normal(size=d)
    full = np.column_stack([X, np.ones(len(X))]) if intercept else X
    Z = np.column_stack([scores(coordinates, X, e) for e in np.eye(size)] or [np.zeros(len(X))])
    target = full @ np.append(w, 1.3)[: full.shape[1]]
    fitted = Z @ np.linalg.lstsq(Z, target, rcond=None)[0]
    np.testing.assert_allclose(fitted, target, atol=1e-6 * (1 + np.abs(target).max()))
    assert np.isfinite(coordinates.to_user(np.ones(size))).all()


@pytest.mark.parametrize("case", ["scaled duplicate", "fewer rows than features"])
@INTERCEPT
def test_coefficients_have_no_component_where_the_features_do_not_vary(case, intercept):
    """Such a component changes no score and only uses up the ball ``||coef|| <= radius``."""
    X = DEGENERATE[case][0](features())
    shift = X.mean(axis=0) if intercept else np.zeros(X.shape[1])
    coordinates = whitened(moment(X, shift, intercept), shift, intercept, None)
    _, sizes, directions = np.linalg.svd(X - shift, full_matrices=False)
    directions = directions[sizes > 1e-9 * sizes.max()]
    for u in np.random.default_rng(10).normal(size=(3, coordinates.size)):
        coef = coordinates.to_user(u)[: X.shape[1]]
        np.testing.assert_allclose(
            directions.T @ (directions @ coef), coef, atol=1e-7 * np.abs(coef).max()
        )


def test_a_duplicated_column_shares_its_coefficient():
    X = features()
    twice = np.column_stack([X, X[:, 1]])
    coordinates = whitened(moment(twice, np.zeros(5), False), np.zeros(5), False, None)
    w = coordinates.to_user(np.array([1.0, -2.0, 0.5, 0.3]))
    assert w[1] == pytest.approx(w[4], rel=1e-6)


# -- scaling and plain ---------------------------------------------------------------------


@INTERCEPT
def test_scaling_makes_the_diagonal_one(intercept):
    X = features() * np.array([1.0, 1e-5, 1e5, 1.0])
    shift = X.mean(axis=0) if intercept else np.zeros(4)
    M = moment(X, shift, intercept)
    coordinates = scaled(np.diag(M).copy(), shift, intercept, None)
    assert coordinates.basis.ndim == 1
    np.testing.assert_allclose(np.diag(coordinates.pull_curvature(M)), 1.0, rtol=1e-12)


def test_scaling_leaves_dead_columns_out():
    X = np.column_stack([features(), np.zeros(60), np.full(60, 1e6 / 3)])
    shift = X.mean(axis=0)
    M = moment(X, shift, True)
    basis = scaled(np.diag(M).copy(), shift, True, None).basis
    np.testing.assert_array_equal(basis[4:], [0.0, 0.0, 1.0])
    np.testing.assert_allclose(basis[:4], 1.0 / X[:, :4].std(axis=0), rtol=1e-10)


@INTERCEPT
def test_plain_coordinates_change_nothing(intercept):
    coordinates = unscaled(3, intercept, 2.0)
    u = np.arange(1.0, 4.0 + intercept)
    np.testing.assert_array_equal(coordinates.to_user(u), u)
    np.testing.assert_array_equal(coordinates.pull(u), u)
    assert coordinates.coef_norm(u) == pytest.approx(np.sqrt(14.0), rel=1e-15)
    assert coordinates.size == 3 + intercept


# -- the maps ------------------------------------------------------------------------


@KINDS
@INTERCEPT
def test_maps_keep_their_input(kind, intercept):
    coordinates = make(kind, intercept, radius=0.5)
    arrays = np.random.default_rng(3).normal(size=(1, coordinates.size))
    kept = arrays.copy()
    for ask in (coordinates.to_user, coordinates.pull):
        ask(arrays)
        np.testing.assert_array_equal(arrays, kept)
    coordinates.project(arrays[0])
    np.testing.assert_array_equal(arrays, kept)


@KINDS
@INTERCEPT
def test_stacks_are_mapped_row_by_row(kind, intercept):
    coordinates = make(kind, intercept)
    stack = np.random.default_rng(4).normal(size=(6, coordinates.size))
    for ask in (coordinates.to_user, coordinates.pull):
        np.testing.assert_allclose(ask(stack), [ask(row) for row in stack], rtol=1e-12)


@KINDS
@INTERCEPT
def test_pull_is_the_transpose_of_to_user(kind, intercept):
    coordinates = make(kind, intercept)
    rng = np.random.default_rng(5)
    for _ in range(5):
        grad, u = rng.normal(size=(2, coordinates.size))
        assert grad @ coordinates.to_user(u) == pytest.approx(coordinates.pull(grad) @ u, rel=1e-9)


@KINDS
@INTERCEPT
def test_pulled_curvature_is_the_second_derivative_along_u(kind, intercept):
    """``mean (score)^2`` is the quadratic form of the second moment about the shift."""
    X, coordinates = features(), make(kind, intercept)
    M = coordinates.pull_curvature(moment(X, coordinates.shift, intercept))
    u = np.random.default_rng(6).normal(size=coordinates.size)
    assert u @ M @ u == pytest.approx(np.mean(scores(coordinates, X, u) ** 2), rel=1e-9)
    stack = coordinates.pull_curvature(np.stack([np.eye(len(coordinates.basis))] * 2))
    assert stack.shape == (2, coordinates.size, coordinates.size)


@KINDS
@INTERCEPT
def test_coef_norm_is_that_of_the_coefficients_alone(kind, intercept):
    coordinates = make(kind, intercept)
    u = np.random.default_rng(7).normal(size=coordinates.size)
    norm = np.linalg.norm(coordinates.to_user(u)[:4])
    assert coordinates.coef_norm(u) == pytest.approx(norm, rel=1e-10)
    assert u @ coordinates.coef_gram() @ u == pytest.approx(norm**2, rel=1e-10)


# -- the ball ------------------------------------------------------------------------------


@KINDS
@INTERCEPT
@pytest.mark.parametrize("share", [0.9, 0.3, 0.01])
def test_projection_against_a_convex_solver(kind, intercept, share):
    free = make(kind, intercept)
    u = np.random.default_rng(8).normal(size=free.size)
    radius = share * free.coef_norm(u)
    coordinates = Coordinates(free.basis, free.shift, intercept, radius)
    got = coordinates.project(u)

    C = (np.diag(free.basis) if free.basis.ndim == 1 else free.basis)[:4]
    v = cp.Variable(free.size)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(v - u)), [cp.norm(C @ v) <= radius])
    best = solved(problem)
    assert np.sum((got - u) ** 2) <= best * (1 + 1e-6) + 1e-9
    np.testing.assert_allclose(got, v.value, atol=1e-4)
    assert coordinates.coef_norm(got) == pytest.approx(radius, rel=1e-12)
    # Optimality to the last digits: u - v is a non-negative multiple of C^T C v.
    pull = C.T @ C @ got
    multiple = pull @ (u - got) / (pull @ pull)
    assert multiple >= 0
    np.testing.assert_allclose(u - got, multiple * pull, atol=1e-9 * np.abs(u).max())


@KINDS
@INTERCEPT
def test_a_point_inside_stays(kind, intercept):
    free = make(kind, intercept)
    u = np.random.default_rng(9).normal(size=free.size)
    norm = free.coef_norm(u)
    for radius in (None, norm, 2.0 * norm):
        inside = Coordinates(free.basis, free.shift, intercept, radius)
        np.testing.assert_array_equal(inside.project(u), u)


def test_projection_in_plain_coordinates_by_hand():
    with_intercept = unscaled(2, True, 1.0)
    np.testing.assert_allclose(
        with_intercept.project(np.array([3.0, 4.0, 7.0])), [0.6, 0.8, 7.0], rtol=1e-12
    )
    np.testing.assert_allclose(
        unscaled(2, False, 1.0).project(np.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-12
    )


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.sampled_from(["whitened", "scaled", "plain"]),
    st.booleans(),
    st.integers(0, 50),
    st.floats(-9.0, 9.0),
    st.floats(-9.0, 9.0),
)
def test_projections_are_feasible_and_idempotent(kind, intercept, seed, log_radius, log_size):
    coordinates = make(kind, intercept, 10.0**log_radius, seed)
    u = 10.0**log_size * np.random.default_rng(seed).normal(size=coordinates.size)
    v = coordinates.project(u)
    assert coordinates.coef_norm(v) <= coordinates.radius * (1 + 1e-12)
    assert np.linalg.norm(coordinates.to_user(v)[:4]) <= coordinates.radius * (1 + 1e-9)
    np.testing.assert_allclose(coordinates.project(v), v, rtol=1e-9, atol=1e-11 * np.abs(v).max())


@INTERCEPT
def test_projection_with_dead_directions(intercept):
    """Duplicate and constant columns: the whitened ball is still met."""
    X = np.column_stack([features(), np.full(60, 2.0)])
    X = np.column_stack([X, X[:, 0]])
    shift = X.mean(axis=0) if intercept else np.zeros(6)
    coordinates = whitened(moment(X, shift, intercept), shift, intercept, 0.1)
    v = coordinates.project(np.full(coordinates.size, 10.0))
    assert np.linalg.norm(coordinates.to_user(v)[:6]) == pytest.approx(0.1, rel=1e-8)


# -- the way in ----------------------------------------------------------------------------


@KINDS
@INTERCEPT
def test_from_user_undoes_to_user(kind, intercept):
    coordinates = make(kind, intercept)
    rng = np.random.default_rng(10)
    for size in (1.0, 1e-6, 1e6):
        u = size * rng.normal(size=coordinates.size)
        np.testing.assert_allclose(coordinates.from_user(coordinates.to_user(u)), u, rtol=1e-8)
        w = size * rng.normal(size=4 + intercept)
        np.testing.assert_allclose(coordinates.to_user(coordinates.from_user(w)), w, rtol=1e-8)


@KINDS
@INTERCEPT
def test_from_user_keeps_its_input(kind, intercept):
    w = np.random.default_rng(11).normal(size=4 + intercept)
    kept = w.copy()
    make(kind, intercept).from_user(w)
    np.testing.assert_array_equal(w, kept)


@pytest.mark.parametrize("case", ["zero column", "duplicate column", "fewer rows than features"])
@INTERCEPT
def test_from_user_keeps_the_scores_where_features_do_not_vary(case, intercept):
    """What no coordinates reach changes no score of the rows."""
    X = DEGENERATE[case][0](features())
    d = X.shape[1]
    shift = X.mean(axis=0) if intercept else np.zeros(d)
    coordinates = whitened(moment(X, shift, intercept), shift, intercept, None)
    w = np.random.default_rng(12).normal(size=d + intercept)
    full = np.column_stack([X, np.ones(len(X))]) if intercept else X
    again = coordinates.to_user(coordinates.from_user(w))
    np.testing.assert_allclose(full @ again, full @ w, atol=1e-6 * np.abs(full @ w).max())
    assert np.linalg.norm(again[:d]) <= np.linalg.norm(w[:d]) * (1 + 1e-6)


def test_from_user_leaves_dead_columns_at_zero():
    X = np.column_stack([features(), np.full(60, 3.7)])
    shift = X.mean(axis=0)
    coordinates = scaled(np.diag(moment(X, shift, True)).copy(), shift, True, None)
    u = coordinates.from_user(np.arange(1.0, 7.0))
    assert u[4] == 0.0
    assert np.isfinite(u).all()
    np.testing.assert_allclose(coordinates.to_user(u)[:4], [1, 2, 3, 4], rtol=1e-12)


# -- a second look -------------------------------------------------------------------------

EPS = np.finfo(float).eps


def stiff_features(cond, mean=0.0, n=80, d=5, seed=0):
    rng = np.random.default_rng(seed)
    Z = np.linalg.qr(rng.normal(size=(n, d)))[0] * np.sqrt(n)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (Z * np.geomspace(1.0, 1.0 / cond, d)) @ rotation.T + mean


def mapped_moment(coordinates, X):
    """Of rows mapped first and squared then: no digits are lost to their condition."""
    rows = X - coordinates.shift
    if coordinates.intercept:
        rows = np.column_stack([rows, np.ones(len(rows))])
    rows = rows @ coordinates.basis
    return rows.T @ rows / len(rows)


def looked_at_again(X, intercept, rounds=3):
    shift = X.mean(axis=0) if intercept else np.zeros(X.shape[1])
    coordinates = whitened(moment(X, shift, intercept), shift, intercept, None, EPS)
    for _ in range(rounds):
        if coordinates.noise is None:
            break
        coordinates, _ = coordinates.refined(mapped_moment(coordinates, X))
    return coordinates


@pytest.mark.parametrize("exponent", range(4, 10))
@INTERCEPT
def test_refined_coordinates_are_white(exponent, intercept):
    X = stiff_features(10.0**exponent)
    coordinates = looked_at_again(X, intercept)
    assert coordinates.noise is None, "a second look was asked for, and was enough"
    assert coordinates.size == 5 + intercept
    assert coordinates.dropped == 0
    np.testing.assert_allclose(
        mapped_moment(coordinates, X), np.eye(5 + intercept), atol=1e-6 + 10 * EPS * 10**exponent
    )


def test_one_look_is_not_enough_for_the_small_directions():
    """That these tests can fail: without a second look the smallest direction is noise."""
    X = stiff_features(1e9)
    shift = X.mean(axis=0)
    once = whitened(moment(X, shift, True), shift, True, None)
    assert once.dropped > 0
    twice = whitened(moment(X, shift, True), shift, True, None, EPS)
    assert twice.noise is not None
    assert twice.stiff
    assert np.abs(mapped_moment(twice, X) - np.eye(6)).max() > 0.01


def test_well_conditioned_features_ask_for_no_second_look():
    X = stiff_features(100.0)
    coordinates = whitened(moment(X, X.mean(axis=0), True), X.mean(axis=0), True, None, EPS)
    assert coordinates.noise is None
    assert not coordinates.stiff


@INTERCEPT
def test_the_change_of_coordinates_is_the_one_made(intercept):
    X = stiff_features(1e6, mean=3.0 if intercept else 0.0)
    shift = X[:9].mean(axis=0) if intercept else np.zeros(5)
    first = whitened(moment(X, shift, intercept), shift, intercept, None, EPS)
    M = mapped_moment(first, X)
    second, change = first.refined(M)
    np.testing.assert_allclose(second.basis, first.basis @ change, rtol=1e-12)
    np.testing.assert_allclose(change.T @ M @ change, np.eye(5 + intercept), atol=1e-9)
    if intercept:  # the last coordinate is still the mean score
        np.testing.assert_allclose(mapped_moment(second, X)[-1], np.eye(6)[-1], atol=1e-8)


@pytest.mark.parametrize("cond", [3.0, 1e3, 1e6])
@INTERCEPT
def test_a_second_look_tells_duplicates_from_small_directions(cond, intercept):
    X = stiff_features(cond)
    X = np.column_stack([X, X[:, 1], X[:, 0] + X[:, 2]])
    coordinates = looked_at_again(X, intercept)
    assert coordinates.size == 5 + intercept
    assert coordinates.dropped == 2
    np.testing.assert_allclose(mapped_moment(coordinates, X), np.eye(5 + intercept), atol=1e-5)
    # No coefficient where the features say nothing.
    null = np.zeros((7, 2))
    null[[1, 5], 0], null[[0, 2, 6], 1] = (1, -1), (1, 1, -1)
    basis = coordinates.basis[:7, :5]
    sizes = np.linalg.norm(basis, axis=0)
    assert np.abs(null.T @ basis / sizes).max() < 1e-6


@INTERCEPT
def test_refining_what_is_white_changes_no_score(intercept):
    X = features()
    coordinates = make("whitened", intercept)
    same, _ = coordinates.refined(mapped_moment(coordinates, X))
    assert same.dropped == 0
    M = coordinates.pull_curvature(moment(X, coordinates.shift, intercept))
    np.testing.assert_allclose(same.pull_curvature(moment(X, same.shift, intercept)), M, atol=1e-8)
