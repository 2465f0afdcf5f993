"""Convex losses: the duality gap is true, and the fit is the minimum that cvxpy finds."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from references import solved
from scipy.special import expit

from counterpoise.dual.divergences import KL, ChiSquare, CVaR
from counterpoise.losses import Huber, LogLoss, Loss, Multinomial, NeuronLoss, Poisson, SquaredHinge
from counterpoise.solver.solve import solve

KINDS = ("log", "multinomial", "squared_hinge", "huber", "poisson")


class Case:
    """A problem with rows, options, and its objective in plain numpy."""

    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.n, self.d, self.K = int(rng.integers(25, 70)), int(rng.integers(1, 5)), 3
        self.X = rng.normal(size=(self.n, self.d)) * 10 ** rng.uniform(-1.5, 1.5, self.d)
        if rng.random() < 0.2:
            self.X = rng.standard_t(2, size=self.X.shape)
        if rng.random() < 0.2 and self.d > 1:
            self.X[:, 0] = 2 * self.X[:, 1]  # a direction that no score needs
        self.X = self.X + rng.normal(size=self.d) * rng.choice([0, 3])
        self.g = np.append(np.arange(self.K), rng.integers(0, self.K, self.n - self.K))
        z = self.X @ (rng.normal(size=self.d) / (1e-9 + self.X.std(0))) + 0.5 * self.g
        self.z = z - z.mean()
        self.loss, self.y = self._labels(rng)
        self.intercept = bool(rng.random() < 0.8)
        self.alpha = float(rng.choice([1e-8, 1e-4, 0.1]))
        self.weights = rng.uniform(0.2, 2, self.n) if rng.random() < 0.4 else np.ones(self.n)
        self.divergence = [KL(), ChiSquare(), CVaR(0.6)][rng.integers(3)]
        self.nu = float(rng.choice([0.0, 0.05, 0.5, np.inf]))
        if isinstance(self.divergence, CVaR):
            self.nu = 0.0
        self.radius = float(np.exp(rng.normal())) if rng.random() < 0.25 else None
        prior = rng.uniform(0.2, 1, self.K)
        self.prior = prior / prior.sum()

    def _labels(self, rng) -> tuple[Loss, np.ndarray]:
        if self.kind == "multinomial":
            y = np.clip(np.round(self.z + rng.normal(size=self.n)), -1, 1) + 1
            y[:3] = [0, 1, 2]
            return Multinomial(3), y
        if self.kind == "huber":
            return Huber(0.7), self.z + rng.standard_t(1.5, self.n)
        if self.kind == "poisson":
            return Poisson(), rng.poisson(np.exp(np.clip(self.z, -3, 2))).astype(float)
        y = (rng.random(self.n) < expit(self.z)).astype(float)
        if rng.random() < 0.25:
            y = (self.z > 0).astype(float)  # separable
        y[:2] = [0, 1]
        return (LogLoss() if self.kind == "log" else SquaredHinge()), y

    def solve(self, **changes):
        options = dict(
            loss=self.loss, ridge=self.alpha, nu=self.nu, divergence=self.divergence,
            fit_intercept=self.intercept, radius=self.radius, prior=self.prior,
        )  # fmt: skip
        return solve(self.X, self.y, self.g, self.weights, **{**options, **changes})

    @property
    def scale(self):
        """The features' standard deviations, averaged over groups."""
        share = np.zeros(self.n)
        for k in range(self.K):
            mine = self.g == k
            share[mine] = self.prior[k] * self.weights[mine] / self.weights[mine].sum()
        mean = share @ self.X if self.intercept else 0.0
        return np.sqrt(share @ (self.X - mean) ** 2)

    def objective(self, coef, intercept):
        """The risk of any coefficients, from its definition."""
        z = self.X @ np.asarray(coef).T + intercept
        rows = self.loss.value(z, self.y)
        masks = [self.g == k for k in range(self.K)]
        losses = [np.average(rows[mine], weights=self.weights[mine]) for mine in masks]
        if self.nu == np.inf:
            value = self.prior @ losses
        else:
            value = self.divergence.risk(np.array(losses), self.prior, self.nu)
        return value + 0.5 * self.alpha * np.sum((self.scale * coef) ** 2)

    def cvxpy(self):
        """The minimiser that cvxpy finds."""
        many = self.loss.n_scores
        W, b = cp.Variable((self.d, many)), cp.Variable(many)
        Z = (self.X / self.scale.clip(1e-12)) @ W
        if self.intercept:
            Z = Z + np.ones((self.n, 1)) @ cp.reshape(b, (1, many), order="C")
        rows = self._rows(Z)
        losses = cp.hstack([
            (self.weights[self.g == k] / self.weights[self.g == k].sum()) @ rows[self.g == k]
            for k in range(self.K)
        ])  # fmt: skip
        constraints = []
        if self.radius is not None:
            D = np.diag(1 / self.scale.clip(1e-12))
            constraints = [cp.norm(D @ W, "fro") <= self.radius]
        risk = self._risk(losses)
        problem = cp.Problem(cp.Minimize(risk + 0.5 * self.alpha * cp.sum_squares(W)), constraints)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an inaccurate point is still a point to compare with
            problem.solve(solver="CLARABEL")
        coef = W.value / self.scale.clip(1e-12)[:, None]
        intercept = b.value if self.intercept else np.zeros(many)
        if self.radius is not None:
            coef *= min(1.0, self.radius / np.linalg.norm(coef))
        return (coef.T, intercept) if many > 1 else (coef[:, 0], intercept[0])

    def _rows(self, Z):
        y, z = self.y, Z[:, 0]
        if self.kind == "multinomial":
            hot = np.eye(3)[y.astype(int)]
            return cp.log_sum_exp(Z, axis=1) - cp.sum(cp.multiply(hot, Z), axis=1)
        if self.kind == "log":
            return cp.logistic(z) - cp.multiply(y, z)
        if self.kind == "squared_hinge":
            return cp.square(cp.pos(1 - cp.multiply(2 * y - 1, z)))
        if self.kind == "huber":
            return 0.5 * cp.huber(z - y, 0.7)
        fixed = np.where(y > 0, y * np.log(np.maximum(y, 1)) - y, 0.0)
        return cp.exp(z) - cp.multiply(y, z) + fixed

    def _risk(self, losses):
        if self.nu == np.inf:
            return self.prior @ losses
        if isinstance(self.divergence, CVaR):
            t = cp.Variable()
            return t + (self.prior @ cp.pos(losses - t)) / 0.6
        if self.nu == 0:
            return cp.max(losses)
        if isinstance(self.divergence, KL):
            return self.nu * cp.log_sum_exp(losses / self.nu + np.log(self.prior))
        eta = cp.Variable()  # chi-squared, by its conjugate
        bent = cp.square(cp.pos((losses - eta) / (2 * self.nu) + 1))
        return eta + self.nu * (self.prior @ bent - 1)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_the_gap_is_true_and_the_fit_is_the_minimum(block):
    """200 problems: no point of cvxpy's has a risk below ``risk - gap``, and none is far below."""
    for seed in range(25 * block, 25 * block + 25):
        case = Case(seed)
        found = case.solve()
        certificate = found.certificate
        risk = case.objective(found.coef, found.intercept)
        assert risk == pytest.approx(found.risk, rel=1e-9, abs=1e-11), seed
        if case.radius is not None:
            assert np.linalg.norm(found.coef) <= case.radius * (1 + 1e-14)
        best = case.objective(*case.cvxpy())
        # With a ball, directions that no score needs make ``coef`` smallest; the ridge may prefer
        # others, which the certificate says that it does not cover.
        if certificate.dropped and case.radius:
            continue
        assert best >= found.risk - certificate.duality_gap - 1e-12, seed
        assert found.risk <= best + 1e-5 * max(abs(best), 1e-2), (seed, found.status)
        assert certificate.duality_gap <= 1e-4 * max(abs(found.risk), 1e-3), (seed, certificate)


