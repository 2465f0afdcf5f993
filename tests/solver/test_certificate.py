"""Every claim of a certificate, against problems whose best neuron is known."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from problems import group_losses, linear_with_known_minimiser, neuron_data, realisable
from references import linear_losses, risk_of, solved

from counterpoise import AdaptiveSteps, solve
from counterpoise.activations import NAMED
from counterpoise.dual.divergences import KL, ChiSquare
from counterpoise.dual.objective import Objective
from counterpoise.solver.certificate import largest_loss_at_optimum

OBJECTIVES = [("kl", 0.1), ("kl", 0.0), ("chi2", 0.1), ("chi2", 0.0)]


def distance(X, coef, w, groups):
    """The whitened metric: root mean square score difference, averaged over groups."""
    return math.sqrt(group_losses(X @ coef, X @ w, groups).mean())


@pytest.mark.parametrize(("divergence", "nu"), OBJECTIVES)
@pytest.mark.parametrize("polish", [True, False])
def test_identity_claims_against_a_known_minimiser(divergence, nu, polish):
    X, y, g, w, levels = linear_with_known_minimiser(K=4, n=200, d=5)
    found = solve(
        X, y, g, activation="identity", divergence=divergence, nu=nu, fit_intercept=False,
        polish=polish, tol=1e-9 if polish else 1e-4,
    )  # fmt: skip
    claim = found.certificate
    best = Objective({"kl": KL(), "chi2": ChiSquare()}[divergence], nu, np.full(4, 0.25),
                     np.zeros(4)).risk(levels)  # fmt: skip
    assert found.risk >= best * (1 - 1e-12)
    assert claim.duality_gap is not None
    assert found.risk - claim.duality_gap <= best * (1 + 1e-12)
    assert claim.opt_bound >= levels.max() * (1 - 1e-9)
    assert claim.returned_bound >= distance(X, found.coef, w, g)
    if not polish:
        assert claim.theorem_bound >= distance(X, found.coef, w, g)
    if polish:
        assert claim.duality_gap <= 1e-7 * best
        assert claim.returned_bound < 1e-3
    assert claim.running_slack <= 0


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "softplus", "elu", "huber_relu"])
@pytest.mark.parametrize(("divergence", "nu"), OBJECTIVES)
def test_claims_for_realisable_labels(activation, divergence, nu):
    """The labels' own neuron has risk zero: it is a minimiser, and OPT = 0."""
    X, y, g, w = realisable(activation=activation)
    rough = solve(
        X, y, g, activation=activation, divergence=divergence, nu=nu, fit_intercept=False,
        polish=False, tol=0.0, max_iter=3,
    )  # fmt: skip
    claim = rough.certificate
    assert claim.duality_gap is None
    gap = distance(X, rough.coef, w, g)
    assert gap > 1e-3, "a finished fit would make the test empty"
    assert claim.opt_bound >= 0
    sharp = sharpness_to(X, rough, w, g, activation)
    assert claim.at_sharpness(sharp).returned_bound >= gap
    fine = solve(X, y, g, activation=activation, divergence=divergence, nu=nu, fit_intercept=False)
    assert fine.risk <= 1e-8 * np.mean(y**2)
    sharp = fine.certificate.at_sharpness(fine.certificate.c1)
    assert distance(X, fine.coef, w, g) <= sharp.returned_bound + 1e-9


def sharpness_to(X, found, w, groups, activation):
    sigma = NAMED[activation]().value
    apart = group_losses(sigma(X @ found.coef), sigma(X @ w), groups)
    return float(apart.min() / group_losses(X @ found.coef, X @ w, groups).mean())


@pytest.mark.parametrize(("divergence", "nu"), OBJECTIVES)
def test_theorem_bound_covers_the_last_iterate(divergence, nu):
    X, y, g, w = realisable(activation="relu")
    y = y + 0.3 * np.random.default_rng(0).normal(size=len(y))
    long = solve(
        X, y, g, divergence=divergence, nu=nu, fit_intercept=False, polish=False, tol=0.0,
        max_iter=300,
    )  # fmt: skip
    claim = long.certificate.at_sharpness(long.certificate.c1)
    assert math.isfinite(claim.theorem_bound)
    best = solve(X, y, g, divergence=divergence, nu=nu, fit_intercept=False)
    assert distance(X, long.coef, best.coef, g) <= claim.theorem_bound
    returned = best.certificate.at_sharpness(best.certificate.c1).returned_bound
    assert distance(X, best.coef, w, g) <= returned


