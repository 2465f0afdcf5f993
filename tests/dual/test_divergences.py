"""Divergences: closed forms, references from a convex solver, and behaviour at extremes."""

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import distance, solved
from scipy.special import logsumexp

from counterpoise import risk
from counterpoise.dual.divergences import (
    KL,
    ChiSquare,
    CVaR,
    Divergence,
    SimplexPoint,
    check_nu,
    check_prior,
    get_divergence,
)

BOTH = [KL(), ChiSquare()]
property_test = settings(deadline=None, derandomize=True, max_examples=100)


def random_prior(rng, K):
    prior = rng.dirichlet(np.full(K, 2.0)) + 0.02
    return prior / prior.sum()


def reference_response(name, losses, prior, nu, kappa=0.0, centre=None):
    """Value and maximiser from a general convex solver."""
    lam = cp.Variable(len(losses), nonneg=True)
    objective = losses @ lam - nu * distance(name, lam, prior, prior)
    if kappa:
        objective -= kappa * distance(name, lam, centre, prior)
    value = solved(cp.Problem(cp.Maximize(objective), [cp.sum(lam) == 1]))
    return value, lam.value


# -- the risk ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_nu_zero_is_the_largest_loss(name):
    assert risk([1.0, 7.5, 3.0], 0.0, name) == 7.5
    assert risk([-4.0, -2.5], 0, name, prior=[0.9, 0.1]) == -2.5


@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_one_group_is_its_own_risk(name):
    for nu in (0.0, 1e-12, 0.3, 1e12):
        assert risk([2.5], nu, name) == pytest.approx(2.5, rel=1e-15)


@pytest.mark.parametrize("name", ["kl", "chi2"])
@pytest.mark.parametrize("seed", range(5))
def test_large_nu_is_the_mean_plus_variance_over_nu(name, seed):
    """Second order: ``mean + var / (2 nu)`` for KL and ``/ (4 nu)`` for chi-squared."""
    rng = np.random.default_rng(seed)
    prior, losses = random_prior(rng, 6), rng.exponential(size=6)
    mean = prior @ losses
    variance = prior @ (losses - mean) ** 2
    nu = 1e6
    excess = risk(losses, nu, name, prior) - mean
    assert excess == pytest.approx(variance / nu / (2.0 if name == "kl" else 4.0), rel=1e-4)


@pytest.mark.parametrize("nu", [1e20, 1e24, 1e28, 1e100, 1e300])
@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_huge_nu_is_the_mean(name, nu):
    rng = np.random.default_rng(5)
    for _ in range(50):
        K = int(rng.integers(2, 20))
        prior, losses = random_prior(rng, K), rng.exponential(size=K)
        assert risk(losses, nu, name, prior) == pytest.approx(prior @ losses, rel=1e-13)


@pytest.mark.parametrize("nu", [1e-3, 0.05, 0.7, 3.0, 1e3])
def test_kl_risk_is_a_log_sum_exp(nu):
    rng = np.random.default_rng(0)
    for K in (2, 5, 40):
        prior, losses = random_prior(rng, K), rng.exponential(size=K)
        expected = nu * logsumexp(losses / nu, b=prior)
        assert risk(losses, nu, "kl", prior) == pytest.approx(expected, rel=1e-12)
        uniform = nu * (logsumexp(losses / nu) - math.log(K))
        assert risk(losses, nu) == pytest.approx(uniform, rel=1e-12)


def test_kl_risk_keeps_digits_when_losses_hardly_differ():
    """Spread far below nu: the excess over the mean is var / (2 nu), not rounding."""
    losses, nu = np.array([1e-8, 3e-8]), 1.0
    assert risk(losses, nu) - 2e-8 == pytest.approx(0.5e-16, rel=1e-6)


