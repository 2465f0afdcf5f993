"""Problems whose best neuron is known, and the laws of their features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from counterpoise.activations import Activation, get_activation
from counterpoise.dual.divergences import Divergence
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.coordinates import unscaled
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import ProblemScale

Array = np.ndarray

# Isotropic, of unit variance but for the three-point law (2/3). Student's law has no fourth
# moment and no exponential tail: it lies outside the paper's assumptions.
LAWS = {
    "gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
    "laplace": lambda rng, n, d: rng.laplace(size=(n, d)) / np.sqrt(2.0),
    "three_point": lambda rng, n, d: rng.integers(-1, 2, size=(n, d)).astype(float),
    "student_t3": lambda rng, n, d: rng.standard_t(3, size=(n, d)) / np.sqrt(3.0),
}
ACTIVATIONS = ("relu", "leaky_relu", "softplus", "identity", "elu", "huber_relu")


class Rows(NamedTuple):
    """Rows sorted by group, and the neuron ``w`` that made the labels before the adversary."""

    X: Array
    y: Array
    groups: Array
    w: Array


def unit_vector(rng: np.random.Generator, d: int) -> Array:
    w = rng.normal(size=d)
    return w / np.linalg.norm(w)


def balanced_noise(rng: np.random.Generator, X: Array, w: Array, sigma: Activation) -> Array:
    """Noise of unit mean square, orthogonal to the gradient of every coefficient at ``w``.

    Then ``w`` is a stationary point of the group's loss whatever the noise's size, and with it of
    the risk, whatever the weights.
    """
    slopes = sigma.slope(X @ w)[:, None] * X
    e = rng.normal(size=len(X))
    e -= slopes @ np.linalg.lstsq(slopes, e, rcond=None)[0]
    return e / np.sqrt(np.mean(e**2))


def planted(
    activation: str = "relu", law: str = "gaussian", *, K: int = 4, n: int = 250, d: int = 5,
    noise: tuple[float, float] = (0.1, 0.5), spread: float = 0.4, seed: int = 0,
) -> Rows:  # fmt: skip
    """One unit neuron for all groups; features and noise have their own size in each."""
    rng, sigma = np.random.default_rng(seed), get_activation(activation)
    w = unit_vector(rng, d)
    X, y = [], []
    for level in np.linspace(*noise, K):
        x = LAWS[law](rng, n, d) * rng.uniform(1.0 - spread, 1.0 + spread, size=d)
        X.append(x)
        y.append(sigma.value(x @ w) + level * balanced_noise(rng, x, w, sigma))
    return Rows(np.concatenate(X), np.concatenate(y), np.repeat(np.arange(K), n), w)


def conflicting(
    activation: str = "relu", *, K: int = 10, n: int = 200, d: int = 10, cond: float = 1.0,
    spread: float = 0.6, noise: tuple[float, float] = (0.1, 1.0), seed: int = 0,
) -> Rows:  # fmt: skip
    """Groups that want different slopes, ``spread`` apart relative to their mean's size; ``cond``
    is the condition number of the features' covariance. ``w`` is the mean slope."""
    rng, sigma = np.random.default_rng(seed), get_activation(activation)
    sizes = np.geomspace(1.0, cond**-0.5, d)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    centre = unit_vector(rng, d)
    X, y = [], []
    for _ in range(K):
        x = rng.normal(size=(n, d)) * sizes @ rotation.T
        slope = rotation @ ((centre + spread * unit_vector(rng, d)) / sizes)
        X.append(x)
        y.append(sigma.value(x @ slope) + rng.uniform(*noise) * rng.normal(size=n))
    w = rotation @ (centre / sizes)
    return Rows(np.concatenate(X), np.concatenate(y), np.repeat(np.arange(K), n), w)


def flipped(rng: np.random.Generator, X: Array, y: Array, w: Array, sigma: Activation) -> Array:
    """Three times the label, with the other sign."""
    return -3.0 * y


def large(rng: np.random.Generator, X: Array, y: Array, w: Array, sigma: Activation) -> Array:
    """One large value, whatever the features."""
    return np.full(len(y), 5.0)


def decoy(rng: np.random.Generator, X: Array, y: Array, w: Array, sigma: Activation) -> Array:
    """The labels of the opposite neuron."""
    return sigma.value(-X @ w)


ADVERSARIES = {"flipped": flipped, "large": large, "decoy": decoy}


