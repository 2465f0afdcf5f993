"""Fits of hostile numbers: extreme sizes, outlying rows, nearly equal columns, offsets."""

from __future__ import annotations

import math
import warnings
from typing import Any

import mpmath
import numpy as np
from scipy.linalg import qr

from counterpoise import solve
from experiments.torture.harness import Trial, attack

Array = np.ndarray
GROUPS = 3


def rows(rng: np.random.Generator, n: int = 240, d: int = 4) -> tuple[Array, Array, Array]:
    X, g = rng.normal(size=(n, d)), np.arange(n) % GROUPS
    y = X @ rng.normal(size=d) + 0.5 + (0.3 + 0.4 * g) * rng.normal(size=n)
    return X, y, g


def fit(*data: Any, **options: Any) -> Any:
    """Return a solution, or the sentence of a clear refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return solve(*data, **options)
        except ValueError as error:
            return str(error)


def least_squares(X: Array, y: Array) -> float:
    """The least mean square, by pivoted QR of rows in order of size: stable for outlying rows."""
    A = np.c_[X, np.ones(len(X))]
    order = np.argsort(-np.abs(A).max(axis=1), kind="stable")
    Q = qr(A[order], mode="economic", pivoting=True)[0]
    left = y[order] - Q @ (Q.T @ y[order])
    return float(np.mean((left - Q @ (Q.T @ left)) ** 2))


def _silent(found: Any, best: float) -> str | None:
    told = not found.converged or "had to be left out" in found.status
    if told or found.risk <= 1.05 * best:
        return None
    return f"converged at {found.risk:.4g}, where {best:.4g} is reachable"


@attack("features in any unit, 1e-300 to 1e300", tries=80)
def any_unit(trial: Trial) -> str | None:
    X, y, g = rows(trial.rng)
    activation = str(trial.rng.choice(["identity", "relu"]))
    units = 2.0 ** trial.rng.integers(-990, 990, X.shape[1])
    units[trial.rng.random(X.shape[1]) < 0.5] = 1.0
    base = fit(X, y, g, nu=0.1, activation=activation)
    found = fit(X * units, y, g, nu=0.1, activation=activation)
    if isinstance(found, str):
        return None if found.startswith("X") else f"unclear: {found}"
    if abs(found.risk / base.risk - 1.0) > 1e-6:
        return f"units {units}: risk {found.risk:.6g}, not {base.risk:.6g}, {found.status[:20]}"
    return None


@attack("labels in any unit, 1e-320 to 1e300", tries=60)
def any_label(trial: Trial) -> str | None:
    X, y, g = rows(trial.rng)
    unit = 10.0 ** trial.rng.integers(-320, 300)
    base, found = fit(X, y, g, nu=0.0), fit(X, y * unit, g, nu=0.0)
    if isinstance(found, str):
        return None if found.startswith("y") else f"unclear: {found}"
    wrong = abs(found.risk / unit / unit / base.risk - 1.0) > 1e-6 if unit > 1e-160 else True
    return f"unit {unit:g}: risk {found.risk:.6g}" if wrong and found.converged else None


@attack("one row with enormous entries", tries=60)
def enormous_row(trial: Trial) -> str | None:
    X, y, _ = rows(trial.rng)
    X[trial.rng.integers(len(X))] = 10.0 ** trial.rng.uniform(4, 18)
    found = fit(X, y, nu=np.inf, activation="identity")
    if isinstance(found, str):
        return f"refused: {found}"
    best = least_squares(X, y)
    return _silent(found, best)


@attack("nearly equal columns, 1e-9 to 1e-14 apart", tries=200)
def near_copies(trial: Trial) -> str | None:
    X, y, _ = rows(trial.rng)
    extra = trial.rng.normal(size=len(y))
    X = np.c_[X, X[:, 1] + 10.0 ** -trial.rng.uniform(9, 14) * extra]
    found = fit(X, y + 2.0 * extra, nu=np.inf, activation="identity")
    if isinstance(found, str):
        return f"refused: {found}"
    best = least_squares(X - X.mean(axis=0), y + 2.0 * extra)
    return _silent(found, best)


@attack("duality gaps of features and labels far from zero", tries=150)
def far_from_zero(trial: Trial) -> str | None:
    """The lower bound must not exceed the least risk, computed in sixty digits."""
    rng = trial.rng
    X, y, _ = rows(rng, n=40, d=3)
    X = X + rng.choice([0.0, 10.0 ** rng.uniform(2, 12)], size=3)
    y = y + rng.choice([0.0, 10.0 ** rng.uniform(2, 12)])
    found = fit(X, y, nu=np.inf, activation="identity")
    if isinstance(found, str):
        return f"refused: {found}"
    floor = found.risk - found.certificate.duality_gap
    with mpmath.workdps(60):
        A = mpmath.matrix([[*map(float, row), 1.0] for row in X])
        b = mpmath.matrix([float(v) for v in y])
        w = mpmath.lu_solve(A.T * A, A.T * b)
        least = float(mpmath.norm(A * w - b) ** 2 / len(y))
    return (
        f"no risk below {floor!r}, but {least!r} is reached"
        if floor > least * (1 + 1e-13)
        else None
    )


@attack("distances claimed for a few rows without noise", tries=80)
def claimed_distance(trial: Trial) -> str | None:
    """The labels' own neuron has risk zero, so it is a minimiser."""
    rng = trial.rng
    n, d = int(rng.integers(8, 20)), int(rng.integers(3, 7))
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    found = fit(X, np.maximum(X @ w, 0.0), nu=0.0, fit_intercept=False)
    if isinstance(found, str):
        return f"refused: {found}"
    away = math.sqrt(np.mean((X @ (found.coef - w)) ** 2))
    if found.risk < 1e-12 and away > 1e-6 + 1.01 * found.certificate.returned_bound:
        bound = found.certificate.returned_bound
        return f"within {bound:.2g} of any minimiser; one is {away:.2g} away"
    return None


