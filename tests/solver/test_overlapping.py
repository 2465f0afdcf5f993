"""Fits to overlapping groups: against copies of the rows, against cvxpy, and plain averages."""

import cvxpy as cp
import numpy as np
import pytest
from problems import neuron_data
from references import risk_of, solved
from scipy import sparse
from sklearn.linear_model import LinearRegression

from counterpoise import GroupDRONeuron, Memberships, side_by_side, solve, solve_path


def problem(n=400, d=3, seed=0, K=4):
    """Rows, and memberships of which the last group lies within the first."""
    X, y, codes = neuron_data(K=3, n=n // 3, d=d, activation="identity", seed=seed)
    rng = np.random.default_rng(seed)
    matrix = (rng.random((len(y), K)) < 0.4).astype(float)
    matrix[:, 1] = codes == 1
    matrix[:, -1] *= matrix[:, 0]
    return X, y, matrix


def copies(X, y, matrix):
    index, codes = np.nonzero(matrix)
    return X[index], y[index], codes, matrix[index, codes]


@pytest.mark.parametrize("activation", ["identity", "relu", "softplus"])
@pytest.mark.parametrize("kind", ["0/1", "shares", "sparse"])
def test_a_fit_is_that_to_copies(activation, kind):
    X, y, matrix = problem()
    if kind == "shares":
        matrix *= np.random.default_rng(1).random(matrix.shape)
    groups = sparse.csr_matrix(matrix) if kind == "sparse" else matrix
    options = dict(activation=activation, nu=0.05, tol=1e-8)
    found = solve(X, y, groups, **options)
    X, y, codes, shares = copies(X, y, matrix)
    expected = solve(X, y, codes, shares, **options)
    np.testing.assert_allclose(found.risk, expected.risk, rtol=1e-9)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-5)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-4)
    assert found.labels.tolist() == [0, 1, 2, 3]
    if activation == "identity":
        assert found.certificate.duality_gap < 1e-6 * found.risk


@pytest.mark.parametrize("nu", [0.0, 0.1])
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("soft", [False, True])
def test_the_gap_holds_against_cvxpy(nu, divergence, soft):
    for seed in range(2):
        X, y, matrix = problem(n=120, seed=seed)
        if soft:
            matrix *= np.random.default_rng(seed).random(matrix.shape)
        found = solve(X, y, matrix, activation="identity", nu=nu, divergence=divergence)
        w, b = cp.Variable(X.shape[1]), cp.Variable()
        losses = []
        for share in (matrix / matrix.sum(axis=0)).T:
            rows = np.column_stack([X, np.ones(len(X)), y]) * np.sqrt(share)[:, None]
            f = np.linalg.qr(rows)[1]
            losses.append(cp.sum_squares(f[:, :-2] @ w + f[:, -2] * b - f[:, -1]))
        risk = risk_of(cp.hstack(losses), nu=nu, divergence=divergence)
        best = solved(cp.Problem(cp.Minimize(risk)))
        gap = found.certificate.duality_gap
        assert found.risk - gap <= best + 1e-6
        assert found.risk <= best + 1e-6
        assert gap < 1e-5


def test_labels_are_memberships_in_one_group_each():
    X, y, codes = neuron_data(K=3, n=100, d=3)
    labels = np.array(["a", "b", "c"])[codes]
    indicator = Memberships(np.eye(3)[codes], ["a", "b", "c"])
    for options in (dict(nu=0.1), dict(nu=np.inf, prior="rows"), dict(nu=0.1, prior="rows")):
        one, other = solve(X, y, labels, **options), solve(X, y, indicator, **options)
        np.testing.assert_allclose(one.coef, other.coef, atol=1e-9)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
        assert one.status == other.status