@pytest.mark.parametrize("radius", [0.3, 1.0])
@pytest.mark.parametrize("nu", [0.0, 0.2])
def test_duality_gap_inside_a_ball(radius, nu):
    X, y, g = neuron_data(K=4, n=80, d=5, activation="identity")
    found = solve(X, y, g, activation="identity", nu=nu, radius=radius, tol=1e-10)
    w, b = cp.Variable(5), cp.Variable()
    goal = risk_of(linear_losses(X, y, g, w, b), nu=nu)
    exact = solved(cp.Problem(cp.Minimize(goal), [cp.norm(w) <= radius]))
    assert np.linalg.norm(found.coef) <= radius * (1 + 1e-12)
    assert found.risk == pytest.approx(exact, rel=1e-6)
    assert found.risk - found.certificate.duality_gap <= exact * (1 + 1e-6)
    assert found.certificate.duality_gap <= 1e-4 * exact


def test_certificate_prints_as_a_paragraph():
    X, y, g = neuron_data(K=4, n=80, d=5)
    text = str(solve(X, y, g, nu=0.1).certificate)
    assert "may not be globally optimal" in text
    assert "duality gap" not in text
    assert "certificate='region' proves" in text
    assert "\n" not in text
    convex = str(solve(X, y, g, activation="identity", nu=0.1).certificate)
    assert "duality gap" in convex
    assert "nonconvex" not in convex


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "softplus", "elu", "huber_relu"])
@pytest.mark.parametrize("seed", range(6))
def test_no_distance_is_claimed_for_a_sharpness_that_was_only_measured(activation, seed):
    """Few rows without noise: other coefficients have risk 0 too, far from those returned."""
    rng = np.random.default_rng(8 + seed)
    X, w = rng.normal(size=(12, 5)), rng.normal(size=5)
    y = NAMED[activation]().value(X @ w)
    claim = solve(X, y, activation=activation, nu=0.0, fit_intercept=False).certificate
    assert math.isinf(claim.returned_bound)
    assert math.isinf(claim.theorem_bound)
    assert "within" not in str(claim)
    assert not claim.claims_distance
    told = claim.at_sharpness(0.3)
    assert math.isfinite(told.returned_bound)
    assert "c1 = 0.3 (given)" in str(told)


def test_a_lower_bound_is_not_below_the_obvious_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    claim = solve(X, X @ [1.0, 2.0, 3.0], activation="identity", nu=0.0).certificate
    assert "no coefficients have a risk below 0." in str(claim)


def test_certificate_explains_a_missing_bound():
    X, y, g = neuron_data(K=4, n=80, d=5)
    early = solve(X, y, g, nu=0.1, polish=False, max_iter=2, tol=0.0).certificate
    assert math.isinf(early.theorem_bound)
    assert "stopped too early" in str(early.at_sharpness(0.2))
    greedy = solve(
        X, y, g, nu=0.1, polish=False, max_iter=60, tol=0.0, schedule=AdaptiveSteps(c1=1.9)
    ).certificate
    weak = greedy.at_sharpness(0.1)
    assert math.isinf(weak.theorem_bound)
    assert "assumed 1.9" in str(weak)


def test_positive_slack_enters_the_bound():
    """Labels of pure noise: the surrogate raises the loss, and the account says so."""
    X, _, g = neuron_data(K=4, n=60, d=20)
    y = np.random.default_rng(0).normal(size=len(X))
    noisy = solve(X, y, g, nu=0.1, polish=False, max_iter=200, tol=0.0).certificate
    assert noisy.running_slack > 0
    assert "did not pay for all" in str(noisy)
    k = noisy.constants
    assert k.slack(k.account.c1) == pytest.approx(noisy.running_slack)
    assert k.theorem_rhs(k.account.c1, 0.0, 0.0, 0.0) >= noisy.running_slack