def _hostile(rng: np.random.Generator) -> tuple[Array, Array, Array, Array | None]:
    """Rows with several troubles at once."""
    n, d = int(rng.choice([1, 2, 3, 8, 40, 200])), int(rng.choice([1, 2, 5, 30]))
    X = rng.normal(size=(n, d))
    if rng.random() < 0.3:
        X = rng.standard_cauchy(size=(n, d)) ** 3
    if rng.random() < 0.3:
        X = np.round(X)
    for j in range(d):
        trouble = rng.integers(0, 12)
        if trouble == 0:
            X[:, j] = rng.choice([0.0, 1.0, -1e9, 1e-300])
        elif trouble == 1:
            X[:, j] = X[:, int(rng.integers(d))] * rng.choice([1.0, -3.0, 1e8])
        elif trouble == 2:
            X[:, j] *= 10.0 ** rng.integers(-250, 250)
        elif trouble == 3:
            X[:, j] += 10.0 ** rng.integers(0, 14)
        elif trouble == 4:
            X[int(rng.integers(n)), j] = 10.0 ** rng.integers(5, 15)
    y = rng.normal(size=n) * 10.0 ** rng.integers(-60, 60) + rng.choice([0.0, 1.0, 1e6])
    if rng.random() < 0.2:
        y[:] = rng.choice([0.0, 1.0, -1e5])
    g = rng.integers(0, rng.choice([1, 2, 5, n + 1]), n)
    weights = None
    if rng.random() < 0.4:
        weights = rng.exponential(size=n) * (rng.random(n) < 0.9) * 10.0 ** rng.integers(-90, 90)
        weights[0] = weights.max() or 1.0
    if rng.random() < 0.2 and np.abs(X).max() < 1e38:
        X = X.astype(np.float32)
    return X, y, g, weights


@attack("several troubles at once: copies, constants, outliers, sizes, weights", tries=200)
def hostile(trial: Trial) -> str | None:
    """Any fit is no worse than the constants, is what it says it is, or is refused in words."""
    rng = trial.rng
    X, y, g, weights = _hostile(rng)
    options = {
        "activation": str(rng.choice(["identity", "relu", "leaky_relu", "softplus"])),
        "nu": rng.choice([0.0, 0.1, np.inf]) * (float(np.mean(y**2)) or 1.0),
        "divergence": str(rng.choice(["kl", "chi2"])),
        "fit_intercept": bool(rng.random() < 0.8),
    }
    if options["nu"] != options["nu"]:
        options["nu"] = 0.0
    found = fit(X, y, g, weights, **options)
    if isinstance(found, str):
        clear = found.startswith(("X", "y", "Input X", "sample_weight", "Input contains"))
        return None if clear else f"unclear: {found}"
    if not (np.isfinite(found.coef).all() and math.isfinite(found.risk)):
        return f"coefficients {found.coef[:5]}, risk {found.risk}"
    zero = _losses(np.zeros(len(y)), y, g, weights)
    scores = np.asarray(X, dtype=float) @ found.coef + found.intercept
    rough = _losses(_sigma(options["activation"])(scores), y, g, weights)
    size = float(np.abs(np.asarray(X, dtype=float)) @ np.abs(found.coef) @ np.ones(len(y)))
    allowed = 1e-6 * rough.max() + 1e-9 * zero.max() + (1e-12 * size) ** 2
    if np.abs(np.sort(rough) - np.sort(found.losses)).max() > allowed:
        return f"losses {found.losses[:4]}, but its predictions have {rough[:4]}"
    if found.losses.max() > zero.max() * (1 + 1e-9) and options["nu"] == 0:
        return f"risk {found.risk:.4g} above that of zero, {zero.max():.4g}"
    return None


def _sigma(name: str) -> Any:
    return {
        "identity": lambda z: z,
        "relu": lambda z: np.maximum(z, 0.0),
        "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
        "softplus": lambda z: np.logaddexp(0.0, z) - math.log(2.0),
    }[name]


def _losses(output: Array, y: Array, g: Array, weights: Array | None) -> Array:
    share = np.ones(len(y)) if weights is None else weights / weights.max()
    labels = np.unique(g[share > 0])
    with np.errstate(over="ignore"):
        return np.array(
            [np.average((output - y)[g == k] ** 2, weights=share[g == k]) for k in labels]
        )
