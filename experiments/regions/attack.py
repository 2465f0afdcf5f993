"""A search for coefficients in a certified region whose risk is below its bound.

Everything is computed here from the definitions, without the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from counterpoise.dual.divergences import get_divergence
from counterpoise.rows.threads import single_threaded_blas
from experiments.regions.problems import Problem

Array = np.ndarray
# Starts of a descent in every region.
STARTS = 6
# Risks are computed to this share of the labels' mean square.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Risk:
    """The risk of a fitted neuron as a function of its coefficients, intercept last."""

    problem: Problem
    model: Any

    def __post_init__(self) -> None:
        p, options = self.problem, self.problem.options
        y, K = p.y, len(np.unique(p.groups))
        if "truncate" in options:
            y = np.clip(y, -options["truncate"], options["truncate"])
        weights = np.ones(len(y)) if p.weights is None else p.weights
        share = np.zeros((K, len(y)))
        share[p.groups, np.arange(len(y))] = weights
        set_ = object.__setattr__
        set_(self, "y", y)
        set_(self, "share", share / share.sum(axis=1, keepdims=True))
        set_(self, "prior", np.asarray(options.get("prior", np.full(K, 1.0 / K))))
        set_(self, "reference", np.asarray(options.get("reference", np.zeros(K))))
        set_(self, "divergence", get_divergence(options["divergence"]))
        set_(self, "fit", np.append(self.model.coef_, self.model.intercept_))

    def scores(self, w: Array) -> Array:
        return self.problem.X @ w[:-1] + w[-1]

    def losses(self, w: Array) -> Array:
        return self.share @ (self.model.activation_.value(self.scores(w)) - self.y) ** 2

    def __call__(self, w: Array) -> float:
        excess = self.losses(w) - self.reference
        return float(self.divergence.risk(excess, self.prior, self.model.nu_))

    def slope(self, w: Array) -> Array:
        """Return a slope of the risk, for descent only."""
        z, sigma = self.scores(w), self.model.activation_
        residual = sigma.value(z) - self.y
        excess = self.share @ residual**2 - self.reference
        nu = self.model.nu_ or 1e-3 * float(np.ptp(excess) + 1e-300)
        lam = np.exp((excess - excess.max()) / nu) * self.prior
        pull = (lam / lam.sum()) @ self.share * 2.0 * residual * sigma.slope(z)
        slope = np.append(pull @ self.problem.X, pull.sum())
        if not self.problem.options["fit_intercept"]:
            slope[-1] = 0.0
        return slope

    def away(self, w: Array) -> float:
        """Return the distance from the fit, in the metric of regions."""
        change = (self.scores(w) - self.scores(self.fit)) ** 2
        return float(np.sqrt(self.prior @ (self.share @ change)))

    def admits(self, w: Array) -> bool:
        limit = self.problem.options.get("radius")
        return limit is None or float(np.linalg.norm(w[:-1])) <= limit

    def inside(self, w: Array, radius: float) -> Array:
        """Move a point towards the fit until it lies in the region."""
        limit = self.problem.options.get("radius")
        if not np.isfinite(w).all():
            return self.fit
        if limit is not None and not self.admits(w):
            length = float(np.linalg.norm(w[:-1]))
            w = np.append(w[:-1] * (limit / length) * (1 - 1e-12), w[-1])
        away = self.away(w)
        if away > radius:
            w = self.fit + (w - self.fit) * (radius / away) * (1 - 1e-12)
        return w


@dataclass(frozen=True)
class Breach:
    """A point in a region whose risk is below the bound."""

    problem: Problem
    radius: float
    bound: float
    risk: float

    def __str__(self) -> str:
        return f"{self.problem}: risk {self.risk!r} < {self.bound!r} within {self.radius:g}"


def attack(problem: Problem, model: Any, starts: int = STARTS) -> tuple[list[Breach], int]:
    """Return breaches of the model's regions, and how many points were tried."""
    with single_threaded_blas():
        return _attack(problem, model, starts)


def _attack(problem: Problem, model: Any, starts: int) -> tuple[list[Breach], int]:
    risk, rng = Risk(problem, model), np.random.default_rng(problem.seed + 10**6)
    size = ROUNDING * (float(np.max(risk.share @ risk.y**2)) + abs(risk(risk.fit)))
    tried, found = 0, []
    truths = list(problem.truths)
    if not problem.options["fit_intercept"]:
        truths = [np.append(w[:-1], 0.0) for w in truths]
    scale = np.append(1.0 / np.maximum(problem.X.std(axis=0), 1e-3), 1.0)
    scale[-1] *= float(problem.options["fit_intercept"])
    for region in model.certificate_.regions:
        reach = region.radius if np.isfinite(region.radius) else 10.0 * float(np.std(problem.y))
        points = [risk.inside(w, region.radius) for w in truths]
        points += [risk.inside(risk.fit + t * (w - risk.fit), region.radius)
                   for w in truths for t in (0.1, 0.5, 0.9, -0.5)]  # fmt: skip
        for _ in range(starts):
            step = rng.normal(size=len(risk.fit)) * scale
            away = risk.away(risk.fit + step) or 1.0
            first = risk.fit + step * (reach * rng.random() ** 0.5 / away)
            points.append(risk.inside(first, region.radius))
            for w in _descend(risk, points[-1]):
                points.append(risk.inside(w, region.radius))
        for w in points:
            tried += 1
            if risk.away(w) <= region.radius and risk.admits(w):
                value = risk(w)
                if value < region.lower_bound - size:
                    found.append(Breach(problem, region.radius, region.lower_bound, value))
    return found, tried


def _descend(risk: Risk, start: Array) -> list[Array]:
    """Descend from a start; return some of the points passed."""
    unit = max(abs(risk(start)), 1e-300)
    passed: list[Array] = []
    with np.errstate(all="ignore"):
        minimize(
            lambda w: risk(w) / unit, start, jac=lambda w: risk.slope(w) / unit, method="L-BFGS-B",
            options={"maxiter": 30}, callback=lambda w: passed.append(w.copy()),
        )  # fmt: skip
    return passed[-3:] + passed[:: max(1, len(passed) // 3)]