@pytest.mark.parametrize("name", ["kl", "chi2"])
@pytest.mark.parametrize("seed", range(6))
def test_risk_against_a_convex_solver(name, seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 9))
    losses, prior = rng.exponential(size=K), random_prior(rng, K)
    nu = float(10 ** rng.uniform(-1.5, 1.0))
    for p in (prior, np.full(K, 1.0 / K)):
        expected, _ = reference_response(name, losses, p, nu)
        assert risk(losses, nu, name, p) == pytest.approx(expected, rel=1e-7)


def test_chi_squared_risk_by_hand():
    """Two even groups: lam = 1/2 +- s, maximising s gap - 4 nu s^2, clipped at s = 1/2."""
    gap, nu = 0.6, 0.5
    s = gap / (8 * nu)
    assert risk([1.0, 1.0 + gap], nu, "chi2") == pytest.approx(
        1.0 + gap / 2 + s * gap - 4 * nu * s**2, rel=1e-14
    )
    assert risk([1.0, 1.0 + gap], 0.1, "chi2") == pytest.approx(1.0 + gap - 0.1, rel=1e-14)


# -- best responses ------------------------------------------------------------------------


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(6))
def test_response_against_a_convex_solver(d_f, seed):
    rng = np.random.default_rng(100 + seed)
    K = int(rng.integers(2, 9))
    losses, prior = rng.exponential(size=K), random_prior(rng, K)
    centre = SimplexPoint.of(random_prior(rng, K))
    nu, kappa = 10 ** rng.uniform(-1.0, 1.0, size=2)
    for n, k in ((nu, 0.0), (nu, kappa), (0.0, kappa)):
        expected_value, expected = reference_response(d_f.name, losses, prior, n, k, centre.weights)
        point = d_f.respond(losses, prior, nu=n, kappa=k, centre=centre)
        np.testing.assert_allclose(point.weights, expected, atol=3e-4)  # root of its tolerance
        value = point.weights @ losses - n * d_f.value(point.weights, prior)
        value -= k * d_f.bregman(point, centre, prior)
        assert value >= expected_value - 1e-8
        assert value == pytest.approx(expected_value, rel=1e-7, abs=1e-8)


def test_kl_response_by_hand():
    prior = np.array([0.2, 0.8])
    point = KL().respond(np.array([math.log(4.0), 0.0]), prior, nu=1.0)
    np.testing.assert_allclose(point.weights, [0.5, 0.5], rtol=1e-15)


def test_chi_squared_response_leaves_poor_groups_out():
    prior = np.full(3, 1 / 3)
    weights = ChiSquare().respond(np.array([0.0, 1.0, 1.0]), prior, nu=0.1).weights
    np.testing.assert_allclose(weights, [0.0, 0.5, 0.5], rtol=1e-15)


