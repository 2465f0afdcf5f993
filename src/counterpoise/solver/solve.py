"""solve() and solve_path(): from rows to solutions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from counterpoise.common.arguments import check_reference
from counterpoise.dual.divergences import check_prior, get_divergence
from counterpoise.losses import Loss
from counterpoise.rows.backends import backend_of, open_engine
from counterpoise.rows.collective import on_all_ranks
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.journal import JournaledEngine
from counterpoise.rows.engines.shared_journal import open_journal
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver.algorithm import Progress
from counterpoise.solver.options import (
    FitOptions,
    check_nu_option,
    check_rows,
    named_prior,
    per_group,
)
from counterpoise.solver.schedules import get_schedule
from counterpoise.solver.solution import Solution, Start
from counterpoise.solver.solver import Solver
from counterpoise.solver.units import check_centre, check_label_sizes

Array = np.ndarray

# Keyword arguments that affect how rows are read, not what is fitted.
OPENING = ("checkpoint", "progress", "check_input")
# Default values of nu on a path, as multiples of the average fit's loss.
PATH = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.0)


def solve(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    nu: float | str = "auto",
    start: Start | None = None,
    callback: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Solution:
    """Minimise the group-robust risk of one neuron.

    Parameters
    ----------
    X, y, groups, sample_weight :
        As in :meth:`GroupDRONeuron.fit`.
    nu : float >= 0, inf or "auto"
    start : Start, optional
        The ``solution.start`` of a similar problem.
    callback : callable, optional
        Called with a :class:`Progress` after every iteration of Algorithm 1 on all rows.
    **options :
        Options of :class:`FitOptions`, and ``checkpoint``, ``progress`` and ``check_input`` of
        :func:`open_solver`.
    """
    given = _split(options)
    chosen: FitOptions = given["options"]
    plain = [nu, *(getattr(chosen, field.name) for field in fields(chosen))]
    told = [value for value in plain if value is None or isinstance(value, (str, int, float))]

    def check() -> None:
        check_nu_option(nu)
        _taking_effect(chosen, chosen.row_loss())

    on_all_ranks(X, "checking the options", check, [told, given.get("checkpoint") is None])
    solver = open_solver(X, y, groups, sample_weight, **given)
    with running(solver):
        found = solver.fit(nu, start=solver.checked(start), callback=callback)
        status = " ".join([found.status, *solver.engine.census.notes])
        return replace(found, status=status, sample=solver.engine.sample())


def solve_path(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    nus: Sequence[float] | None = None,
    **options: Any,
) -> list[Solution]:
    """Solve for several ``nu``, each from the solution before.

    The rows are sorted and their moments measured once. Values of ``nu`` are solved from large to
    small, in whatever order they are given. The default path leads from ten times the average
    fit's loss (nearly the plain average over groups) to 0 (the worst group).

    Returns
    -------
    list of Solution
        In the order of ``nus``; ``n_passes`` counts the passes of each solution alone.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(300, 2)), np.repeat([0, 1, 2], 100)
    >>> y = X[:, 0] * (1 + groups)
    >>> path = solve_path(X, y, groups, nus=[0.0, 0.1, 100.0], activation="identity")
    >>> [float(s.losses.max().round(2)) for s in path]
    [1.01, 1.01, 1.03]
    """
    if nus is not None:
        if not len(nus):
            raise ValueError("nus is empty; give at least one value, or None for a default path")
        for nu in nus:
            if isinstance(nu, str):
                raise ValueError(f"nus must be numbers >= 0; got {nu!r}")
            check_nu_option(nu)
    solver = open_solver(X, y, groups, sample_weight, **_split(options))
    with running(solver):
        if nus is None:
            unit = solver.fit("auto").nu / 0.1
            nus = [share * unit for share in PATH]
        found = solver.path(nus)
    return [found[float(nu)] for nu in nus]


def open_solver(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    options: FitOptions,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, int | None], None] | None = None,
    check_input: bool = True,
) -> Solver:
    """Check the options and open the rows.

    ``progress`` is called with (pass, rows read, rows in all) as chunks of a source are read.
    ``check_input=False`` skips the check that ``X`` and ``y`` are arrays of finite numbers.
    """
    loss = options.row_loss()
    options = _taking_effect(options, loss)
    if check_input and backend_of(X).is_memory:
        X, y = check_rows(X, y)
    engine: SumEngine = open_engine(
        X, y, groups, sample_weight, loss, intercept=options.fit_intercept,
        centred=options.precondition is not None, progress=progress,
    )  # fmt: skip
    return solver_for(engine, options, checkpoint=checkpoint)


def solver_for(
    engine: SumEngine, options: FitOptions, *, checkpoint: str | os.PathLike[str] | None = None
) -> Solver:
    """Check the options for the groups of an engine; ``checkpoint`` as in :func:`open_solver`."""
    ranks = engine.collective
    if ranks is None:
        solver = _checked_solver(engine, options)
    else:
        solver = ranks.attempt(
            "checking the options for the groups", lambda: _checked_solver(engine, options)
        )
    if checkpoint is None:
        return solver
    return replace(solver, engine=JournaledEngine(engine, open_journal(checkpoint, engine)))


def _checked_solver(engine: SumEngine, options: FitOptions) -> Solver:
    """Check the options for the groups of an engine."""
    options = _taking_effect(options, engine.loss)
    schedule, divergence = get_schedule(options.schedule), get_divergence(options.divergence)
    labels, prior = engine.census.labels, options.prior
    if isinstance(prior, str):
        prior = named_prior(prior, engine.census.totals)
    prior_K = check_prior(per_group(prior, labels, "prior"), len(labels))
    reference_K = check_reference(per_group(options.reference, labels, "reference"), len(labels))
    check_centre(engine.shift)
    check_label_sizes(engine.census, options.truncate)
    return Solver(engine, divergence, prior_K, reference_K, schedule, options)


def _taking_effect(options: FitOptions, loss: Loss) -> FitOptions:
    """Check options and return them as they take effect under their schedule."""
    schedule, _ = get_schedule(options.schedule), get_divergence(options.divergence)
    options.check()
    options = options.resolved(schedule)
    if options.radius is not None:
        schedule.check(math.sqrt(0.5 * loss.bend_bound), options.radius)
    return options


@contextmanager
def running(solver: Solver) -> Iterator[None]:
    """Run BLAS on one thread, and keep the checkpoint if the fit is interrupted."""
    journal = solver.engine.journal if isinstance(solver.engine, JournaledEngine) else None
    finished = False
    try:
        with single_threaded_blas():
            yield
        finished = True
    finally:
        if journal is not None:
            journal.close(finished=finished)


def _split(options: dict[str, Any]) -> dict[str, Any]:
    """Split keyword arguments into those of `open_solver` and the options of the fit."""
    opening = {name: options.pop(name) for name in OPENING if name in options}
    given = options.pop("options", FitOptions())
    known = [field.name for field in fields(FitOptions)]
    for name in options:
        if name not in known:
            close = get_close_matches(name, [*known, *OPENING, "nu", "nus", "start"], 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; options are {', '.join(known)}"
            raise TypeError(f"{name}={options[name]!r} is not an option of a fit{hint}")
    return {"options": replace(given, **options), **opening}
