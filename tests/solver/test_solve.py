"""solve(): scales, degenerate data, options, determinism."""

from __future__ import annotations

from dataclasses import fields

import cvxpy as cp
import numpy as np
import pytest
from problems import group_losses, neuron_data
from references import linear_losses, risk_of, solved
from scipy import sparse

from counterpoise import AdaptiveSteps, GroupDRONeuron, PaperSteps, risk, solve, solve_path
from counterpoise.activations import NAMED, Activation
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.options import FitOptions

ACTIVATIONS = ["identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu"]


def check_finite(found):
    assert np.isfinite(found.coef).all()
    assert np.isfinite(found.intercept)
    assert np.isfinite(found.risk)
    assert found.weights.sum() == pytest.approx(1.0)
    assert (found.weights >= 0).all()
    assert all(np.isfinite(v).all() for v in found.history.values())
    assert str(found.certificate)


@pytest.mark.parametrize("activation", ["identity", "relu", "leaky_relu"])
@pytest.mark.parametrize("nu", ["auto", 0.0, 0.3])
@pytest.mark.parametrize(("sx", "sy"), [(1e-8, 1), (1e8, 1), (1, 1e-8), (1, 1e8), (1e8, 1e-8)])
def test_scales_change_nothing_but_units(activation, nu, sx, sy):
    X, y, g = neuron_data(K=3, n=80, d=4, activation=activation)
    base = solve(X, y, g, activation=activation, nu=nu)
    scaled_nu = nu if isinstance(nu, str) else nu * sy**2
    with np.errstate(all="raise", under="ignore"):
        found = solve(sx * X, sy * y, g, activation=activation, nu=scaled_nu)
    check_finite(found)
    assert found.risk / sy**2 == pytest.approx(base.risk, rel=1e-4)
    assert found.nu == pytest.approx(base.nu * sy**2, rel=1e-9)
    np.testing.assert_allclose(found.coef * sx / sy, base.coef, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("nu", [0.0, 1e-9, 1e6])
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_extreme_nu(activation, nu, divergence):
    X, y, g = neuron_data(K=4, n=50, d=3, activation=activation)
    found = solve(X, y, g, activation=activation, nu=nu, divergence=divergence)
    check_finite(found)
    limit = found.losses.max() if nu < 1 else found.losses.mean()
    assert found.risk == pytest.approx(limit, rel=1e-5)


DEGENERATE = {
    "constant column": lambda X, y, g: (np.c_[X, np.full(len(X), 7.1)], y, g),
    "zero column": lambda X, y, g: (np.c_[X, np.zeros(len(X))], y, g),
    "duplicate columns": lambda X, y, g: (np.c_[X, X[:, :2]], y, g),
    "far from zero": lambda X, y, g: (X + 1e6, y, g),
    "one row in a group": lambda X, y, g: (X, y, np.where(np.arange(len(y)) == 3, 99, g)),
    "fewer rows than features": lambda X, y, g: (X[::12], y[::12], g[::12]),
    "one group": lambda X, y, g: (X, y, None),
    "one row": lambda X, y, g: (X[:1], y[:1], g[:1]),
    "constant labels": lambda X, y, g: (X, np.full(len(y), 3.0), g),
    "negative labels": lambda X, y, g: (X, -np.abs(y) - 1, g),
    "zero labels": lambda X, y, g: (X, np.zeros(len(y)), g),
    "zero features": lambda X, y, g: (0 * X, y, g),
    "every row its own group": lambda X, y, g: (X, y, np.arange(len(y))),
    "float32": lambda X, y, g: (X.astype(np.float32), y, g),
    "sparse": lambda X, y, g: (sparse.csr_matrix(np.where(X > 0.5, X, 0.0)), y, g),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("activation", ["identity", "relu", "softplus"])
@pytest.mark.parametrize("nu", ["auto", 0.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_degenerate_data(case, activation, nu, intercept):
    X, y, g = DEGENERATE[case](*neuron_data(K=3, n=40, d=5))
    with np.errstate(all="raise", under="ignore"):
        found = solve(X, y, g, activation=activation, nu=nu, fit_intercept=intercept)
    check_finite(found)
    dense = X.toarray() if sparse.issparse(X) else X
    groups = np.zeros(len(y)) if g is None else g
    predicted = NAMED[activation]().value(dense @ found.coef + found.intercept)
    scale = np.mean(y**2) + 1e-12
    np.testing.assert_allclose(
        found.losses, group_losses(predicted, y, groups), rtol=1e-5, atol=1e-8 * scale
    )
    assert found.risk == pytest.approx(risk(found.losses, found.nu), rel=1e-6, abs=1e-12 * scale)
    zero = group_losses(0 * y, y, groups)
    assert found.risk <= risk(zero, found.nu) * (1 + 1e-12)


def test_duplicate_columns_share_the_coefficient():
    X, y, g = neuron_data(K=3, n=60, d=3)
    found = solve(np.c_[X, X], y, g, nu=0.1)
    np.testing.assert_allclose(found.coef[:3], found.coef[3:], atol=1e-8)


def test_auto_nu_is_a_tenth_of_the_average_fit():
    X, y, g = neuron_data(K=4, n=200, d=4, activation="identity")
    found = solve(X, y, g, activation="identity")
    design, weight = np.c_[X, np.ones(len(X))], 1.0  # equal groups: the average is least squares
    w = np.linalg.lstsq(design * weight, y, rcond=None)[0]
    assert found.nu == pytest.approx(0.1 * np.mean((design @ w - y) ** 2), rel=2e-3)


@pytest.mark.parametrize("kind", ["array", "mapping"])
def test_prior_and_reference_by_array_or_mapping(kind):
    X, y, g = neuron_data(K=3, n=60, d=3)
    names = np.array(["a", "b", "c"])[g]
    prior, reference = np.array([0.2, 0.5, 0.3]), np.array([0.0, 0.4, 0.1])
    given = (prior, reference)
    if kind == "mapping":
        given = (
            {"c": 0.3, "a": 0.2, "b": 0.5},
            {"b": 0.4, "a": 0.0, "c": 0.1},
        )
    found = solve(X, y, names, nu=0.1, prior=given[0], reference=given[1])
    assert found.risk == pytest.approx(risk(found.losses - reference, 0.1, "kl", prior), rel=1e-9)
    expected = prior * np.exp((found.losses - reference) / 0.1)
    np.testing.assert_allclose(found.weights, expected / expected.sum(), rtol=1e-9)


def test_reference_risks_move_weight_to_avoidable_loss():
    X, y, g = neuron_data(K=3, n=300, d=3, noise=(0.1, 0.1), seed=1)
    y = y + np.where(g == 0, 3.0, 0.0) * np.random.default_rng(0).normal(size=len(y))
    plain = solve(X, y, g, nu=0.0)
    assert plain.weights[0] > 0.99  # the noisy group takes all
    alone = [solve(X[g == i], y[g == i], nu=0.0).risk for i in range(3)]
    excess = solve(X, y, g, nu=0.0, reference=alone)
    assert excess.weights[0] < 0.9
    assert excess.losses[1:].max() < plain.losses[1:].max()


def test_truncation_clips_labels():
    X, y, g = neuron_data(K=3, n=60, d=3)
    y[5] = 1e6
    found = solve(X, y, g, nu=0.1, truncate=2.0)
    same = solve(X, np.clip(y, -2, 2), g, nu=0.1)
    np.testing.assert_array_equal(found.coef, same.coef)
    assert found.truncation == 2.0


def test_zero_vector_is_returned_where_it_is_better():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    found = solve(X, -np.abs(rng.normal(size=40)), nu=0.0, fit_intercept=False)
    assert (found.coef == 0).all()


def test_paper_schedule_without_a_radius_takes_one_from_the_data():
    X, y, g = neuron_data(K=3, n=60, d=3)
    found = solve(X, y, g, schedule=PaperSteps(), nu=0.1, max_iter=5, polish=False)
    assert found.radius is None
    assert found.truncation > 0
    assert "paper's step sizes" in found.status


def test_paper_by_name_is_the_algorithm_and_nothing_else():
    """One switch: no intercept, no polish, the coordinates of X, the last iterate in the ball."""
    X, y, g = neuron_data(K=3, n=60, d=3)
    named = solve(X, y, g, schedule="paper", nu=0.1, radius=2.0, max_iter=7)
    spelt = solve(X, y, g, schedule=PaperSteps(), nu=0.1, radius=2.0, max_iter=7, polish=False,
                  fit_intercept=False, precondition=None)  # fmt: skip
    np.testing.assert_array_equal(named.coef, spelt.coef)
    np.testing.assert_array_equal(named.history["weights"], spelt.history["weights"])
    assert named.intercept == 0
    assert named.n_iter == 7
    own = solve(X, y, g, schedule=PaperSteps(alone=True), nu=0.1, radius=2.0, max_iter=7)
    np.testing.assert_array_equal(named.coef, own.coef)


def test_paper_by_name_refuses_what_the_paper_does_not_have():
    X, y, g = neuron_data(K=3, n=60, d=3)
    with pytest.raises(ValueError, match="searches a ball; give its radius W as radius"):
        solve(X, y, g, schedule="paper", nu=0.1)
    with pytest.raises(ValueError, match="precondition='whiten' does not go with"):
        solve(X, y, g, schedule="paper", nu=0.1, radius=1.0, precondition="whiten")


def test_paper_schedule_with_polish_reaches_the_adaptive_risk():
    X, y, g = neuron_data(K=3, n=200, d=3)
    slow = solve(X, y, g, schedule=PaperSteps(), nu=0.1, radius=10.0, max_iter=10)
    fast = solve(X, y, g, nu=0.1)
    assert slow.risk <= fast.risk * (1 + 1e-2)


def test_sample_weight_counts_rows():
    X, y, g = neuron_data(K=3, n=60, d=3)
    weights = np.random.default_rng(0).integers(0, 4, size=len(y))
    weighted = solve(X, y, g, weights, nu=0.1)
    repeated = solve(*(np.repeat(v, weights, axis=0) for v in (X, y, g)), nu=0.1)
    np.testing.assert_allclose(weighted.coef, repeated.coef, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(weighted.losses, repeated.losses, rtol=1e-7)


def test_row_order_does_not_matter():
    X, y, g = neuron_data(K=3, n=60, d=3)
    order = np.random.default_rng(0).permutation(len(y))
    a, b = solve(X, y, g, nu=0.1), solve(X[order], y[order], g[order], nu=0.1)
    np.testing.assert_allclose(a.coef, b.coef, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("nu", ["auto", 0.0])
def test_bits_do_not_depend_on_the_number_of_threads(make, nu, small_chunks, monkeypatch):
    X, y, g = neuron_data(K=7, n=900, d=12)
    results = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr("counterpoise.rows.threads.n_threads", lambda t=threads: t)
        found = solve(make(X), y, g, nu=nu)
        results.append((found.coef.tobytes(), found.weights.tobytes(), found.n_passes))
    assert len(set(results)) == 1


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_infinite_nu_with_rows_as_prior_is_least_squares(divergence, weighted):
    X, y, g = neuron_data(K=4, n=120, d=5, activation="identity")
    keep = np.random.default_rng(0).random(len(y)) < 0.3 + 0.2 * g  # groups of unequal size
    X, y, g = X[keep], y[keep], g[keep]
    w = np.random.default_rng(1).uniform(0.1, 2.0, len(y)) if weighted else np.ones(len(y))
    found = solve(X, y, g, w if weighted else None, activation="identity", divergence=divergence,
                  nu=np.inf, prior="rows")  # fmt: skip
    root = np.sqrt(w)[:, None]
    best = np.linalg.lstsq(root * np.column_stack([X, np.ones(len(y))]), root[:, 0] * y)[0]
    np.testing.assert_allclose(np.append(found.coef, found.intercept), best, rtol=0, atol=1e-10)
    sizes = np.array([w[g == k].sum() for k in range(4)])
    np.testing.assert_allclose(found.weights, sizes / sizes.sum(), rtol=1e-12)
    assert found.nu == np.inf
    assert found.converged


@pytest.mark.parametrize("activation", ["relu", "softplus"])
def test_infinite_nu_is_the_limit_of_large_nu_and_one_group_of_all_rows(activation):
    X, y, g = neuron_data(K=4, n=300, d=5, activation=activation)
    found = solve(X, y, g, activation=activation, nu=np.inf)
    pooled = solve(X, y, None, activation=activation, nu=0.0)
    assert found.risk == pytest.approx(pooled.risk, rel=1e-6)
    assert found.risk == pytest.approx(solve(X, y, g, activation=activation, nu=1e6).risk, rel=1e-6)
    np.testing.assert_array_equal(found.weights, np.full(4, 0.25))


def test_infinite_nu_keeps_to_the_prior_from_any_start():
    X, y, g = neuron_data(K=3, n=200, d=4)
    start = solve(X, y, g, nu=0.0).start
    found = solve(X, y, g, nu=np.inf, start=start)
    np.testing.assert_array_equal(found.history["weights"], np.full((found.n_iter, 3), 1 / 3))
    assert found.risk <= (1 + 1e-6) * solve(X, y, g, nu=np.inf).risk


def test_a_path_can_begin_with_the_average():
    X, y, g = neuron_data(K=3, n=200, d=4)
    path = solve_path(X, y, g, nus=[np.inf, 1.0, 0.0])
    worst = [solution.losses.max() for solution in path]
    average = [solution.losses.mean() for solution in path]
    assert worst[0] > worst[1] > worst[2]
    assert average[0] < average[1] < average[2]


def test_infinite_nu_claims_no_more_than_the_average():
    X, y, g = neuron_data(K=3, n=200, d=4)
    certificate = solve(X, y, g, nu=np.inf).certificate
    assert certificate.opt_bound == pytest.approx(3 * certificate.risk)  # one group may have it all


def test_unknown_words_for_the_prior_are_refused():
    X, y, g = neuron_data(K=3, n=50, d=2)
    with pytest.raises(ValueError, match="prior='size' is not known; use 'rows'"):
        solve(X, y, g, prior="size")


def test_inputs_are_not_changed():
    X, y, g = neuron_data(K=3, n=60, d=3)
    order = np.random.default_rng(0).permutation(len(y))
    inputs = [X[order], y[order], g[order], np.full(len(y), 2.0)]
    inputs[3][0] = 3.0
    copies = [v.copy() for v in inputs]
    for v in inputs:
        v.setflags(write=False)
    prior = np.full(3, 1 / 3)
    prior.setflags(write=False)
    solve(*inputs, nu=0.1, prior=prior, reference=prior, truncate=1.0)
    for v, copy in zip(inputs, copies, strict=True):
        np.testing.assert_array_equal(v, copy)


def test_float32_rows_are_read_as_they_are():
    X, y, g = neuron_data(K=3, n=200, d=4)
    single = X.astype(np.float32)
    a = solve(single, y, g, nu=0.1)
    b = solve(single.astype(float), y, g, nu=0.1)
    np.testing.assert_allclose(a.coef, b.coef, rtol=1e-6, atol=1e-9)


def test_sparse_equals_dense():
    X, y, g = neuron_data(K=3, n=200, d=6)
    X = np.where(np.abs(X) > 0.8, X, 0.0)
    a, b = solve(X, y, g, nu=0.1), solve(sparse.csr_matrix(X), y, g, nu=0.1)
    assert a.risk == pytest.approx(b.risk, rel=1e-5)
    np.testing.assert_allclose(a.coef, b.coef, atol=5e-3)


@pytest.mark.parametrize("precondition", ["whiten", "scale", None])
def test_preconditions_agree(precondition):
    X, y, g = neuron_data(K=3, n=200, d=6, activation="softplus", cond=30.0)
    X = X + 0.5
    base = solve(X, y, g, activation="softplus", nu=0.1, tol=1e-10)
    found = solve(X, y, g, activation="softplus", nu=0.1, precondition=precondition, tol=1e-10)
    assert found.risk == pytest.approx(base.risk, rel=1e-6)


@pytest.mark.slow
def test_ten_thousand_groups():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 6))
    y = np.maximum(X[:, 0] - X[:, 1], 0) + 0.3 * rng.normal(size=30_000)
    g = rng.integers(0, 10_000, size=30_000)
    found = solve(X, y, g)
    check_finite(found)
    assert found.weights.shape == (len(np.unique(g)),)
    assert found.history["weights"].shape == (found.n_iter, len(found.weights))


def test_custom_activation_equals_the_named_one():
    X, y, g = neuron_data(K=3, n=200, d=4, activation="softplus")
    own = Activation(
        lambda t: np.logaddexp(0, t) - np.log(2), lambda t: 1 / (1 + np.exp(-t)), 0.5, 1.0
    )
    a = solve(X, y, g, activation=own, nu=0.1, tol=1e-9)
    b = solve(X, y, g, activation="softplus", nu=0.1, tol=1e-9)
    np.testing.assert_allclose(a.coef, b.coef, atol=1e-6)


def test_not_converged_is_said():
    X, y, g = neuron_data(K=3, n=60, d=3)
    found = solve(X, y, g, nu=0.1, polish=False, max_iter=3, schedule=AdaptiveSteps())
    assert not found.converged
    assert "max_iter=3" in found.status
    assert "Raise max_iter" in found.status


@pytest.mark.parametrize("scales", [(1e5, 1e-5), (1e3, 1e-3)])
@pytest.mark.parametrize("radius", [0.5, 1e-4])
@pytest.mark.parametrize("precondition", ["auto", "scale"])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_radius_holds_whatever_the_columns_scale(scales, radius, precondition, activation):
    X, y, g = neuron_data(K=3, n=80, d=2)
    found = solve(
        X * np.array(scales), y, g, activation=activation, nu=0.1, radius=radius,
        precondition=precondition,
    )  # fmt: skip
    assert np.linalg.norm(found.coef) <= radius * (1 + 1e-9)


@pytest.mark.parametrize(("radius", "size"), [(1e-13, 1.0), (1e-6, 1e8)])
def test_tiny_radius_is_met(radius, size):
    X, y, g = neuron_data(K=3, n=80, d=3)
    found = solve(X, size * y, g, activation="identity", nu=0.1, radius=radius)
    assert np.linalg.norm(found.coef) == pytest.approx(radius, rel=1e-6)


@pytest.mark.parametrize("constant", [3.7, 10.1, 1000.0, 1e7])
@pytest.mark.parametrize("activation", ["identity", "relu", "softplus"])
@pytest.mark.parametrize("precondition", ["scale", "whiten"])
def test_a_constant_column_gets_no_coefficient(constant, activation, precondition):
    X, y, g = neuron_data(K=3, n=80, d=3)
    options = dict(activation=activation, nu=0.1, precondition=precondition)
    found = solve(np.c_[X, np.full(len(X), constant)], y, g, **options)
    assert found.coef[-1] == 0.0
    assert found.risk == pytest.approx(solve(X, y, g, **options).risk, rel=1e-4)


def test_auto_nu_does_not_depend_on_the_precondition():
    X, y, g = neuron_data(K=3, n=200, d=5, activation="identity")
    X = X * np.geomspace(1, 1e-3, 5)
    nus = [solve(X, y, g, activation="identity", precondition=p).nu
           for p in ("whiten", "scale", None)]  # fmt: skip
    assert max(nus) <= 1.01 * min(nus)


def test_wide_problems_with_nu_zero_reach_their_tolerance():
    X, y, g = neuron_data(K=3, n=150, d=20, activation="identity", seed=2)
    wide = np.hstack([X, np.zeros((len(X), 560))])
    found = solve(wide, y, g, activation="identity", nu=0.0)
    exact = solve(X, y, g, activation="identity", nu=0.0)
    assert found.risk <= exact.risk * (1 + 1e-3)
    assert found.converged
    assert found.certificate.duality_gap <= 1e-4 * found.risk


@pytest.mark.parametrize("largest", [1e307, 1e-307])
def test_sample_weights_of_any_size(largest):
    X, y, g = neuron_data(K=3, n=60, d=3)
    weights = np.random.default_rng(0).uniform(0.5, 1.0, size=len(y))
    a, b = solve(X, y, g, weights, nu=0.1), solve(X, y, g, largest * weights, nu=0.1)
    np.testing.assert_allclose(a.coef, b.coef, rtol=1e-6)


def test_solve_refuses_bad_rows():
    X, y, g = neuron_data(K=3, n=60, d=3)
    with pytest.raises(ValueError, match="NaN"):
        solve(np.where(X > 2, np.nan, X), y, g)
    with pytest.raises(ValueError, match="1d array"):
        solve(X, np.c_[y, y], g)
    assert solve(X.tolist(), y.tolist(), g.tolist(), nu=0.1).risk > 0


def test_curvature_keeps_to_its_memory(monkeypatch):
    X, y, g = neuron_data(K=3, n=400, d=6)
    whole = make_engine(GroupedData.build(X, y, g), NAMED["relu"]())
    full = whole.curvature(np.ones(7), np.array([0.2, 0.3, 0.5]))
    monkeypatch.setattr("counterpoise.rows.engines.row_part.MATRIX_BYTES", 1)
    tight = whole.curvature(np.ones(7), np.array([0.2, 0.3, 0.5]))
    np.testing.assert_allclose(tight, full, rtol=1e-12)


@pytest.mark.parametrize("nu", [0.0, 0.05])
@pytest.mark.parametrize("excess", [0.2, -0.05, -0.9])
def test_references_above_the_losses_make_negative_risks_that_are_minimised_all_the_same(
    excess, nu
):
    X, y, g = neuron_data(K=4, n=60, d=6, activation="identity", noise=(0.5, 1.0))
    floors = []
    for k in range(4):
        rows = np.column_stack([X[g == k], np.ones(60)])
        rest = y[g == k] - rows @ np.linalg.lstsq(rows, y[g == k], rcond=None)[0]
        floors.append(np.mean(rest**2) - excess)
    found = solve(X, y, g, activation="identity", nu=nu, reference=floors)
    w, b = cp.Variable(6), cp.Variable()
    excess = linear_losses(X, y, g, w, b) - np.array(floors)
    exact = solved(cp.Problem(cp.Minimize(risk_of(excess, nu=nu))))
    assert found.converged
    assert found.risk == pytest.approx(exact, abs=1e-6)
    assert found.certificate.duality_gap < 1e-6


def test_an_unknown_option_is_named():
    X, y, g = neuron_data(K=2, n=30, d=2)
    with pytest.raises(TypeError, match=r"trunkate=2 is not an option.*did you mean 'truncate'"):
        solve(X, y, g, trunkate=2)


def test_an_estimator_has_the_options_of_a_fit_with_their_defaults():
    defaults = {field.name: field.default for field in fields(FitOptions)}
    given = GroupDRONeuron().get_params()
    assert defaults.pop("loss") is None
    assert defaults.pop("ridge") == 0.0
    assert {name: given[name] for name in defaults} == defaults


def test_a_lazy_frame_is_collected():
    polars = pytest.importorskip("polars")
    X, y, g = neuron_data(K=2, n=60, d=3)
    frame = polars.DataFrame(X, schema=["a", "b", "c"])
    plain = GroupDRONeuron("identity", nu=0.1).fit(frame, y, groups=g)
    lazy = GroupDRONeuron("identity", nu=0.1).fit(frame.lazy(), y, groups=g)
    np.testing.assert_array_equal(lazy.coef_, plain.coef_)
    np.testing.assert_array_equal(lazy.predict(frame.lazy()), plain.predict(frame))
    assert solve(frame.lazy(), y, g, activation="identity", nu=0.1).risk == plain.risk_
