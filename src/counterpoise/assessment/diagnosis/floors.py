"""Noise floors: the loss of a model fitted to one group alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterpoise.losses import LogLoss, Loss, Multinomial, NeuronLoss, SquaredHinge
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.alone import fit_each_alone
from counterpoise.solver.frame import quadratics
from counterpoise.solver.schedules import AdaptiveSteps
from counterpoise.solver.semidefinite import solve_semidefinite
from counterpoise.solver.solver import Solver

Array = np.ndarray

# With fewer rows per coefficient than this, a group's own fit does not show its noise.
ROWS_PER_COEFFICIENT = 2.0
# Maximum number of groups that are fitted one by one.
MOST_FITS = 200
# Floors are estimates, so rough fits suffice.
FLOOR_TOL = 1e-3
# A group whose own fit has a lower loss than this is separable, or nearly so.
SEPARATED = 1e-3


def noise_floors(solver: Solver, average: Array | None = None) -> Array:
    """Estimate the loss of a model fitted to each group alone, corrected for optimism.

    With ``p`` coefficients and ``n`` rows, the estimate is ``loss n / (n - p)`` for a neuron, and
    Akaike's ``loss + p / n`` for other losses, unless the group's classes can be separated; NaN for
    groups that are too small. Labels are clipped as in the fit. For linear models with a squared
    error it is exact if group matrices fit in memory. Otherwise groups are fitted one by one, at
    most the largest ``MOST_FITS`` and only if their rows are in memory. A group of one class needs
    no fit: a constant score has no loss there. With the coefficients of an ``average`` fit, all
    groups are fitted from there at once, whether or not the rows are in memory.
    """
    engine, frame = solver.engine, solver.frame
    if solver.options.truncate is not None:
        engine = engine.variant(truncate=solver.options.truncate)
    sizes, count = solver.engine.effective_sizes(), free_coefficients(engine)
    known = np.flatnonzero(large_enough(sizes, count))
    floors = np.full(engine.n_groups, np.nan)
    is_neuron = isinstance(engine.loss, NeuronLoss)
    if is_neuron and engine.loss.is_quadratic and frame.matrices is not None:
        model = quadratics(engine, frame)
        for k in known:
            gain = model.grad_KD[k] @ solve_semidefinite(model.hess[k], model.grad_KD[k])
            floors[k] = max(float(model.loss_K[k] - 0.5 * gain), 0.0)
    else:
        largest = known[np.argsort(-sizes[known], kind="stable")[:MOST_FITS]]
        if average is not None and engine.loss.n_scores == 1 and frame.matrices is not None:
            floors[known] = _floors_from(solver, average)[known]
            largest = largest[:0]
        for k in largest:
            rows = engine.group_rows(int(k))
            if rows is not None:
                floors[k] = fit_alone(solver, rows).loss
    if is_neuron:
        return floors * sizes / np.maximum(sizes - count, 1.0)
    return np.where(floors > SEPARATED, floors + count / sizes, floors)


def _floors_from(solver: Solver, average: Array) -> Array:
    """Fit all groups alone, from the coefficients of an average fit; return their losses."""
    setup = solver.set_up(np.inf)
    problem = setup.problem
    u = problem.project(problem.coordinates.from_user(average))
    tol = max(solver.options.tol, FLOOR_TOL)
    moments, loss = solver.frame.matrices, setup.engine.loss
    if loss.is_convex or loss.is_quadratic:
        moments = None
    U, found = fit_each_alone(problem, u, tol=tol, floor=setup.floor, moments=moments)
    losses = found.loss_K
    if problem.ridge is not None:  # the loss without it
        losses = np.maximum(losses - [problem.ridge.value(own) for own in U], 0.0)
    if of_classes(setup.engine.loss):
        losses = np.where(one_class(setup.engine), 0.0, losses)
    return losses


def one_class(engine: SumEngine) -> Array:
    """Mark the groups whose labels, numbers of two classes, are all the same."""
    return engine.label_squares() - engine.label_means() ** 2 <= 1e-9


def free_coefficients(engine: SumEngine) -> int:
    """Return the number of coefficients that are free: of several scores, all but one."""
    return engine.n_coef if engine.loss.n_scores == 1 else engine.n_coef - engine.width


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


class Alone(NamedTuple):
    """The loss of a model fitted to one group alone, and its coefficients, intercept last."""

    loss: float
    coef: Array | None


def fit_alone(solver: Solver, rows: GroupedData) -> Alone:
    """Fit the rows of one group alone; without a fit, for a group of one class."""
    loss = solver.engine.loss
    if of_classes(loss) and np.ptp(rows.y) == 0:
        return Alone(0.0, None)
    engine = MemoryEngine(rows, loss, centred=solver.options.precondition is not None)
    alone = solver.variant(
        engine=engine,
        prior=np.ones(1),
        reference=np.zeros(1),
        schedule=AdaptiveSteps(),
        tol=max(solver.options.tol, FLOOR_TOL),
    )
    end, found = alone.end(np.inf)
    if solver.options.ridge:  # the loss without it
        found = engine.evaluate(end.coef, surrogate=False)
    return Alone(float(found.loss_K[0]), end.coef)


def of_classes(loss: Loss) -> bool:
    """Whether the labels of a loss are numbers of classes."""
    return isinstance(loss, (LogLoss, SquaredHinge, Multinomial))
