"""Algorithm 1: the printed one to the letter, the adaptive one with its account."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from problems import linear_with_known_minimiser, neuron_data, realisable
from scipy.optimize import brentq

from counterpoise import AdaptiveSteps, PaperSteps, solve
from counterpoise.activations import NAMED, Activation, get_activation
from counterpoise.dual.divergences import KL, ChiSquare, SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.algorithm import primal_dual
from counterpoise.solver.certificate import CertificateConstants
from counterpoise.solver.coordinates import unscaled
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import ProblemScale

# Constants under which the printed steps are large enough to see something move.
BRISK = PaperSteps(epsilon=0.5, B=0.05, c1=0.5, C_M=3.0)
# The same with a ball small enough to be met.
TIGHT = PaperSteps(epsilon=0.002, B=0.05, c1=0.5, C_M=60.0)


def transcription(X, y, groups, sigma, *, nu, W, steps, n, divergence):
    """Algorithm 1 written a second time, straight from the paper, with none of our code."""
    labels = np.unique(groups)
    K, d = len(labels), X.shape[1]
    rows = [(X[groups == g], y[groups == g]) for g in labels]
    eps, B, c1, C_M, beta = steps.epsilon, steps.B, steps.c1, steps.C_M, 1.0
    log_term = np.log(beta * B * W / eps)
    M = C_M * W * B * beta * log_term
    rows = [(x, np.sign(t) * np.minimum(np.abs(t), M)) for x, t in rows]
    C4 = 27 * c1 + 2163 * beta**4 * B**2 / c1
    CW = 2 * np.sqrt(3) * np.sqrt(6 * beta**2 + C_M**2 * B * log_term**2) * beta * W * B
    nu0 = eps / (4 * K)
    w, lam, lam_old, a_old, A = np.zeros(d), np.full(K, 1 / K), np.full(K, 1 / K), 0.0, 0.0
    ws, lams = [], []
    for t in range(1, n + 1):
        a = min(
            (1 + c1 / (8 * C4)) ** (t - 1) / (4 * C4),
            max(
                (1 + np.sqrt(c1 * nu) / (4 * np.sqrt(2) * CW)) ** (t - 1) * np.sqrt(nu0) / (4 * CW),
                c1 * nu0 / (4 * np.sqrt(2) * CW) ** 2 * t,
            ),
        )
        bar = lam + a_old / a * (lam - lam_old)
        v = [2 * beta * x.T @ (sigma(x @ w) - t_) / len(t_) for x, t_ in rows]
        step = w - a / (1 + 0.5 * c1 * (A + a)) * sum(b * vi for b, vi in zip(bar, v, strict=True))
        w = step * min(1.0, W / np.linalg.norm(step))
        loss = np.array([np.mean((sigma(x @ w) - t_) ** 2) for x, t_ in rows])
        pull = nu0 + nu * A
        if divergence == "kl":
            logs = (a * loss + pull * np.log(lam) + a * nu * np.log(1 / K)) / (pull + nu * a)
            new = np.exp(logs - logs.max())
            new /= new.sum()
        else:
            # stationarity of a (lam.loss - nu K |lam - 1/K|^2) - pull K |lam - lam_old|^2
            def weights(tau, a=a, loss=loss, pull=pull, lam=lam):
                top = a * loss / (2 * K) + a * nu / K + pull * lam - tau
                return np.maximum(top / (a * nu + pull), 0.0)

            tau = brentq(lambda s: weights(s).sum() - 1, -1e3, 1e3, xtol=1e-16, rtol=1e-15)
            new = weights(tau)
        lam_old, lam, a_old, A = lam, new, a, A + a
        ws.append(w)
        lams.append(lam)
    return np.array(ws), np.array(lams), M


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 0.1])
@pytest.mark.parametrize(
    ("activation", "steps", "W"),
    [("relu", BRISK, 25.0), ("softplus", BRISK, 25.0), ("relu", TIGHT, 0.1)],
)
def test_paper_schedule_matches_an_independent_transcription(divergence, nu, activation, steps, W):
    X, y, g = neuron_data(K=4, n=60, d=5, activation=activation, noise=(0.1, 2.0), seed=3)
    y = 20.0 * y  # so that truncation and the ball take part
    n = 400
    ws, lams, M = transcription(
        X, y, g, NAMED[activation]().value, nu=nu, W=W, steps=steps, n=n, divergence=divergence
    )
    moved = np.linalg.norm(ws, axis=1).max()
    assert moved == pytest.approx(W) if steps is TIGHT else moved > 0.1
    assert np.ptp(lams[-1]) > 0.005
    assert (np.abs(y) > M).any()
    for stop in (1, 2, 3, 10, 100, n):
        found = solve(
            X, y, g, activation=activation, divergence=divergence, nu=nu, radius=W,
            schedule=steps, polish=False, fit_intercept=False, max_iter=stop,
        )  # fmt: skip
        assert found.n_iter == stop
        assert found.truncation == pytest.approx(M)
        np.testing.assert_allclose(found.coef, ws[stop - 1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.history["weights"], lams[:stop], rtol=0, atol=1e-10)


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 0.1])
def test_theorem_inequality_at_every_n_with_paper_steps(divergence, nu):
    """rho_n/4 |w_n - w*|^2 + (nu0 + nu A_n) D(lam*, lam_n) <= D_0 + 40 beta^2 B/c1 A_n OPT."""
    X, y, g, w, levels = linear_with_known_minimiser(K=3, n=400, d=4, seed=1)
    steps = PaperSteps(epsilon=0.5, B=0.6, c1=0.2)
    d_f = {"kl": KL(), "chi2": ChiSquare()}[divergence]
    prior, K = np.full(3, 1 / 3), 3
    for i in range(K):  # the constants are true of these rows
        moment = X[g == i].T @ X[g == i] / 400
        assert np.linalg.eigvalsh(moment)[-1] <= 6 * steps.B
        assert np.linalg.eigvalsh(moment)[0] >= steps.c1
    radius = 3.0 * np.linalg.norm(w)
    best = Objective(d_f, nu, prior, np.zeros(K)).respond(levels)
    nu0 = steps.epsilon / (4 * K)
    start = 0.5 * w @ w + nu0 * d_f.bregman(best, SimplexPoint.of(prior), prior)
    problem = recording(X, y, g, "identity", d_f, nu, radius)
    run = primal_dual(
        problem, steps, scale_of(problem, radius=radius), start=np.zeros(4), max_iter=600, tol=0.0
    )
    A = np.cumsum(run.history["step"])
    points = np.array(problem.seen[1:])
    assert len(points) == run.n_iter == 600
    for n in range(600):
        lam = SimplexPoint.of(run.history["weights"][n])
        left = (1 + 0.5 * steps.c1 * A[n]) / 4 * np.sum((points[n] - w) ** 2)
        left += (nu0 + nu * A[n]) * d_f.bregman(best, lam, prior)
        assert left <= start + 40 * steps.B / steps.c1 * A[n] * levels.max()


# -- the slack account ---------------------------------------------------------------------


@dataclass(frozen=True)
class Recording(Problem):
    """A problem that remembers where it was evaluated."""

    seen: list = field(default_factory=list)

    def evaluate(self, u, *, surrogate):
        self.seen.append(u)
        return super().evaluate(u, surrogate=surrogate)


def recording(X, y, g, activation, d_f, nu, radius=None):
    data = GroupedData.build(X, y, g, intercept=False)
    K = data.n_groups
    objective = Objective(d_f, nu, np.full(K, 1 / K), np.zeros(K))
    engine = make_engine(data, get_activation(activation))
    return Recording(engine, unscaled(X.shape[1], False, radius), objective)


def scale_of(problem, radius=np.inf):
    moments = 0.5 * problem.curvature(None, None)
    data = problem.engine.data
    return ProblemScale(
        beta=problem.engine.activation.beta,
        n_groups=data.n_groups,
        radius=radius,
        nu=problem.objective.nu,
        moment=float(np.linalg.eigvalsh(moments).max()),
        mean_moment=float(np.trace(moments.mean(axis=0))) / problem.size,
        label_scale=float(np.mean(data.y**2)),
        modulus=problem.objective.divergence.modulus,
    )


def telescoped(problem, run, nu0, c1, star):
    """Both sides of the telescoped gap inequality at every n, from the iterates alone.

    Only the three-point inequalities of the two steps are used; everything that the proof
    estimates (linearisation, sharpness, coupling) is evaluated exactly. Without a ball and with
    positive weights the two sides are equal.
    """
    data, sigma, beta = problem.engine.data, problem.engine.activation, 1.0
    X, y, offsets = data.X, data.y, data.offsets
    d_f, nu, prior = problem.objective.divergence, problem.objective.nu, problem.objective.prior

    def mean(rows):
        return np.add.reduceat(rows, offsets[:-1], axis=0) / np.diff(offsets).reshape(
            (-1,) + (1,) * (rows.ndim - 1)
        )

    def loss(w):
        return mean((sigma.value(X @ w) - y) ** 2)

    def V(w):
        return mean(2 * beta * (sigma.value(X @ w) - y)[:, None] * X)

    points = problem.seen
    lam = [prior, *run.history["weights"]]
    a = [0.0, *run.history["step"]]
    A = np.cumsum(a)
    L = problem.objective.lagrangian
    best = problem.objective.respond(loss(star))

    def D(x, z):
        return d_f.bregman(SimplexPoint.of(x), SimplexPoint.of(z), prior)

    left = right = 0.0
    for t in range(1, len(a)):
        old, new = points[t - 1], points[t]
        rho, dlam, dw = 1 + 0.5 * c1 * A[t], lam[t] - lam[t - 1], new - old
        last = lam[t - 1] - (lam[t - 2] if t > 1 else prior)
        bar = lam[t - 1] + a[t - 1] / a[t] * last
        left += a[t] * (L(loss(new), best.weights) - L(loss(star), lam[t]))
        error = lam[t] @ (loss(new) - loss(old)) - (bar + dlam) @ V(old) @ dw
        right += a[t] * error - 0.5 * rho * dw @ dw - (nu0 + nu * A[t - 1]) * D(lam[t], lam[t - 1])
        s_old, s_star = sigma.value(X @ old), sigma.value(X @ star)
        sharp = mean((s_star - s_old) ** 2)
        cross = mean(2 * (s_old - y) * (s_star - s_old))
        right -= a[t] * (lam[t] @ (sharp + cross) - lam[t] @ V(old) @ (star - old))
        right += 0.25 * c1 * a[t] * np.sum((star - old) ** 2)
        if t > 1:
            turn = last @ (V(old) - V(points[t - 2]))
            right += a[t - 1] * turn @ (star - old)
        boundary = a[t] * dlam @ V(old) @ (star - new)
        whole = (
            right
            + 0.5 * np.sum((star - points[0]) ** 2)
            + nu0 * D(best.weights, prior)
            - 0.5 * rho * np.sum((star - new) ** 2)
            - (nu0 + nu * A[t]) * D(best.weights, lam[t])
            - boundary
        )
        yield left, whole


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "softplus", "identity"])
@pytest.mark.parametrize("divergence", [KL(), ChiSquare()], ids=["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.1, 0.0])
@pytest.mark.parametrize("c1", [0.3, 0.02])
def test_gap_telescopes_for_an_arbitrary_comparator(activation, divergence, nu, c1):
    X, y, g = neuron_data(K=4, n=60, d=5, activation=activation, seed=5)
    problem = recording(X, y, g, activation, divergence, nu)
    run = primal_dual(
        problem, AdaptiveSteps(c1=c1, nu0=0.2), scale_of(problem), start=np.zeros(5),
        max_iter=60, tol=0.0,
    )  # fmt: skip
    star = np.random.default_rng(0).normal(size=5)
    positive = (run.history["weights"] > 0).all()
    for left, right in telescoped(problem, run, 0.2, c1, star):
        size = abs(left) + abs(right) + 1.0
        assert left <= right + 1e-9 * size
        if positive and divergence.name == "kl":
            assert left == pytest.approx(right, rel=1e-9, abs=1e-9 * size)


def test_gap_telescopes_inside_a_ball():
    X, y, g = neuron_data(K=4, n=60, d=5, seed=5)
    problem = recording(X, y, g, "relu", KL(), 0.05, radius=0.5)
    run = primal_dual(
        problem, AdaptiveSteps(c1=0.2, nu0=0.2), scale_of(problem), start=np.zeros(5),
        max_iter=60, tol=0.0,
    )  # fmt: skip
    assert np.linalg.norm(problem.seen, axis=1).max() == pytest.approx(0.5)
    star = np.full(5, 0.1)
    pairs = list(telescoped(problem, run, 0.2, 0.2, star))
    assert all(left <= right + 1e-9 * (1 + abs(right)) for left, right in pairs)
    assert pairs[-1][0] < pairs[-1][1] - 1e-6  # the projection gives something away


@pytest.mark.parametrize("radius", [None, 0.6])
def test_account_agrees_with_a_recomputation(radius):
    X, y, g = neuron_data(K=4, n=60, d=5, seed=5)
    problem = recording(X, y, g, "relu", ChiSquare(), 0.1, radius)
    c1, nu0 = 0.3, 0.2
    run = primal_dual(
        problem, AdaptiveSteps(c1=c1, nu0=nu0), scale_of(problem), start=np.zeros(5),
        max_iter=40, tol=0.0,
    )  # fmt: skip
    total = 0.0
    lam = [problem.objective.prior, *run.history["weights"]]
    a = [0.0, *run.history["step"]]
    A = np.cumsum(a)
    evals = [Problem.evaluate(problem, u, surrogate=True) for u in problem.seen]
    for t in range(1, 41):
        dw = problem.seen[t] - problem.seen[t - 1]
        dlam = lam[t] - lam[t - 1]
        bar = lam[t - 1] + a[t - 1] / a[t] * (lam[t - 1] - lam[max(t - 2, 0)])
        (l0, v0), (l1, v1) = evals[t - 1], evals[t]
        q = dlam @ (v1 - v0)
        distance = np.sum((lam[t] - lam[t - 1]) ** 2 * 4)
        total += a[t] * (lam[t] @ (l1 - l0) - (bar + dlam) @ v0 @ dw) + a[t] * q @ q / (2 * c1)
        total -= 0.5 * (1 + 0.5 * c1 * A[t]) * dw @ dw + (nu0 + 0.1 * A[t - 1]) * distance
        assert run.history["slack"][t - 1] == pytest.approx(total, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("activation", ["relu", "identity", "softplus"])
@pytest.mark.parametrize("divergence", [KL(), ChiSquare()], ids=["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.1, 0.0])
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_theorem_bound_holds_at_every_n_with_measured_constants(activation, divergence, nu, share):
    """The certificate's inequality against a known w*, also when the true sharpness is less
    than the step sizes assumed."""
    X, y, g, w = realisable(K=4, n=200, d=5, activation=activation, seed=2)
    y = y + 0.1 * np.random.default_rng(1).normal(size=len(y))
    sigma = get_activation(activation)
    problem = recording(X, y, g, activation, divergence, nu)
    scale = scale_of(problem)
    prior = problem.objective.prior
    losses = problem.engine.evaluate(w, surrogate=False).loss_K
    best = problem.objective.respond(losses)

    def runs(c1):
        problem.seen.clear()
        steps = AdaptiveSteps(c1=c1)
        run = primal_dual(problem, steps, scale, start=np.zeros(5), max_iter=50, tol=0.0)
        lam = np.vstack([prior, run.history["weights"]])
        gaps = np.linalg.norm(np.array(problem.seen) - w, axis=1) ** 2
        apart = problem.engine.separation(np.array(problem.seen), w)
        mixed = np.minimum((apart[:-1] * lam[1:]).sum(axis=1), (apart @ best.weights)[:-1])
        return run, float((mixed / gaps[:-1]).min())

    sharpness = runs(0.2)[1]
    for n in (1, 2, 5, 20, 50):
        problem.seen.clear()
        steps = AdaptiveSteps(c1=sharpness / share)
        run = primal_dual(problem, steps, scale, start=np.zeros(5), max_iter=n, tol=0.0)
        constants = CertificateConstants(
            account=run.account, beta=sigma.beta, moment=scale.moment, dual_start=0.0,
            risk_floor=0.0,
        )  # fmt: skip
        acc = run.account
        start = divergence.bregman(best, SimplexPoint.of(prior), prior)
        right = constants.theorem_rhs(
            0.999 * sharpness, float(losses.max()), float(np.linalg.norm(w)), start
        )
        left = 0.25 * acc.rho * np.sum((run.u - w) ** 2)
        left += (acc.nu0 + nu * acc.total) * divergence.bregman(best, run.dual.point, prior)
        assert left <= right


# -- adaptive steps ------------------------------------------------------------------------


def passes_to_one_percent(X, y, g, **options):
    found = solve(X, y, g, fit_intercept=False, polish=False, tol=1e-9, max_iter=800, **options)
    risk = found.history["risk"]
    outside = np.flatnonzero(risk > 1.01 * risk.min())
    overhead = found.n_passes - found.n_iter
    return (outside[-1] + 2 if len(outside) else 1) + overhead, found


OBJECTIVES = [("kl", 0.1), ("kl", 0.01), ("kl", 0.0), ("chi2", 0.1), ("chi2", 0.01), ("chi2", 0.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("divergence", "nu"), OBJECTIVES)
@pytest.mark.parametrize(
    ("cond", "precondition", "limit"), [(1.0, None, 30), (100.0, "whiten", 30), (100.0, None, 120)]
)
def test_adaptive_steps_are_fast_and_pay_for_themselves(divergence, nu, cond, precondition, limit):
    X, y, g = neuron_data(K=10, n=500, d=50, cond=cond)
    passes, found = passes_to_one_percent(
        X, y, g, divergence=divergence, nu=nu, precondition=precondition
    )
    assert passes <= limit
    assert (found.history["slack"] <= 0).all()
    assert (np.diff(found.history["step"]) >= 0).all()


def test_one_read_of_the_rows_per_iteration():
    X, y, g = neuron_data(K=3, n=100, d=4)
    seen = []

    def counting(t):
        seen.append(t.size)
        return np.maximum(t, 0.0)

    relu = Activation(counting, lambda t: (t >= 0) * 1.0, 1.0, 1.0)
    problem = recording(X, y, g, relu, KL(), 0.1)
    seen.clear()
    scale = scale_of(problem)
    run = primal_dual(problem, AdaptiveSteps(), scale, start=np.zeros(4), max_iter=25, tol=0.0)
    assert run.n_iter == 25
    assert sum(seen) == len(y) * (25 + 1)  # every row once per iteration, and once at the start
    assert problem.engine.passes == 25 + 1 + 1  # and once for the second moments


@pytest.mark.slow
def test_long_runs_do_not_overflow_and_keep_the_bound():
    X, y, g, _ = realisable(K=3, n=60, d=3, activation="identity")
    y = y + np.random.default_rng(0).normal(size=len(y))
    short = solve(X, y, g, activation="identity", nu=0.3, polish=False, tol=0.0, max_iter=300)
    with np.errstate(all="raise", under="ignore"):
        long = solve(X, y, g, activation="identity", nu=0.3, polish=False, tol=0.0, max_iter=20_000)
    assert all(np.isfinite(v).all() for v in long.history.values())
    assert long.risk <= short.risk * (1 + 1e-12)
    np.testing.assert_allclose(long.coef, short.coef, atol=1e-6)
    assert long.certificate.theorem_bound <= short.certificate.theorem_bound * (1 + 1e-6)


def test_rounding_is_not_booked_as_slack():
    """Once converged, steps of huge size change the losses by rounding alone."""
    X, y, g = neuron_data(K=10, n=200, d=10, activation="identity")
    found = solve(
        X, y, g, activation="identity", nu=0.1, fit_intercept=False, polish=False, tol=0.0,
        max_iter=2000,
    )  # fmt: skip
    assert found.history["step"][-1] > 1e20
    assert (found.history["slack"] <= 0).all()


def test_rescaling_changes_nothing(monkeypatch):
    X, y, g = neuron_data(K=3, n=60, d=3)
    options = dict(nu=0.1, polish=False, tol=0.0, max_iter=200)
    plain_run = solve(X, y, g, **options)
    monkeypatch.setattr("counterpoise.solver.algorithm.RESCALE", 2.0**10)
    scaled_run = solve(X, y, g, **options)
    np.testing.assert_allclose(scaled_run.coef, plain_run.coef, rtol=1e-12)
    np.testing.assert_allclose(scaled_run.history["step"], plain_run.history["step"], rtol=1e-12)
    np.testing.assert_allclose(scaled_run.history["slack"], plain_run.history["slack"], rtol=1e-10)
    scaled, plain = (run.certificate.at_sharpness(0.2) for run in (scaled_run, plain_run))
    for name in ("theorem_bound", "running_slack", "rho"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-9)


def test_callback_sees_every_iteration():
    X, y, g = neuron_data(K=3, n=60, d=3)
    seen = []
    found = solve(X, y, g, nu=0.1, callback=seen.append)
    assert [p.iteration for p in seen] == list(range(1, found.n_iter + 1))
    np.testing.assert_array_equal([p.risk for p in seen], found.history["risk"])
    np.testing.assert_array_equal([p.weights for p in seen], found.history["weights"])


def test_two_groups_at_odds_settle_under_kl_without_a_regulariser():
    """KL pays for half of what chi-squared pays for (Pinsker): with steps that forget it, the
    weights of two groups swing from one to the other, and the risk with them."""
    rng = np.random.default_rng(0)
    g = np.repeat([0, 1], 150)
    X = rng.normal(size=(300, 8))
    y = np.sum(X * rng.normal(size=(2, 8))[g], axis=1) + 0.1 * rng.normal(size=300)
    run = solve(X, y, g, activation="identity", nu=0.0, polish=False, tol=0.0, max_iter=200,
                fit_intercept=False)  # fmt: skip
    exact = solve(X, y, g, activation="identity", nu=0.0, fit_intercept=False).risk
    assert np.abs(run.history["risk"][120:] / exact - 1).max() < 1e-4