def corrupted(
    rows: Rows, activation: str, adversary: str, share: float, *, groups: tuple[int, ...] | None,
    seed: int = 0,
) -> Rows:  # fmt: skip
    """A share of the labels of the given groups (None: all) replaced by the adversary's."""
    rng, sigma = np.random.default_rng(seed), get_activation(activation)
    y = rows.y.copy()
    for g in np.unique(rows.groups) if groups is None else groups:
        inside = np.flatnonzero(rows.groups == g)
        hit = rng.choice(inside, size=round(share * len(inside)), replace=False)
        y[hit] = ADVERSARIES[adversary](rng, rows.X[hit], y[hit], rows.w, sigma)
    return rows._replace(y=y)


def problem_of(rows: Rows, activation: str, divergence: Divergence, nu: float) -> Problem:
    """The problem in the features' own coordinates, without intercept, ball or truncation."""
    data = GroupedData.build(rows.X, rows.y, rows.groups, intercept=False)
    K = data.n_groups
    objective = Objective(divergence, nu, np.full(K, 1.0 / K), np.zeros(K))
    engine = make_engine(data, get_activation(activation))
    return Problem(engine, unscaled(rows.X.shape[1], False, None), objective)


def scale_of(problem: Problem, rows: Rows, radius: float) -> ProblemScale:
    moments = 0.5 * problem.curvature(None, None)
    return ProblemScale(
        beta=problem.engine.activation.beta,
        n_groups=problem.objective.n_groups,
        radius=radius,
        nu=problem.objective.nu,
        moment=float(np.linalg.eigvalsh(moments).max()),
        mean_moment=float(np.trace(moments.mean(axis=0))) / problem.size,
        label_scale=float(np.mean(rows.y**2)),
        modulus=problem.objective.divergence.modulus,
    )


def smallest_sharpness(problem: Problem, w: Array, rng: np.random.Generator) -> float:
    """The smallest sharpness of any group towards ``w`` met in the ball of radius ``3 ||w||``."""
    directions = np.array([unit_vector(rng, len(w)) for _ in range(400)])
    points = np.vstack([w + r * directions for r in (0.1, 0.5, 1.0, 2.0)] + [[np.zeros_like(w)]])
    points = np.vstack([points, [-s * w for s in (0.5, 1.0, 2.0, 3.0)]])
    apart = np.sum((points - w) ** 2, axis=1)
    return float((problem.separation(points, w).min(axis=1) / apart).min())


def by_group(rows: Rows, values: Array) -> Array:
    """Means over each group's rows, along the first axis."""
    counts = np.bincount(rows.groups)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.add.reduceat(values, starts, axis=0) / counts.reshape(-1, *[1] * (values.ndim - 1))


def best_known(problem: Problem, starts: list[Array]) -> tuple[Array, float]:
    """The lowest risk SciPy finds from any of the starts, by none of the library's optimisers.

    Smooth risks by BFGS; the worst group by SLSQP, as ``min t`` with ``loss_i <= t``.
    """
    best, lowest = starts[0], np.inf
    for start in starts:
        w = _worst_group(problem, start) if problem.objective.nu == 0 else _smooth(problem, start)
        for candidate in (start, w):
            risk = problem.risk(problem.evaluate(candidate, surrogate=False).loss_K)
            if risk < lowest:
                best, lowest = candidate, risk
    return best, lowest


def _smooth(problem: Problem, start: Array) -> Array:
    def risk(w: Array) -> tuple[float, Array]:
        loss, grad = problem.evaluate(w, surrogate=False)
        return problem.risk(loss), problem.objective.respond(loss).weights @ grad

    return minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-10}).x


def _worst_group(problem: Problem, start: Array) -> Array:
    d, K = len(start), problem.objective.n_groups
    top = np.append(np.zeros(d), 1.0)

    def room(z: Array) -> Array:
        return z[d] - problem.evaluate(z[:d], surrogate=False).loss_K

    def room_slopes(z: Array) -> Array:
        return np.c_[-problem.evaluate(z[:d], surrogate=False).grad_KD, np.ones(K)]

    first = np.append(start, problem.evaluate(start, surrogate=False).loss_K.max())
    found = minimize(
        lambda z: z[d], first, jac=lambda z: top, method="SLSQP",
        constraints={"type": "ineq", "fun": room, "jac": room_slopes},
        options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    return found.x[:d]