@pytest.mark.parametrize("weighted", [False, True])
def test_the_plain_average_counts_every_row_once(weighted):
    X, y, matrix = problem()
    weights = np.random.default_rng(0).uniform(0.1, 2.0, len(y)) if weighted else None
    found = solve(X, y, matrix, weights, activation="identity", nu=np.inf, prior="rows")
    expected = LinearRegression().fit(X, y, weights)
    np.testing.assert_allclose(found.coef, expected.coef_, atol=1e-8)
    np.testing.assert_allclose(found.intercept, expected.intercept_, atol=1e-8)
    errors = (expected.predict(X) - y) ** 2
    np.testing.assert_allclose(found.risk, np.average(errors, weights=weights), rtol=1e-9)
    shares = matrix if weights is None else matrix * weights[:, None]
    np.testing.assert_allclose(found.losses, shares.T @ errors / shares.sum(axis=0), rtol=1e-7)
    assert np.isnan(found.weights).all()  # no mixture of these groups is that average
    assert found.certificate.duality_gap < 1e-9
    assert found.history["weights"].shape == (found.n_iter, 4)


def test_groups_side_by_side_mix_to_the_average_over_rows():
    X, y, matrix = problem()
    groups = side_by_side({"a": matrix[:, 0], "b": matrix[:, 1]})
    found = solve(X, y, groups, activation="identity", nu=np.inf, prior="rows")
    np.testing.assert_allclose(found.coef, LinearRegression().fit(X, y).coef_, atol=1e-8)
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.risk == pytest.approx(found.weights @ found.losses)


def test_truncated_labels_of_the_plain_average():
    X, y, matrix = problem()
    level = float(np.quantile(np.abs(y), 0.8))
    found = solve(X, y, matrix, activation="identity", nu=np.inf, prior="rows", truncate=level)
    clipped = solve(
        X, np.clip(y, -level, level), matrix, activation="identity", nu=np.inf, prior="rows"
    )
    np.testing.assert_allclose(found.coef, clipped.coef, atol=1e-9)
    np.testing.assert_allclose(found.losses, clipped.losses, rtol=1e-9)


def test_the_status_names_nested_groups():
    X, y, matrix = problem()
    model = GroupDRONeuron(nu=0.1).fit(X, y, groups=Memberships(matrix, ["a", "b", "c", "within"]))
    assert "Some groups are nested: 'within' lies within 'a'." in model.status_
    outside = int((~matrix.any(axis=1)).sum())
    assert f"{outside} rows belong to no group" in model.status_
    assert model.groups_.tolist() == ["a", "b", "c", "within"]


def test_options_by_name_and_a_warm_start():
    X, y, matrix = problem()
    names = ["a", "b", "c", "d"]
    groups = Memberships(matrix, names)
    by_name = dict(
        prior={"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}, reference=dict.fromkeys(names, 0.1)
    )
    found = solve(X, y, groups, nu=0.1, **by_name)
    again = solve(X, y, matrix, nu=0.1, prior=[0.4, 0.3, 0.2, 0.1], reference=np.full(4, 0.1))
    np.testing.assert_allclose(found.coef, again.coef, atol=1e-10)
    model = GroupDRONeuron(nu=0.1, warm_start=True)
    first = model.fit(X, y, groups=groups).risk_
    assert model.fit(X, y, groups=groups).risk_ == pytest.approx(first, rel=1e-5)
    plain = model.plain_twin().set_params(warm_start=True).fit(X, y, groups=groups)
    coef = plain.coef_.copy()
    np.testing.assert_allclose(plain.fit(X, y, groups=groups).coef_, coef, atol=1e-3)
    path = solve_path(X, y, groups, nus=[0.0, 1.0], activation="identity")
    assert path[0].losses.max() <= path[1].losses.max()
    with pytest.raises(ValueError, match="'e'"):
        solve(X, y, groups, prior={"e": 1.0})


def test_groups_without_rows_are_left_out():
    X, y, matrix = problem()
    weights = np.where(matrix[:, 1] > 0, 0.0, 1.0)
    found = solve(X, y, matrix, weights, nu=0.1)
    assert found.labels.tolist() == [0, 2, 3]