def test_a_wrong_point_has_a_large_gap_and_is_not_converged():
    case = Case(0)
    early = case.solve(polish=False, max_iter=2, tol=0.0, nu=0.0)
    assert not early.converged
    best = case.solve(nu=0.0)
    assert early.certificate.duality_gap >= early.risk - best.risk - 1e-12
    assert best.certificate.duality_gap <= 1e-6 * best.risk


def test_without_a_ridge_the_gap_still_holds():
    rng = np.random.default_rng(3)
    X, g = rng.normal(size=(300, 3)), np.repeat([0, 1, 2], 100)
    y = (rng.random(300) < expit(X[:, 0] + 0.3 * g)).astype(float)
    found = solve(X, y, g, loss=LogLoss(), ridge=0.0, nu=0.0)
    assert found.converged
    assert found.penalty is None
    assert found.certificate.duality_gap <= 1e-6 * found.risk


def test_separable_rows_without_a_ridge_have_no_proved_gap():
    X = np.linspace(-1, 1, 40)[:, None]
    y = (X[:, 0] > 0).astype(float)
    found = solve(X, y, loss=LogLoss(), ridge=0.0, nu=0.0)
    # The infimum is zero and nothing attains it; whatever is claimed must allow for that.
    assert found.risk - found.certificate.duality_gap <= 0.0


