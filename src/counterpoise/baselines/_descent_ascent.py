"""Gradient descent in the coefficients with exponentiated gradient ascent in the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.baselines._base import outcome, true_evaluate, true_slope
from counterpoise.dual.step import DualState, dual_step
from counterpoise.losses import Loss
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.scores import pull_scores, scores_of
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.problem import Problem
from counterpoise.solver.ridge import Ridge
from counterpoise.solver.solution import Outcome
from counterpoise.solver.stacked import Stacked

Array = np.ndarray
# Group losses at a point, and the gradient of their mixture as a function of the weights.
Look = tuple[Array, Callable[[Array], Array]]


@dataclass(frozen=True)
class Path:
    """The last iterates of descent and ascent, and averages over the second half."""

    u: Array
    weights: Array
    mean_u: Array
    mean_weights: Array
    history: dict[str, Array]
    n_iter: int
    diverged: bool

    def end(
        self,
        engine: SumEngine,
        coordinates: Coordinates | Stacked,
        u: Array,
        weights: Array,
        ridge: Ridge | None = None,
    ) -> Outcome:
        """Make the outcome of a fit that returns ``u`` and ``weights``. One pass."""
        w = coordinates.to_user(u)
        losses = engine.evaluate(w, surrogate=False).loss_K
        status = f"Completed all {self.n_iter} iterations (max_iter)."
        if self.diverged:
            status = f"Diverged after {self.n_iter} iterations; lower learning_rate."
        return outcome(
            engine,
            w,
            losses=losses,
            weights=weights,
            risk=float(losses.max()) + (ridge.value(u) if ridge else 0.0),
            n_iter=self.n_iter,
            converged=not self.diverged,
            status=status,
            history=self.history,
        )


def descent_ascent(
    look: Callable[[Array], Look],
    u: Array,
    prior: Array,
    *,
    rate: float,
    step: float,
    max_iter: int,
    bonus: Array | float = 0.0,
    decay: bool = False,
    simultaneous: bool = False,
    project: Callable[[Array], Array] = lambda u: u,
) -> Path:
    """Run ``max_iter`` iterations from ``u`` and the weights ``prior``.

    With ``decay``, both step sizes fall as ``1 / sqrt(t)``. The primal step uses the new weights
    or, if ``simultaneous``, the old ones. ``bonus`` is added to the losses that move the weights.
    Averages are weighted by the step sizes. A loss that is not finite ends the run early.
    """
    dual, first = DualState.start(prior), u
    log: dict[str, list[Any]] = {"risk": [], "worst": [], "weights": []}
    sum_u, sum_weights, total = np.zeros_like(u), np.zeros_like(prior), 0.0
    diverged = False
    for t in range(1, max_iter + 1):
        with np.errstate(over="ignore", invalid="ignore"):
            losses, gradient = look(u)
            if not np.isfinite(losses).all():
                u, diverged = first, True
                break
            share = t**-0.5 if decay else 1.0
            after = dual_step(dual, losses + bonus, step=step * share, nu=0.0, nu0=1.0, prior=prior)
            if 2 * t > max_iter:
                sum_u, sum_weights = sum_u + share * u, sum_weights + share * dual.weights
                total += share
            slope = gradient((dual if simultaneous else after).weights)
            first, u, dual = u, project(u - rate * share * slope), after
        log["risk"].append(float(dual.weights @ losses))
        log["worst"].append(float(losses.max()))
        log["weights"].append(dual.weights)
    n_iter = max(1, len(log["risk"]))
    if total == 0.0:
        sum_u, sum_weights, total = u, dual.weights, 1.0
    history = {name: np.array(values) for name, values in log.items()}
    return Path(u, dual.weights, sum_u / total, sum_weights / total, history, n_iter, diverged)


def all_rows(problem: Problem) -> Callable[[Array], Look]:
    """Return losses and true gradients of all rows, in one pass per point."""

    def look(u: Array) -> Look:
        losses, grad = true_evaluate(problem, u)
        return losses, lambda weights: weights @ grad

    return look


def drawn_rows(
    data: GroupedData,
    loss: Loss,
    coordinates: Coordinates | Stacked,
    groups: Iterator[Array],
    rng: Any,
    ridge: Ridge | None = None,
) -> Callable[[Array], Look]:
    """Return losses and true gradients of rows drawn at random.

    Each item of ``groups`` lists the groups to draw a row from; within a group, rows are drawn by
    their weights. A group without a row has loss zero and no gradient.
    """
    K = data.n_groups
    offsets = data.offsets
    edges = np.append(0.0, np.cumsum(data.row_weights)) if data.row_weights.size else None

    def draw(codes: Array) -> Array:
        place = rng.random_sample(len(codes))
        low, high = offsets[codes], offsets[codes + 1]
        if edges is None:
            rows = low + (place * (high - low)).astype(np.int64)
        else:
            level = edges[low] + place * (edges[high] - edges[low])
            rows = np.searchsorted(edges, level, side="right") - 1
        return np.clip(rows, low, high - 1)

    def look(u: Array) -> Look:
        codes = next(groups)
        rows = draw(codes)
        X, y = data.X[rows], data.y[rows]
        z = scores_of(X, coordinates.to_user(u), loss.n_scores, data.intercept)
        z = z[:, 0] if loss.n_scores == 1 else z
        counts = np.maximum(np.bincount(codes, minlength=K), 1)
        losses = np.bincount(codes, weights=loss.value(z, y), minlength=K) / counts

        def gradient(weights: Array) -> Array:
            share = (weights / counts)[codes]
            slope = pull_scores(X, (true_slope(loss, z, y).T * share).T, data.intercept)
            out = coordinates.pull(slope)
            return out + ridge.pull(u) if ridge else out

        return losses, gradient

    return look


def safe_rate(bend: float, moment: float, size: int, rows: float = np.inf) -> float:
    """Return a stable primal step size for these second moments, and derivatives up to ``bend``.

    With ``rows`` rows drawn from a group of standardised features, the second moment exceeds its
    expectation by about ``size / rows``.
    """
    return 1.0 / (bend * (moment + size / rows))
