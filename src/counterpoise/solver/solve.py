"""solve() and solve_path(): from rows to solutions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from counterpoise.activations import Activation, get_activation
from counterpoise.common.arguments import check_reference
from counterpoise.dual.divergences import Divergence, check_prior, get_divergence
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.dispatch import kind_of, open_engine
from counterpoise.rows.engines.journal import Journal, JournaledEngine
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver.algorithm import Progress
from counterpoise.solver.options import (
    check_nu_option,
    check_options,
    check_rows,
    named_prior,
    per_group,
)
from counterpoise.solver.schedules import PaperSteps, Schedule, get_schedule
from counterpoise.solver.solution import Solution, Start
from counterpoise.solver.task import Task

Array = np.ndarray

# A path's nu, as multiples of the average fit's loss: from nearly the average to the worst group.
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
        Where to start: ``solution.start`` of a like problem.
    callback : callable, optional
        Called with a :class:`Progress` after every iteration of Algorithm 1 on all rows.
    **options :
        As in :func:`prepare`.
    """
    check_nu_option(nu)
    task = prepare(X, y, groups, sample_weight, **options)
    with running(task):
        found = task.fit(nu, start=task.checked(start), callback=callback)
        return replace(found, sample=task.engine.sample())


def solve_path(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    nus: Sequence[float] | None = None,
    **options: Any,
) -> list[Solution]:
    """Solutions for several ``nu``, each started from the one before.

    The rows are sorted and their moments measured once; ``nu`` is worked through from large to
    small, whatever the order given. By default from ten times the average fit's loss (nearly the
    plain average over groups) to 0 (the worst group).

    Returns
    -------
    list of Solution
        In the order of ``nus``; ``n_passes`` are those each took itself.

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
    task = prepare(X, y, groups, sample_weight, **options)
    with running(task):
        if nus is None:
            unit = task.fit("auto").nu / 0.1
            nus = [share * unit for share in PATH]
        found = task.path(nus)
    return [found[float(nu)] for nu in nus]


def prepare(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    activation: str | Activation = "relu",
    divergence: str | Divergence = "kl",
    radius: float | None = None,
    prior: Array | Mapping[Any, float] | str | None = None,
    reference: Array | Mapping[Any, float] | None = None,
    schedule: str | Schedule = "adaptive",
    polish: bool = True,
    fit_intercept: bool = True,
    precondition: str | None = "auto",
    truncate: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, int | None], None] | None = None,
    check_input: bool = True,
) -> Task:
    """Check the options, open the rows; parameters as in ``GroupDRONeuron``.

    ``progress`` is called with (pass, rows read, rows in all) as chunks of a source are read.
    ``check_input=False`` skips the check that ``X`` and ``y`` are arrays of finite numbers.
    """
    sigma, steps = get_activation(activation), get_schedule(schedule)
    d_f = get_divergence(divergence)
    check_options(radius, precondition, truncate, max_iter, tol)
    if isinstance(steps, PaperSteps):
        if radius is not None:
            steps.log_term(sigma.beta, radius)
        precondition = None if precondition == "auto" else precondition
    if check_input and kind_of(X) == "memory":
        X, y = check_rows(X, y)
    engine: SumEngine = open_engine(
        X, y, groups, sample_weight, sigma,
        intercept=fit_intercept, centred=precondition is not None, progress=progress,
    )  # fmt: skip
    labels = engine.census.labels
    if isinstance(prior, str):
        prior = named_prior(prior, engine.census.totals)
    prior_K = check_prior(per_group(prior, labels, "prior"), len(labels))
    reference_K = check_reference(per_group(reference, labels, "reference"), len(labels))
    if checkpoint is not None:
        engine = JournaledEngine(engine, Journal(checkpoint, engine))
    return Task(
        engine=engine,
        divergence=d_f,
        prior=prior_K,
        reference=reference_K,
        steps=steps,
        precondition=precondition,
        radius=radius,
        truncate=truncate,
        polish=polish,
        max_iter=max_iter,
        tol=tol,
    )


@contextmanager
def running(task: Task) -> Iterator[None]:
    """BLAS on one thread; a checkpoint that is kept if the fit does not end."""
    journal = task.engine.journal if isinstance(task.engine, JournaledEngine) else None
    finished = False
    try:
        with single_threaded_blas():
            yield
        finished = True
    finally:
        if journal is not None:
            journal.close(finished=finished)
