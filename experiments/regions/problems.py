"""Random problems that a certificate must not be wrong about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.activations import get_activation

Array = np.ndarray

ACTIVATIONS = ("relu", "relu", "leaky_relu", "softplus", "elu", "huber_relu", "identity")
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
    kind = KINDS[seed % len(KINDS)]
    name = str(rng.choice(ACTIVATIONS))
    d, K = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    n = int(rng.integers(8, 30)) if kind == "few rows" else int(10 ** rng.uniform(1.2, 2.9))
    n = max(n, 2 * K)
    groups = np.sort(np.arange(n) % K)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, size=d)
    if kind == "heavy tails":
        X = rng.standard_t(2.0, size=(n, d))
    if kind == "duplicated columns":
        X = np.column_stack([X, 3.0 * X[:, 0], np.ones(n)])
    if rng.random() < 0.3:
        X = X + rng.normal(size=X.shape[1]) * 5.0
    intercept = bool(rng.random() < 0.6)
    truth = rng.normal(size=X.shape[1]) / np.maximum(X.std(axis=0), 0.1)
    level = float(rng.normal()) if intercept else 0.0
    moved = rng.normal(size=(K, X.shape[1])) * 0.3 * float(rng.random() < 0.6)
    moved = np.zeros_like(moved) if kind == "noise-free" else moved
    scores = np.sum(X * (truth * (1.0 + moved))[groups], axis=1) + level
    y = get_activation(name).value(scores)
    if kind != "noise-free":
        noise = rng.standard_t(2.0, size=n) if kind == "heavy tails" else rng.normal(size=n)
        y = y + 10.0 ** rng.uniform(-2, 0.5) * noise * float(y.std() or 1.0)
    if kind == "corrupted":
        bad = (groups == 0) & (rng.random(n) < 0.3)
        y = np.where(bad, 5.0 * rng.normal(size=n) * float(np.abs(y).max()), y)
    unit = 10.0 ** rng.integers(-3, 4)
    options: dict[str, Any] = {
        "activation": name if name in ("relu", "leaky_relu", "identity") else name,
        "divergence": str(rng.choice(["kl", "chi2", "cvar"])),
        "nu": rng.choice(np.array([0.0, "auto", 0.3], dtype=object)),
        "fit_intercept": intercept,
    }
    if name in ("relu", "leaky_relu", "identity"):  # others have a scale of their own
        y, truth, level = y * unit, truth * unit, level * unit
    if options["divergence"] == "cvar":
        options["nu"] = float(rng.uniform(0.0, 1.0)) * float(np.var(y))
    elif options["nu"] == 0.3:
        options["nu"] = 0.3 * float(np.var(y))
    if rng.random() < 0.25:
        options["radius"] = float(np.linalg.norm(truth) * rng.uniform(0.3, 1.5))
    if rng.random() < 0.15:
        options["truncate"] = float(np.quantile(np.abs(y), 0.9)) or 1.0
    if rng.random() < 0.2:
        options["reference"] = np.abs(rng.normal(size=K)) * 0.1 * float(np.var(y))
    if rng.random() < 0.2:
        prior = rng.uniform(0.1, 1.0, size=K)
        options["prior"] = prior / prior.sum()
    if rng.random() < 0.1:
        options["precondition"] = "scale"
    weights = rng.uniform(0.1, 3.0, size=n) if rng.random() < 0.3 else None
    truths = [np.append(truth, level)]
    return Problem(seed, kind, X, y, groups, weights, options, truths)
