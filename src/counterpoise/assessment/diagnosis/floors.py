"""Noise floors: the loss of a neuron fitted to one group alone."""

from __future__ import annotations

import numpy as np

from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.frame import quadratics
from counterpoise.solver.minmax import solve_semidefinite
from counterpoise.solver.schedules import AdaptiveSteps
from counterpoise.solver.solver import Solver

Array = np.ndarray

# With fewer rows per coefficient than this, a group's own fit does not show its noise.
ROWS_PER_COEFFICIENT = 2.0
# Maximum number of groups that are fitted one by one.
MOST_FITS = 200
# Floors are estimates, so rough fits suffice.
FLOOR_TOL = 1e-3


def noise_floors(solver: Solver) -> Array:
    """Estimate the loss of a neuron fitted to each group alone, corrected for optimism.

    The estimate is ``loss n / (n - p)`` with ``p`` coefficients; NaN for groups that are too
    small. Labels are clipped as in the fit. For the identity activation, it is exact if group
    matrices fit in memory. Otherwise groups are fitted one by one, at most the largest
    ``MOST_FITS`` and only if their rows are in memory.
    """
    engine, frame = solver.engine, solver.frame
    if solver.options.truncate is not None:
        engine = engine.variant(truncate=solver.options.truncate)
    sizes = effective_sizes(solver)
    known = np.flatnonzero(large_enough(sizes, engine.n_coef))
    floors = np.full(engine.n_groups, np.nan)
    if engine.activation.is_identity and frame.matrices is not None:
        model = quadratics(engine, frame)
        for k in known:
            gain = model.grad_KD[k] @ solve_semidefinite(model.hess[k], model.grad_KD[k])
            floors[k] = max(float(model.loss_K[k] - 0.5 * gain), 0.0)
    elif isinstance(engine, MemoryEngine):
        largest = known[np.argsort(-sizes[known], kind="stable")[:MOST_FITS]]
        for k in largest:
            floors[k] = _alone(solver, engine.data, int(k))
    return floors * sizes / np.maximum(sizes - engine.n_coef, 1.0)


def large_enough(sizes: Array, n_coef: int) -> Array:
    """Mark the groups that are large enough for a noise floor."""
    return sizes >= max(ROWS_PER_COEFFICIENT * n_coef, n_coef + 1)


def filled(floors: Array, losses: Array) -> Array | None:
    """Fill in missing floors with the loss times the median share of noise.

    Return None if no floor is known.
    """
    known = np.isfinite(floors) & (losses > 0)
    if not known.any():
        return None
    share = float(np.median(np.minimum(floors[known] / losses[known], 1.0)))
    return np.where(np.isfinite(floors), floors, share * losses)


def effective_sizes(solver: Solver) -> Array:
    """Return the number of rows in every group; with unequal weights, the effective size."""
    engine = solver.engine
    if isinstance(engine, MemoryEngine):
        data = engine.data
        if data.row_weights.size:
            return data.totals**2 / np.add.reduceat(data.row_weights**2, data.offsets[:-1])
        return np.diff(data.offsets).astype(float)
    return np.asarray(engine.census.totals, dtype=float)


def _alone(solver: Solver, data: GroupedData, k: int) -> float:
    lo, hi = int(data.offsets[k]), int(data.offsets[k + 1])
    own = GroupedData(
        X=data.X[lo:hi],
        y=data.y[lo:hi],
        labels=data.labels[k : k + 1],
        offsets=np.array([0, hi - lo]),
        row_weights=data.row_weights[lo:hi],
        intercept=data.intercept,
    )
    engine = MemoryEngine(own, solver.engine.loss, centred=solver.options.precondition is not None)
    alone = solver.variant(
        engine=engine,
        prior=np.ones(1),
        reference=np.zeros(1),
        schedule=AdaptiveSteps(),
        tol=max(solver.options.tol, FLOOR_TOL),
    )
    return float(alone.end(np.inf)[1].loss_K[0])