def test_chi_squared_finds_a_group_whose_prior_is_below_rounding():
    """With nu far below prior times gap, all the weight belongs to the worst group."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        prior = np.append(1e-20, rng.dirichlet(np.ones(6)))
        prior /= prior.sum()
        losses = np.append(1.0 + rng.random(), np.full(6, rng.random()))
        weights = ChiSquare().respond(losses, prior, nu=1e-23).weights
        assert weights[0] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_response_without_pull_ignores_the_centre(d_f):
    losses, prior = np.array([0.3, 0.9]), np.array([0.4, 0.6])
    far = SimplexPoint.of(np.array([0.99, 0.01]))
    with_centre = d_f.respond(losses, prior, nu=0.5, kappa=0.0, centre=far)
    np.testing.assert_array_equal(with_centre.weights, d_f.respond(losses, prior, nu=0.5).weights)


def test_kl_logs_survive_where_weights_underflow():
    point = KL().respond(np.array([0.0, 1.0]), np.array([0.5, 0.5]), nu=1e-4)
    assert point.weights[0] == 0.0
    assert point.logs[0] == pytest.approx(-1e4, rel=1e-12)


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_inputs_are_not_changed(d_f):
    rng = np.random.default_rng(8)
    losses, prior = rng.random(4), random_prior(rng, 4)
    centre = SimplexPoint.of(random_prior(rng, 4))
    before = [a.copy() for a in (losses, prior, *centre)]
    point = d_f.respond(losses, prior, nu=0.1, kappa=0.2, centre=centre)
    d_f.risk(losses, prior, 0.1)
    d_f.bregman(point, centre, prior)
    for now, then in zip((losses, prior, *centre), before, strict=True):
        np.testing.assert_array_equal(now, then)


# -- phi and its Bregman distance ----------------------------------------------------------


def gradient_of_phi(name, x, prior):
    return np.log(x / prior) + 1.0 if name == "kl" else 2.0 * (x - prior) / prior


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(5))
def test_bregman_is_phi_less_its_linearisation(d_f, seed):
    rng = np.random.default_rng(seed)
    x, y, prior = (random_prior(rng, 7) for _ in range(3))
    expected = d_f.value(y, prior) - d_f.value(x, prior)
    expected -= gradient_of_phi(d_f.name, x, prior) @ (y - x)
    got = d_f.bregman(SimplexPoint.of(y), SimplexPoint.of(x), prior)
    assert got == pytest.approx(expected, rel=1e-10)
    assert got > 0


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_value_is_the_distance_to_the_prior_and_its_largest_is_a_corner(d_f):
    rng = np.random.default_rng(4)
    prior = random_prior(rng, 5)
    x = random_prior(rng, 5)
    assert d_f.value(prior, prior) == 0.0
    assert d_f.value(x, prior) == pytest.approx(
        d_f.bregman(SimplexPoint.of(x), SimplexPoint.of(prior), prior), rel=1e-12
    )
    corners = [d_f.value(row, prior) for row in np.eye(5)]
    np.testing.assert_allclose(d_f.corners(prior), corners, rtol=1e-12)
    assert int(np.argmax(corners)) == int(np.argmin(prior))


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_bregman_is_exactly_zero_at_equal_points(d_f):
    rng = np.random.default_rng(9)
    for K in (1, 2, 50):
        prior = random_prior(rng, K)
        point = d_f.respond(rng.random(K), prior, nu=0.01)
        assert d_f.bregman(point, point, prior) == 0.0


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_bregman_at_equal_points_with_absent_groups(d_f):
    point = SimplexPoint.of(np.array([0.25, 0.0, 0.75]))
    assert d_f.bregman(point, point, np.full(3, 1 / 3)) == 0.0


@pytest.mark.parametrize("size", [1e-3, 1e-5, 1e-7])
def test_kl_bregman_is_accurate_for_nearly_equal_points(size):
    """``sum x (d^2/2 - d^3/6 + d^4/12)`` with y = x (1 + d), far below what phi resolves."""
    x = np.array([0.1, 0.2, 0.3, 0.4])
    d = size * np.array([1.0, -2.0, 1.0, 0.0])
    d[3] = -(x[:3] @ d[:3]) / x[3]
    expected = x @ (d**2 / 2 - d**3 / 6 + d**4 / 12)
    got = KL().bregman(SimplexPoint.of(x * (1 + d)), SimplexPoint.of(x), np.full(4, 0.25))
    assert got == pytest.approx(expected, rel=max(1e-14 / size, 1e-9))


def test_kl_bregman_sees_a_group_that_is_zero_as_a_number():
    """A centre weight of e^-1000 underflows; its logarithm still says how far it is."""
    point = SimplexPoint.of(np.array([0.5, 0.5]))
    centre = SimplexPoint(np.array([1.0, 0.0]), np.array([0.0, -1000.0]))
    expected = 0.5 * math.log(0.5) + 0.5 * (math.log(0.5) + 1000.0)
    assert KL().bregman(point, centre, np.array([0.5, 0.5])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_a_group_without_weight_costs_nothing_extra_in_kl_and_its_prior_in_chi2(d_f):
    prior = np.array([0.5, 0.5])
    expected = math.log(2.0) if d_f.name == "kl" else 1.0
    assert d_f.value(np.array([1.0, 0.0]), prior) == pytest.approx(expected, rel=1e-15)


# -- sensitivity ---------------------------------------------------------------------------


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
@pytest.mark.parametrize(("nu", "kappa"), [(0.4, 0.0), (0.4, 1.5), (0.0, 0.8)])
def test_sensitivity_against_finite_differences(d_f, nu, kappa):
    rng = np.random.default_rng(12)
    losses, prior = rng.exponential(size=6), random_prior(rng, 6)
    centre = SimplexPoint.of(random_prior(rng, 6))

    def weights(at):
        return d_f.respond(at, prior, nu=nu, kappa=kappa, centre=centre).weights

    s, factor = d_f.sensitivity(
        d_f.respond(losses, prior, nu=nu, kappa=kappa, centre=centre), prior
    )
    jacobian = factor / (nu + kappa) * (np.diag(s) - np.outer(s, s) / s.sum())
    h = 1e-6
    numeric = np.column_stack(
        [(weights(losses + h * e) - weights(losses - h * e)) / (2 * h) for e in np.eye(6)]
    )
    np.testing.assert_allclose(jacobian, numeric, atol=1e-8)


@pytest.mark.parametrize("d_f", BOTH, ids=lambda d: d.name)
def test_weights_are_the_gradient_of_the_risk(d_f):
    rng = np.random.default_rng(21)
    losses, prior = rng.exponential(size=5), random_prior(rng, 5)
    weights, h = d_f.respond(losses, prior, nu=0.3).weights, 1e-6
    numeric = [
        (d_f.risk(losses + h * e, prior, 0.3) - d_f.risk(losses - h * e, prior, 0.3)) / (2 * h)
        for e in np.eye(5)
    ]
    np.testing.assert_allclose(weights, numeric, atol=1e-8)


# -- properties ----------------------------------------------------------------------------

names = st.sampled_from(["kl", "chi2"])
exponents = st.floats(-8.0, 16.0)
wide_losses = st.lists(exponents.map(lambda e: 10.0**e), min_size=1, max_size=12).map(np.array)
tame_losses = st.lists(st.floats(0.0, 10.0), min_size=2, max_size=10).map(np.array)
any_nu = st.floats(-300.0, 300.0).map(lambda e: 10.0**e)
tame_nu = st.floats(-2.0, 2.0).map(lambda e: 10.0**e)
seeds = st.integers(0, 2**32 - 1)


@property_test
@given(names, wide_losses, any_nu, any_nu, seeds)
def test_responses_are_probability_vectors_at_any_scale(name, losses, nu, kappa, seed):
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, len(losses))
    centre = SimplexPoint.of(random_prior(rng, len(losses)))
    for point in (
        get_divergence(name).respond(losses, prior, nu=nu),
        get_divergence(name).respond(losses, prior, nu=nu, kappa=kappa, centre=centre),
        get_divergence(name).respond(losses, prior, nu=0.0, kappa=kappa, centre=centre),
    ):
        assert (point.weights >= 0).all()
        assert abs(point.weights.sum() - 1.0) <= 1e-12
        assert not np.isnan(point.logs).any()


@property_test
@given(names, wide_losses, any_nu, seeds)
def test_risk_lies_between_the_mean_and_the_maximum_at_any_scale(name, losses, nu, seed):
    prior = random_prior(np.random.default_rng(seed), len(losses))
    value, top = risk(losses, nu, name, prior), losses.max()
    assert prior @ losses - 1e-13 * top <= value <= top * (1 + 1e-15)


@property_test
@given(names, tame_losses, tame_nu, st.floats(-1e3, 1e3))
def test_a_constant_added_to_all_losses_moves_only_the_risk(name, losses, nu, constant):
    d_f, prior = get_divergence(name), np.full(len(losses), 1.0 / len(losses))
    assert risk(losses + constant, nu, name) == pytest.approx(
        risk(losses, nu, name) + constant, abs=1e-11
    )
    moved = d_f.respond(losses + constant, prior, nu=nu).weights
    np.testing.assert_allclose(moved, d_f.respond(losses, prior, nu=nu).weights, atol=1e-9)


@property_test
@given(names, tame_losses, tame_nu, st.integers(-200, 200))
def test_the_unit_of_the_loss_does_not_matter(name, losses, nu, power):
    f = 2.0**power
    d_f, prior = get_divergence(name), np.full(len(losses), 1.0 / len(losses))
    assert risk(f * losses, f * nu, name) == pytest.approx(f * risk(losses, nu, name), rel=1e-12)
    scaled = d_f.respond(f * losses, prior, nu=f * nu).weights
    np.testing.assert_allclose(scaled, d_f.respond(losses, prior, nu=nu).weights, rtol=1e-12)


@property_test
@given(names, tame_losses, tame_nu, st.floats(1.0, 50.0), st.data())
def test_risk_falls_with_nu_and_rises_with_any_loss(name, losses, nu, factor, data):
    value = risk(losses, nu, name)
    assert risk(losses, factor * nu, name) <= value + 1e-12 * (1 + abs(value))
    worse = losses.copy()
    worse[data.draw(st.integers(0, len(losses) - 1))] += data.draw(st.floats(0.0, 5.0))
    assert risk(worse, nu, name) >= value - 1e-12 * (1 + abs(value))


@property_test
@given(names, tame_losses, tame_nu, seeds)
def test_a_larger_loss_never_has_less_weight_per_prior(name, losses, nu, seed):
    prior = random_prior(np.random.default_rng(seed), len(losses))
    share = get_divergence(name).respond(losses, prior, nu=nu).weights / prior
    ordered = share[np.argsort(losses, kind="stable")]
    assert (np.diff(ordered) >= -1e-12 * share.max()).all()


@property_test
@given(names, tame_losses, tame_nu, seeds)
def test_no_weights_do_better_than_the_response(name, losses, nu, seed):
    rng = np.random.default_rng(seed)
    d_f, K = get_divergence(name), len(losses)
    prior = random_prior(rng, K)
    best = risk(losses, nu, name, prior)
    for lam in rng.dirichlet(np.ones(K), size=5):
        assert lam @ losses - nu * d_f.value(lam, prior) <= best + 1e-11 * (1 + abs(best) + nu)


@property_test
@given(names, seeds, st.integers(1, 30))
def test_bregman_is_never_negative(name, seed, K):
    rng = np.random.default_rng(seed)
    d_f, prior = get_divergence(name), random_prior(rng, K)
    a = d_f.respond(rng.exponential(size=K), prior, nu=10 ** rng.uniform(-3, 2))
    b = d_f.respond(rng.exponential(size=K), prior, nu=10 ** rng.uniform(-3, 2))
    assert d_f.bregman(a, b, prior) >= 0.0


# -- arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("losses", [[], [[1.0, 2.0]], 3.0])
def test_losses_must_be_a_vector(losses):
    with pytest.raises(ValueError, match="losses must be a vector"):
        risk(losses, 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_losses_must_be_finite(bad):
    with pytest.raises(ValueError, match="losses must be finite"):
        risk([1.0, bad], 1.0)


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_infinite_nu_gives_the_mean_under_the_prior(divergence):
    prior = np.array([0.2, 0.3, 0.5])
    assert risk([1.0, 2.0, 5.0], math.inf, divergence, prior) == pytest.approx(3.3, rel=1e-15)
    assert risk([1.0, 2.0, 5.0], 1e9, divergence, prior) == pytest.approx(3.3, rel=1e-8)


@pytest.mark.parametrize("nu", [-1e-9, math.nan, -math.inf])
def test_nu_must_not_be_negative(nu):
    with pytest.raises(ValueError, match="nu must be >= 0") as caught:
        risk([1.0, 2.0], nu)
    assert repr(nu) in str(caught.value)


@pytest.mark.parametrize("nu", [True, "1", None, [1.0]])
def test_nu_must_be_a_number(nu):
    with pytest.raises(ValueError, match="nu must be a number"):
        check_nu(nu)


def test_nu_may_be_a_numpy_scalar():
    assert check_nu(np.float32(0.5)) == 0.5
    assert check_nu(np.int64(3)) == 3.0


def test_prior_defaults_to_uniform_and_is_normalised():
    np.testing.assert_array_equal(check_prior(None, 4), np.full(4, 0.25))
    assert check_prior([0.3, 0.7 + 5e-7], 2).sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([0.5, 0.5], "one weight for each of 3 groups"),
        ([[0.2, 0.3, 0.5]], "one weight for each of 3 groups"),
        ([0.5, 0.5, 0.0], "entry 2 is"),
        ([-0.1, 0.6, 0.5], "entry 0 is"),
        ([0.5, math.nan, 0.5], "entry 1 is"),
        ([0.5, 0.2, 0.2], "it sums to 0.9"),
    ],
)
def test_bad_priors_are_refused(prior, message):
    with pytest.raises(ValueError, match=message):
        risk([1.0, 2.0, 3.0], 1.0, prior=prior)


def test_divergences_by_name_or_object():
    own = ChiSquare()
    assert get_divergence(own) is own
    assert isinstance(get_divergence("kl"), KL)
    assert isinstance(get_divergence("chi2"), ChiSquare)
    assert repr(get_divergence("kl")) == "KL()"
    assert risk([1.0, 2.0], 0.5, ChiSquare()) == risk([1.0, 2.0], 0.5, "chi2")


@pytest.mark.parametrize("wrong", ["KL", "tv", None, 2, KL])
def test_unknown_divergences_list_the_known_ones(wrong):
    with pytest.raises(ValueError, match="'kl', 'chi2'"):
        risk([1.0, 2.0], 0.5, wrong)


def test_an_unfinished_divergence_says_what_it_lacks():
    class Half(Divergence):
        name = "half"

    with pytest.raises(NotImplementedError, match="Half"):
        risk([1.0, 2.0], 0.5, Half())


# -- conditional value at risk over groups -----------------------------------------------------


def capped_reference(losses, prior, alpha, nu, kappa=0.0, centre=None):
    """Value, maximiser and objective of a general convex solver."""
    lam = cp.Variable(len(losses))
    goal = lam @ losses
    if nu:
        goal -= nu * cp.sum(cp.rel_entr(lam, prior))
    if kappa:
        goal -= kappa * cp.sum(cp.rel_entr(lam, centre))
    problem = cp.Problem(cp.Maximize(goal), [cp.sum(lam) == 1, lam >= 0, lam <= prior / alpha])
    value, best = solved(problem), lam.value

    def objective(weights):
        lam.value = weights
        return float(goal.value)

    return value, best, objective


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_cvar_against_a_linear_program(alpha, seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 9))
    losses, prior = rng.exponential(size=K), random_prior(rng, K)
    expected, _, _ = capped_reference(losses, prior, alpha, 0.0)
    assert CVaR(alpha).risk(losses, prior, 0.0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("nu", "kappa"), [(0.4, 0.0), (0.4, 1.5), (0.0, 0.8)])
@pytest.mark.parametrize("seed", range(6))
def test_capped_response_against_a_convex_solver(nu, kappa, seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 9))
    losses, prior, centre = rng.exponential(size=K), random_prior(rng, K), random_prior(rng, K)
    alpha = float(rng.uniform(0.2, 1.0))
    value, expected, objective = capped_reference(losses, prior, alpha, nu, kappa, centre)
    point = CVaR(alpha).respond(losses, prior, nu=nu, kappa=kappa, centre=SimplexPoint.of(centre))
    np.testing.assert_allclose(point.weights, expected, atol=3e-4)  # root of its tolerance
    assert objective(point.weights) == pytest.approx(value, abs=1e-7)
    np.testing.assert_allclose(np.exp(point.logs), point.weights, rtol=1e-9)


@property_test
@given(
    losses=st.lists(st.floats(0, 1e3), min_size=1, max_size=12),
    alpha=st.floats(0.01, 1.0),
    kappa=st.floats(1e-6, 1e6),
    seed=st.integers(0, 99),
)
def test_capped_weights_are_a_mixture_within_their_caps(losses, alpha, kappa, seed):
    losses = np.array(losses)
    prior = random_prior(np.random.default_rng(seed), len(losses))
    for point in (
        CVaR(alpha).respond(losses, prior, nu=0.0, kappa=kappa, centre=SimplexPoint.of(prior)),
        CVaR(alpha).top(losses, prior),
    ):
        assert point.weights.sum() == pytest.approx(1.0, rel=1e-12)
        assert (point.weights >= 0).all()
        assert (point.weights <= prior / alpha * (1 + 1e-9)).all()


def test_cvar_is_the_mean_of_the_worst_share_and_ends_at_mean_and_maximum():
    losses, prior = np.array([1.0, 5.0, 2.0, 4.0]), np.full(4, 0.25)
    assert CVaR(0.5).risk(losses, prior, 0.0) == pytest.approx(4.5)
    assert CVaR(0.75).risk(losses, prior, 0.0) == pytest.approx(11 / 3)
    assert CVaR(1.0).risk(losses, prior, 0.0) == pytest.approx(3.0)
    assert CVaR(0.25).risk(losses, prior, 0.0) == CVaR(0.01).risk(losses, prior, 0.0) == 5.0
    assert risk(losses, 0.0, CVaR(0.5)) == pytest.approx(4.5)
    shared = CVaR(0.5).top(np.array([3.0, 3.0, 3.0, 1.0]), prior)
    np.testing.assert_allclose(shared.weights, [1 / 3, 1 / 3, 1 / 3, 0])


def test_cvar_bregman_and_sensitivity_are_those_of_kl_where_no_cap_binds():
    rng = np.random.default_rng(3)
    losses, prior = rng.exponential(size=5), random_prior(rng, 5)
    free = KL().respond(losses, prior, nu=5.0)
    point = CVaR(0.1).respond(losses, prior, nu=5.0)
    np.testing.assert_array_equal(point.weights, free.weights)
    tight = CVaR(0.9).respond(10 * losses, prior, nu=0.5)
    s, factor = CVaR(0.9).sensitivity(tight, prior)
    h = 1e-6
    for i in range(5):
        bump = h * np.eye(5)[i]
        up, down = (
            CVaR(0.9).respond(10 * losses + e, prior, nu=0.5).weights for e in (bump, -bump)
        )
        expected = factor / 0.5 * (s[i] * np.eye(5)[i] - s * s[i] / s.sum())
        np.testing.assert_allclose((up - down) / (2 * h), expected, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.5, math.nan, True, "half"])
def test_alpha_must_be_a_share(alpha):
    with pytest.raises(ValueError, match=r"alpha must be a share of the groups in \(0, 1\]"):
        CVaR(alpha)


@property_test
@given(seed=st.integers(0, 10_000), K=st.integers(2, 12), d_f=st.sampled_from([*BOTH, CVaR(0.5)]))
def test_bregman_distances_are_as_strongly_convex_as_said(seed, K, d_f):
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, K)
    lam, mu = (SimplexPoint.of(rng.dirichlet(np.full(K, 0.5)) + 1e-12) for _ in range(2))
    apart = np.abs(lam.weights - mu.weights).sum()
    assert d_f.bregman(lam, mu, prior) >= 0.5 * d_f.modulus * apart**2 * (1 - 1e-6) - 1e-9
