"""Exact min-max over quadratics against weak duality and a general convex solver."""

import cvxpy as cp
import numpy as np
import pytest
from references import dual_bound, linear_losses, penalty, risk_of, solved

from counterpoise.dual.divergences import SimplexPoint, get_divergence
from counterpoise.dual.objective import Objective
from counterpoise.solver.coordinates import Coordinates, unscaled
from counterpoise.solver.minmax import minimise_quadratics
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.semidefinite import solve_semidefinite


def groups_of_rows(K=5, D=4, n=12, seed=0, noise=0.5):
    """Rows of every group with its own least-squares target: quadratics that disagree."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(K, n, D)) @ rng.normal(size=(D, D)) / np.sqrt(D)
    W = rng.normal(size=D) + 0.5 * rng.normal(size=(K, D))
    y = np.einsum("knd,kd->kn", X, W) + noise * rng.normal(size=(K, n))
    return X, y


def quadratics(X, y):
    """``mean (x.u - y)^2`` of every group, as coefficients."""
    n = X.shape[1]
    return QuadraticEngine(
        np.mean(y**2, axis=1),
        -2.0 * np.einsum("knd,kn->kd", X, y) / n,
        2.0 * np.einsum("knd,kne->kde", X, X) / n,
    )


def objective_of(name, nu, K, prior=None, reference=None):
    prior = np.full(K, 1.0 / K) if prior is None else np.asarray(prior)
    reference = np.zeros(K) if reference is None else reference
    return Objective(get_divergence(name), nu, prior, reference)


def value_at(X, y, objective, damping, x):
    residual = np.einsum("knd,d->kn", X, x) - y
    return objective.risk(np.mean(residual**2, axis=1)) + 0.5 * damping * float(x @ x)


def ball_of(coordinates, origin):
    """``(C, origin, radius)`` with ``coef = C u``, or None without a ball."""
    if coordinates.radius is None:
        return None
    basis = coordinates.basis
    C = (np.diag(basis) if basis.ndim == 1 else basis)[: len(coordinates.shift)]
    return C, origin, coordinates.radius


def best_by_cvxpy(X, y, objective, *, origin, coordinates, damping):
    """The least value that a general convex solver finds, evaluated here.

    The solver's point is made feasible first, so the value is an upper bound on the minimum that
    owes nothing to the solver's tolerances.
    """
    K, n, D = X.shape
    x = cp.Variable(D)
    excess = linear_losses(X.reshape(-1, D), y.ravel(), np.repeat(np.arange(K), n), x)
    risk = risk_of(
        excess - objective.reference, nu=objective.nu, divergence=objective.divergence.name,
        prior=objective.prior,
    )  # fmt: skip
    ball = ball_of(coordinates, origin)
    constraints = [] if ball is None else [cp.norm(ball[0] @ (origin + x)) <= ball[2]]
    problem = cp.Problem(cp.Minimize(risk + 0.5 * damping * cp.sum_squares(x)), constraints)
    solved(problem, accept=(cp.OPTIMAL, cp.OPTIMAL_INACCURATE))
    return value_at(X, y, objective, damping, coordinates.project(origin + x.value) - origin)


def lower_bound(X, y, objective, got, *, origin, coordinates, damping):
    """What weak duality proves at the weights and the multiplier that were found."""
    weights = got.point.weights
    constant = weights @ objective.reference
    constant += objective.nu * penalty(objective.divergence.name, weights, objective.prior)
    return dual_bound(
        X, y, weights, penalty=constant, damping=damping, ball=ball_of(coordinates, origin),
        multiplier=got.multiplier,
    )  # fmt: skip


def check(X, y, objective, *, coordinates=None, origin=None, damping=0.0, tol=1e-6, cvxpy=True):
    """Check that the point is feasible and, by a bound from below, that none is better."""
    D = X.shape[2]
    coordinates = coordinates or unscaled(D, False, None)
    origin = np.zeros(D) if origin is None else origin
    model = quadratics(X, y)
    options = {"origin": origin, "coordinates": coordinates, "damping": damping}
    got = minimise_quadratics(model, objective, **options)
    size = max(abs(got.value), float(np.abs(model.evaluate(got.u).loss_K).max()))
    own = value_at(X, y, objective, damping, got.u)
    assert got.value == pytest.approx(own, abs=1e-9 * size), "that of the point returned"
    bound = lower_bound(X, y, objective, got, **options)
    assert bound - 1e-9 * size <= own <= bound + tol * size
    assert 0.0 <= got.gap <= tol * size
    if cvxpy:
        best = best_by_cvxpy(X, y, objective, **options)
        assert max(got.value - tol * size, bound - 1e-9 * size) <= best
        assert got.value - got.gap <= best + 1e-11 * size, "value less gap is a lower bound"
    assert (got.point.weights >= 0).all()
    assert got.point.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert got.multiplier >= 0.0
    if coordinates.radius is not None:
        assert coordinates.coef_norm(origin + got.u) <= coordinates.radius * (1 + 1e-12)
    return got


NAMES = pytest.mark.parametrize("name", ["kl", "chi2"])
NUS = pytest.mark.parametrize("nu", [0.0, 1e-3, 0.05, 0.5, 5.0])


@NAMES
@NUS
@pytest.mark.parametrize("seed", [0, 1])
def test_minimum_from_nu_zero_to_large(name, nu, seed):
    X, y = groups_of_rows(seed=seed)
    got = check(X, y, objective_of(name, nu, 5))
    assert got.multiplier == 0.0


@NAMES
@pytest.mark.parametrize("nu", [1e6, 1e12, 1e15])
def test_huge_nu_is_least_squares_on_the_average(name, nu):
    X, y = groups_of_rows()
    prior = np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    model = quadratics(X, y)
    got = minimise_quadratics(
        model,
        objective_of(name, nu, 5, prior),
        origin=np.zeros(4),
        coordinates=unscaled(4, False, None),
    )
    rows = (np.sqrt(prior)[:, None, None] * X).reshape(-1, 4)
    targets = (np.sqrt(prior)[:, None] * y).ravel()
    expected = np.linalg.lstsq(rows, targets, rcond=None)[0]
    np.testing.assert_allclose(got.u, expected, rtol=1e-4)
    mean = prior @ model.evaluate(expected).loss_K
    assert got.value == pytest.approx(mean, rel=1e-5)
    assert got.gap <= 1e-8 * mean
    np.testing.assert_allclose(got.point.weights, prior, rtol=1e-4)


@NAMES
@NUS
def test_non_uniform_prior_and_reference(name, nu):
    X, y = groups_of_rows(seed=3)
    prior = np.array([0.05, 0.5, 0.2, 0.15, 0.1])
    reference = np.array([0.1, 2.0, 0.0, 0.5, -0.4])
    check(X, y, objective_of(name, nu, 5, prior, reference))


@NAMES
@pytest.mark.parametrize("nu", [0.0, 0.05, 5.0])
def test_references_that_leave_only_negative_excess(name, nu):
    X, y = groups_of_rows(seed=4)
    check(X, y, objective_of(name, nu, 5, None, np.full(5, 100.0)))


def skewed_ball(radius, seed=5, D=4):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0] * np.geomspace(0.3, 3.0, D)
    return Coordinates(basis, np.zeros(D), False, radius)


@NAMES
@NUS
@pytest.mark.parametrize("radius", [0.05, 1.0, 1e3])
def test_ball(name, nu, radius):
    X, y = groups_of_rows(seed=6)
    origin = np.zeros(4)
    ball = skewed_ball(radius)
    got = check(X, y, objective_of(name, nu, 5), coordinates=ball, origin=origin)
    if radius == 1e3:
        assert got.multiplier == 0.0
    else:
        assert got.multiplier > 0.0
        assert ball.coef_norm(got.u) == pytest.approx(radius, rel=1e-9)


@NAMES
def test_the_multiplier_balances_the_gradient_on_the_ball(name):
    X, y = groups_of_rows(seed=6)
    ball = skewed_ball(0.5)
    model = quadratics(X, y)
    got = minimise_quadratics(
        model, objective_of(name, 0.5, 5), origin=np.zeros(4), coordinates=ball
    )
    gradient = got.point.weights @ model.evaluate(got.u).grad_KD
    np.testing.assert_allclose(
        gradient, -got.multiplier * ball.coef_gram() @ got.u, atol=1e-5 * np.abs(gradient).max()
    )


@NAMES
@pytest.mark.parametrize("nu", [0.0, 0.5])
def test_steps_from_an_origin_inside_the_ball(name, nu):
    X, y = groups_of_rows(seed=7)
    ball = skewed_ball(1.5)
    origin = ball.project(np.array([0.4, -0.3, 0.2, 0.1]))
    check(X, y, objective_of(name, nu, 5), coordinates=ball, origin=origin)


@pytest.mark.parametrize("nu", [0.0, 0.5])
def test_an_intercept_is_not_held_by_the_ball(nu):
    X, y = groups_of_rows(seed=8)
    X[:, :, -1] = 1.0
    ball = unscaled(3, True, 0.2)
    got = check(X, y + 30.0, objective_of("kl", nu, 5), coordinates=ball)
    assert abs(got.u[-1]) > 20.0
    assert np.linalg.norm(got.u[:3]) == pytest.approx(0.2, rel=1e-9)


@NAMES
@pytest.mark.parametrize("nu", [0.0, 0.05, 5.0])
@pytest.mark.parametrize("damping", [1e-3, 1.0, 1e3])
def test_damping(name, nu, damping):
    X, y = groups_of_rows(seed=9)
    check(X, y, objective_of(name, nu, 5), damping=damping)
    check(X, y, objective_of(name, nu, 5), damping=damping, coordinates=skewed_ball(0.5))


@NAMES
@pytest.mark.parametrize("nu", [0.0, 0.05, 5.0])
def test_a_group_with_a_singular_matrix(name, nu):
    X, y = groups_of_rows(seed=10)
    X[2] = np.outer(X[2, :, 0], [1.0, -1.0, 0.5, 2.0])
    assert np.linalg.matrix_rank(quadratics(X, y).hess[2]) == 1
    check(X, y, objective_of(name, nu, 5))


def test_a_singular_group_that_carries_all_the_weight():
    """The worst group is flat in three of four directions and still bounds the risk."""
    X, y = groups_of_rows(seed=10)
    X[2] = np.outer(X[2, :, 0], [1.0, -1.0, 0.5, 2.0])
    y[2] += np.random.default_rng(1).normal(size=12) * 30.0
    got = check(X, y, objective_of("kl", 0.0, 5))
    assert got.point.weights[2] == pytest.approx(1.0, abs=1e-6)


@NAMES
@pytest.mark.parametrize("nu", [0.0, 0.05, 5.0])
def test_duplicated_groups(name, nu):
    X, y = groups_of_rows(K=3, seed=11)
    twice, once = objective_of(name, nu, 6), objective_of(name, nu, 3)
    got = check(np.concatenate([X, X]), np.concatenate([y, y]), twice)
    single = check(X, y, once)
    assert got.value == pytest.approx(single.value, rel=1e-8)
    halves = got.point.weights[:3] + got.point.weights[3:]
    np.testing.assert_allclose(halves, single.point.weights, atol=1e-3)


@NAMES
@pytest.mark.parametrize("nu", [0.0, 0.5])
def test_one_group_is_least_squares(name, nu):
    X, y = groups_of_rows(K=1, seed=12)
    got = check(X, y, objective_of(name, nu, 1))
    expected = np.linalg.lstsq(X[0], y[0], rcond=None)[0]
    np.testing.assert_allclose(got.u, expected, rtol=1e-6)
    assert got.point.weights.tolist() == [1.0]


@NAMES
@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_two_hundred_groups(name, nu):
    X, y = groups_of_rows(K=200, D=3, n=8, seed=13)
    check(X, y, objective_of(name, nu, 200), cvxpy=False)


def test_two_parabolas_meet_in_the_middle():
    """``(u - 1)^2`` and ``(u + 1)^2 + c``: at nu = 0 they cross at u = -c/4."""
    c = 0.8
    model = QuadraticEngine(
        np.array([1.0, 1.0 + c]), np.array([[-2.0], [2.0]]), np.full((2, 1, 1), 2.0)
    )
    got = minimise_quadratics(
        model, objective_of("kl", 0.0, 2), origin=np.zeros(1), coordinates=unscaled(1, False, None)
    )
    assert got.u[0] == pytest.approx(-c / 4, abs=1e-9)
    assert got.value == pytest.approx((1 + c / 4) ** 2, rel=1e-9)
    np.testing.assert_allclose(got.point.weights, [0.5 - c / 8, 0.5 + c / 8], atol=5e-6)


def test_one_matrix_shared_by_all_groups():
    X, y = groups_of_rows(seed=14)
    X[:] = X[0]
    model = quadratics(X, y)
    shared = QuadraticEngine(model.loss_K, model.grad_KD, model.hess[:1])
    for nu in (0.0, 0.5):
        a, b = (
            minimise_quadratics(
                m,
                objective_of("kl", nu, 5),
                origin=np.zeros(4),
                coordinates=unscaled(4, False, None),
            )
            for m in (model, shared)
        )
        assert a.value == pytest.approx(b.value, rel=1e-10)


@pytest.mark.parametrize("power", [-60, 60])
@pytest.mark.parametrize("nu", [0.0, 0.5])
def test_the_unit_of_the_loss_does_not_matter(power, nu):
    X, y = groups_of_rows(seed=15)
    f, model = 2.0**power, quadratics(X, y)
    scaled = QuadraticEngine(f * model.loss_K, f * model.grad_KD, f * model.hess)
    options = {"origin": np.zeros(4), "coordinates": unscaled(4, False, None)}
    a = minimise_quadratics(model, objective_of("kl", nu, 5), **options)
    b = minimise_quadratics(scaled, objective_of("kl", f * nu, 5), **options)
    assert b.value == pytest.approx(f * a.value, rel=1e-9)


def test_a_good_centre_does_not_change_the_answer():
    X, y = groups_of_rows(seed=16)
    model, objective = quadratics(X, y), objective_of("kl", 0.0, 5)
    options = {"origin": np.zeros(4), "coordinates": unscaled(4, False, None)}
    cold = minimise_quadratics(model, objective, **options)
    warm = minimise_quadratics(model, objective, centre=cold.point, **options)
    poor = SimplexPoint.of(np.array([0.96, 0.01, 0.01, 0.01, 0.01]))
    other = minimise_quadratics(model, objective, centre=poor, **options)
    assert warm.value == pytest.approx(cold.value, rel=1e-9)
    assert other.value == pytest.approx(cold.value, rel=1e-8)


def test_a_perfect_fit_has_no_risk():
    X, y = groups_of_rows(noise=0.0, seed=17)
    y = np.einsum("knd,d->kn", X, np.array([1.0, -2.0, 0.5, 3.0]))
    got = minimise_quadratics(
        quadratics(X, y),
        objective_of("kl", 0.0, 5),
        origin=np.zeros(4),
        coordinates=unscaled(4, False, None),
    )
    np.testing.assert_allclose(got.u, [1.0, -2.0, 0.5, 3.0], rtol=1e-5)
    assert abs(got.value) <= 1e-9 * np.mean(y**2)


def test_the_model_is_not_changed():
    X, y = groups_of_rows(seed=18)
    model = quadratics(X, y)
    kept = [a.copy() for a in (model.loss_K, model.grad_KD, model.hess)]
    origin = np.full(4, 0.1)
    minimise_quadratics(
        model, objective_of("chi2", 0.0, 5), origin=origin, coordinates=skewed_ball(0.5)
    )
    for now, then in zip((model.loss_K, model.grad_KD, model.hess), kept, strict=True):
        np.testing.assert_array_equal(now, then)
    np.testing.assert_array_equal(origin, np.full(4, 0.1))


@pytest.mark.parametrize("share", [0.5, 0.99, 1.5, 10.0])
def test_a_flat_loss_meets_the_ball(share):
    """``(x.u - y)^2`` has many minimisers; the ball holds one exactly if y is in reach."""
    rng = np.random.default_rng(20)
    for seed in range(20):
        x, ball = rng.normal(size=4) * 10 ** rng.uniform(-1.0, 1.0, size=4), skewed_ball(0.3, seed)
        reach = 0.3 * np.linalg.norm(np.linalg.solve(ball.basis.T, x))
        y = share * reach
        got = minimise_quadratics(
            quadratics(x[None, None], np.array([[y]])),
            objective_of("kl", 0.0, 1),
            origin=np.zeros(4),
            coordinates=ball,
        )
        best = max(0.0, y - reach) ** 2
        assert got.value - got.gap <= best + 1e-9 * y**2, "value less gap is a lower bound"
        assert got.value == pytest.approx(best, abs=1e-6 * y**2)
        assert ball.coef_norm(got.u) <= 0.3 * (1 + 1e-12)


@pytest.mark.parametrize("damping", [1e-3, 1e-2])
def test_light_damping_over_flat_directions(damping):
    """Fewer rows than coefficients: the losses vanish and only the damping is left to weigh."""
    for seed in range(6):
        X, y = groups_of_rows(K=3, D=10, n=1, seed=seed, noise=1.0)
        objective, options = objective_of("chi2", 0.0, 3), {"origin": np.zeros(10)}
        options["coordinates"] = unscaled(10, False, None)
        model = quadratics(X, y)
        got = minimise_quadratics(model, objective, damping=damping, **options)
        bound = lower_bound(X, y, objective, got, damping=damping, **options)
        size = model.loss_K.max()
        assert bound - 1e-11 * size <= got.value <= bound + 1e-8 * size
        assert got.gap <= 1e-8 * size


# -- the linear solve ----------------------------------------------------------------------


def test_a_definite_system_is_solved_exactly():
    A = np.array([[2.0, 1.0], [1.0, 3.0]])
    np.testing.assert_allclose(solve_semidefinite(A, np.array([3.0, 5.0])), [0.8, 1.4], rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_singular_system_is_solved_within_its_range(scale):
    rng = np.random.default_rng(19)
    B = rng.normal(size=(5, 2))
    A = scale * B @ B.T
    b = A @ rng.normal(size=5)
    x = solve_semidefinite(A, b)
    np.testing.assert_allclose(A @ x, b, rtol=1e-5, atol=1e-6 * np.abs(b).max())


def test_a_zero_matrix_gives_a_finite_answer():
    assert np.isfinite(solve_semidefinite(np.zeros((3, 3)), np.zeros(3))).all()