@pytest.mark.parametrize("power", [-60, 60])
def test_units_of_features_change_nothing_but_coefficients(power):
    case = Case(5)
    case.radius, case.nu = None, 0.05
    plain = case.solve()
    case.X = case.X * 2.0**power
    scaled = case.solve()
    assert scaled.risk == pytest.approx(plain.risk, rel=1e-9)
    np.testing.assert_allclose(scaled.coef * 2.0**power, plain.coef, rtol=1e-4)


def test_the_squared_loss_with_a_ridge_is_ridge_regression():
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4)) * [1, 10, 0.1, 1]
    y = X @ [1.0, 0.1, 5.0, 0.0] + rng.normal(size=200)
    found = solve(X, y, loss=NeuronLoss(), ridge=0.3, nu=np.inf, tol=1e-10)
    scale = X.std(axis=0)
    expected = Ridge(alpha=0.3 * 200 / 2).fit((X - X.mean(0)) / scale, y)
    np.testing.assert_allclose(found.coef * scale, expected.coef_, rtol=1e-6)
    assert found.certificate.duality_gap <= 1e-9 * found.risk
    np.testing.assert_allclose(found.losses, np.mean((X @ found.coef + found.intercept - y) ** 2))


def rare_columns(seed):
    """Rare indicators that nearly separate the classes; groups are label and attribute."""
    rng = np.random.default_rng(seed)
    X = (rng.random((1500, 6)) < np.geomspace(0.01, 0.5, 6)).astype(float)
    attribute = rng.integers(0, 2, 1500)
    slopes = np.linspace(5.0, 0.5, 6) * [1, -1, 1, -1, 1, -1]
    y = (X @ slopes - 0.5 + 0.7 * attribute > rng.logistic(size=1500)).astype(float)
    return X, y, 2 * attribute + y


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_nearly_separate_the_classes(seed):
    X, y, g = rare_columns(seed)
    found = solve(X, y, g, loss=LogLoss(), ridge=1e-8, nu=0.0)
    assert found.converged
    # A proved gap makes this a minimum, whatever happened on the way.
    assert found.certificate.duality_gap <= 1e-6 * found.risk
    assert found.n_passes < 100
    v, b, top = cp.Variable(6), cp.Variable(), cp.Variable()
    z = X @ v + b
    rows = cp.logistic(z) - cp.multiply(y, z)
    groups = [np.flatnonzero(g == k) for k in np.unique(g)]
    constraints = [cp.sum(rows[index]) / len(index) <= top for index in groups]
    best = solved(
        cp.Problem(cp.Minimize(top), constraints), accept=("optimal", "optimal_inaccurate")
    )
    assert found.losses.max() == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("count", [1e6, 1e12])
def test_huge_counts_converge_and_the_gap_covers_rounding(count):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(200, 3)), np.arange(200) % 2
    y = rng.poisson(count * np.exp(0.3 * X[:, 0])).astype(float)
    found = solve(X, y, groups, nu=np.inf, loss=Poisson(), ridge=1e-8)
    t = X @ found.coef + (found.intercept - np.log(y))  # small, so that a few terms suffice
    deviance = y * (t**2 / 2 + t**3 / 6 + t**4 / 24)
    assert found.converged
    assert found.risk == pytest.approx(0.5, abs=0.1)
    error = found.risk - 0.5 * 1e-8 * np.sum((found.penalty * found.coef) ** 2) - deviance.mean()
    assert abs(error) <= found.certificate.duality_gap <= 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_a_flat_start_is_no_minimum(seed):
    # Far from the labels, Huber's loss does not bend, and Newton's method does not move.
    rng = np.random.default_rng(seed)
    X, y, groups = rng.normal(size=(40, 3)), 10 + 5 * rng.normal(size=40), np.arange(40) % 2
    found = solve(X, y, groups, nu=0.0, loss=Huber(0.01), ridge=1e-3, radius=0.1)
    w, b = cp.Variable(3), cp.Variable()
    losses = 0.5 * cp.huber(X @ w + b - y, 0.01)
    worst = cp.maximum(*(cp.sum(losses[np.flatnonzero(groups == g)]) / 20 for g in (0, 1)))
    ridge = 0.5e-3 * cp.sum_squares(cp.multiply(X.std(axis=0), w))
    problem = cp.Problem(cp.Minimize(worst + ridge), [cp.norm(w) <= 0.1])
    assert found.converged
    assert found.risk == pytest.approx(solved(problem), rel=1e-4)


