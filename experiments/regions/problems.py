"""Random problems that a certificate must not be wrong about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.activations import get_activation

Array = np.ndarray

ACTIVATIONS = ("relu", "relu", "leaky_relu", "softplus", "elu", "huber_relu", "identity")
HOMOGENEOUS = ("relu", "leaky_relu", "identity")
KINDS = ("noisy", "noise-free", "corrupted", "heavy tails", "duplicated columns", "few rows")


@dataclass(frozen=True)
class Problem:
    """Rows, the options of a fit, and coefficients worth trying (the truth, if there is one)."""

    seed: int
    kind: str
    X: Array
    y: Array
    groups: Array
    weights: Array | None
    options: dict[str, Any]
    truths: list[Array] = field(default_factory=list)

    def __str__(self) -> str:
        shape = f"{len(self.X)} x {self.X.shape[1]}, {len(np.unique(self.groups))} groups"
        return f"problem {self.seed}: {self.kind}, {shape}, {self.options}"


def random_problem(seed: int) -> Problem:
    """Return the problem of this number."""
    rng = np.random.default_rng(seed)
    kind, name = KINDS[seed % len(KINDS)], str(rng.choice(ACTIVATIONS))
    d, K = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    n = int(rng.integers(8, 30)) if kind == "few rows" else int(10 ** rng.uniform(1.2, 2.9))
    n = max(n, 2 * K)
    groups = np.sort(np.arange(n) % K)
    X = _features(rng, kind, n, d)
    intercept = bool(rng.random() < 0.6)
    truth = rng.normal(size=X.shape[1]) / np.maximum(X.std(axis=0), 0.1)
    level = float(rng.normal()) if intercept else 0.0
    y = _labels(rng, kind, name, X, groups, truth, level)
    if name in HOMOGENEOUS:  # others have a scale of their own
        unit = 10.0 ** rng.integers(-3, 4)
        y, truth, level = y * unit, truth * unit, level * unit
    options = {"activation": name, "fit_intercept": intercept, **_options(rng, y, truth, K)}
    weights = rng.uniform(0.1, 3.0, size=n) if rng.random() < 0.3 else None
    return Problem(seed, kind, X, y, groups, weights, options, [np.append(truth, level)])


def _features(rng: np.random.Generator, kind: str, n: int, d: int) -> Array:
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, size=d)
    if kind == "heavy tails":
        X = rng.standard_t(2.0, size=(n, d))
    if kind == "duplicated columns":
        X = np.column_stack([X, 3.0 * X[:, 0], np.ones(n)])
    far = 5.0 * float(rng.random() < 0.3)
    return X + far * rng.normal(size=X.shape[1])


def _labels(
    rng: np.random.Generator, kind: str, name: str, X: Array, groups: Array, truth: Array,
    level: float,
) -> Array:  # fmt: skip
    moved = rng.normal(size=(groups.max() + 1, len(truth))) * 0.3 * float(rng.random() < 0.6)
    if kind == "noise-free":
        moved[:] = 0.0
    y = get_activation(name).value(np.sum(X * (truth * (1.0 + moved))[groups], axis=1) + level)
    if kind == "noise-free":
        return y
    n, spread = len(y), float(y.std() or 1.0)
    noise = rng.standard_t(2.0, size=n) if kind == "heavy tails" else rng.normal(size=n)
    y = y + 10.0 ** rng.uniform(-2, 0.5) * noise * spread
    bad = (groups == 0) & (rng.random(n) < 0.3) & (kind == "corrupted")
    return np.where(bad, 5.0 * rng.normal(size=n) * float(np.abs(y).max()), y)


def _options(rng: np.random.Generator, y: Array, truth: Array, K: int) -> dict[str, Any]:
    size = float(np.var(y))
    divergence = str(rng.choice(["kl", "chi2", "cvar"]))
    options: dict[str, Any] = {"divergence": divergence}
    options["nu"] = [0.0, "auto", 0.3 * size][int(rng.integers(3))]
    if divergence == "cvar":
        options["nu"] = float(rng.uniform(0.0, 1.0)) * size
    prior = rng.uniform(0.1, 1.0, size=K)
    some = {
        "radius": (0.25, float(np.linalg.norm(truth) * rng.uniform(0.3, 1.5))),
        "truncate": (0.15, float(np.quantile(np.abs(y), 0.9)) or 1.0),
        "reference": (0.2, np.abs(rng.normal(size=K)) * 0.1 * size),
        "prior": (0.2, prior / prior.sum()),
        "precondition": (0.1, "scale"),
    }
    chosen = {name: value for name, (chance, value) in some.items() if rng.random() < chance}
    return options | chosen