def test_at_sharpness_rejects_nonsense():
    X, y, g = neuron_data(K=2, n=40, d=3)
    certificate = solve(X, y, g, nu=0.1).certificate
    with pytest.raises(ValueError, match="c1 must be a positive number"):
        certificate.at_sharpness(0.0)


@pytest.mark.parametrize("divergence", [KL(), ChiSquare()], ids=["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 1e-3, 0.3, 1e3])
def test_largest_loss_at_optimum_is_a_bound(divergence, nu):
    rng = np.random.default_rng(0)
    for _ in range(50):
        prior = rng.dirichlet(np.ones(4))
        reference = rng.uniform(0, 0.5, size=4) * rng.integers(0, 2)
        objective = Objective(divergence, nu, prior, reference)
        losses = rng.exponential(size=4)
        worse = objective.risk(losses) + rng.exponential()
        bound = largest_loss_at_optimum(objective, worse)
        assert bound >= losses.max() * (1 - 1e-9)


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 1e-12, 1e-9, 1e-6])
def test_weights_of_tied_groups_prove_the_linear_fit(divergence, nu):
    """Where losses tie, weights must come from the problem and not from rounding."""
    for seed in range(15):
        X, y, g = neuron_data(K=3, n=60, d=4, activation="identity", seed=seed)
        found = solve(X, y, g, activation="identity", divergence=divergence, nu=nu)
        assert found.certificate.duality_gap <= 1e-6 * found.risk


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_weights_of_tied_groups_balance_the_gradients(divergence):
    for seed in range(10):
        X, y, g = neuron_data(K=3, n=300, d=3, activation="softplus", seed=seed)
        found = solve(X, y, g, activation="softplus", divergence=divergence, nu=0.0, tol=1e-9)
        z = X @ found.coef + found.intercept
        slope = 1 / (1 + np.exp(-z))
        r = 2 * (np.logaddexp(0, z) - np.log(2) - y) * slope
        grads = np.array([np.c_[X, np.ones(len(X))][g == i].T @ r[g == i] / 300 for i in range(3)])
        assert np.linalg.norm(found.weights @ grads) <= 1e-2 * np.linalg.norm(grads, axis=1).max()


def test_near_duplicate_columns_are_used_or_the_claim_says_not():
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(2, 400))
    near = solve(np.c_[x, x + 1e-6 * e], e, np.arange(400) % 2, activation="identity", nu=0.1)
    assert near.risk < 1e-6
    same = solve(np.c_[x, x + 1e-13 * e], e, np.arange(400) % 2, activation="identity", nu=0.1)
    assert same.certificate.dropped == 1
    assert "without a component in the 1 direction(s)" in str(same.certificate)
    for precondition in ("scale", None):
        found = solve(np.c_[x, x + 1e-7 * e], e, np.arange(400) % 2, activation="identity", nu=0.1,
                      precondition=precondition)  # fmt: skip
        assert found.risk < 1e-6 or found.certificate.dropped == 1


def test_zero_sharpness_gives_no_bound():
    """Labels below anything a ReLU can say: coefficients move, its output does not."""
    X, _, g = neuron_data(K=3, n=60, d=3)
    found = solve(X, np.full(len(X), -1.0), g, nu=0.1, fit_intercept=True)
    assert found.certificate.c1 == 0
    assert math.isinf(found.certificate.returned_bound)
    with pytest.raises(ValueError, match="c1"):
        found.certificate.at_sharpness(0.0)


@pytest.mark.slow
def test_positive_slack_stays_positive_beyond_the_range_of_doubles():
    X, _, g = neuron_data(K=4, n=60, d=20)
    y = np.random.default_rng(0).normal(size=len(X))
    found = solve(X, y, g, nu=0.1, polish=False, max_iter=12_000, tol=0.0,
                  schedule=AdaptiveSteps(c1=0.9))  # fmt: skip
    assert found.certificate.constants.account.slack > 0
    assert found.certificate.running_slack > 0
    assert found.history["slack"][-1] > 0
    assert all(np.isfinite(v).all() for v in found.history.values())