@pytest.mark.parametrize("loss", [SquaredHinge(), Multinomial(2)])
def test_the_ridge_keeps_its_digits_for_nearly_equal_columns(loss):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 2))
    X[:, 1] = X[:, 0] + 1e-8 * X[:, 1]
    y = (X[:, 0] + rng.logistic(size=200) > 0).astype(float)
    found = solve(X, y, nu=np.inf, loss=loss, ridge=1e-8)
    z = X @ np.atleast_2d(found.coef).T + found.intercept
    value = loss.value(z if loss.n_scores > 1 else z[:, 0], y).mean()
    ridge = 0.5e-8 * np.sum((X.std(axis=0) * found.coef) ** 2)
    assert found.risk == pytest.approx(value + ridge, rel=1e-12)


def test_a_huge_bound_on_slopes_does_not_widen_the_gap():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    found = solve(X, X[:, 0] + rng.normal(size=100), nu=np.inf, loss=Huber(1e100), ridge=1e-8)
    assert found.certificate.duality_gap < 1e-10


@pytest.mark.slow
def test_many_coefficients_converge_relative_to_the_final_risk():
    # The classes are separable, so the risk falls far below the one at zero.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1100))
    y = (X[:, 0] > rng.logistic(size=200)).astype(float)
    found = solve(X, y, nu=np.inf, loss=LogLoss(), ridge=1e-8)
    finer = solve(X, y, nu=np.inf, loss=LogLoss(), ridge=1e-8, tol=1e-9)
    assert found.converged
    assert found.risk == pytest.approx(finer.risk, rel=1e-3)


def test_a_ball_and_a_ridge_share_directions_that_change_no_score():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8, 9)) * np.logspace(0, 1, 9)  # more columns than rows
    y = (np.arange(8) % 2).astype(float)
    found = solve(X, y, nu=np.inf, loss=LogLoss(), ridge=1e-2, radius=0.3)
    w, b = cp.Variable(9), cp.Variable()
    z = X @ w + b
    ridge = 0.5e-2 * cp.sum_squares(cp.multiply(X.std(axis=0), w))
    objective = cp.sum(cp.logistic(z) - cp.multiply(y, z)) / 8 + ridge
    best = solved(cp.Problem(cp.Minimize(objective), [cp.norm(w) <= 0.3]))
    assert found.risk == pytest.approx(best, rel=1e-6)
    assert found.certificate.dropped == 0


@pytest.mark.parametrize("power", [4, 6, 8])
def test_a_strong_ridge_on_nearly_equal_columns(power):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    X[:, 1] = X[:, 0] + 10.0**-power * X[:, 1]
    y = rng.poisson(np.exp(X[:, 0] - X[:, 2])).astype(float)
    found = solve(X, y, nu=np.inf, loss=Poisson(), ridge=1.0)
    # Equal columns share a coefficient, for which the ridge is half as strong.
    w, b = cp.Variable(2), cp.Variable()
    scale = X.std(axis=0)
    z = X[:, [0, 2]] @ w + b
    ridge = 0.5 * (0.5 * (scale[0] * w[0]) ** 2 + (scale[2] * w[1]) ** 2)
    constant = np.mean(np.where(y > 0, y * np.log(np.maximum(y, 1)), 0) - y)
    objective = cp.sum(cp.exp(z) - cp.multiply(y, z)) / 150 + ridge
    best = solved(cp.Problem(cp.Minimize(objective))) + constant
    assert found.converged
    assert found.risk == pytest.approx(best, rel=1e-3)


def test_steps_of_the_first_stage_allow_for_the_ridge():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(300, 3)), np.arange(300) % 2
    y = (X[:, 0] + rng.logistic(size=300) > 0).astype(float)
    found = solve(X, y, groups, loss=LogLoss(), ridge=1.0, polish=False)
    assert found.converged
    assert found.certificate.duality_gap < 1e-4
