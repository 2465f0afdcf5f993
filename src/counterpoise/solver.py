"""solve(): from rows to a Solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from counterpoise.activations import Activation, get_activation
from counterpoise.algorithm import Progress
from counterpoise.divergences import Divergence, check_prior, get_divergence
from counterpoise.engines.opening import kind_of, open_engine
from counterpoise.engines.threads import single_threaded_blas
from counterpoise.schedules import PaperSteps, Schedule, get_schedule
from counterpoise.solution import Solution, Start
from counterpoise.task import Task
from counterpoise.validation import check_options, check_reference, check_rows, per_group

Array = np.ndarray

__all__ = ["Solution", "solve"]


def solve(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Array | None = None,
    *,
    activation: str | Activation = "relu",
    divergence: str | Divergence = "kl",
    nu: float | str = "auto",
    radius: float | None = None,
    prior: Array | Mapping[Any, float] | None = None,
    reference: Array | Mapping[Any, float] | None = None,
    schedule: str | Schedule = "adaptive",
    polish: bool = True,
    fit_intercept: bool = True,
    precondition: str | None = "auto",
    truncate: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
    start: Start | None = None,
    callback: Callable[[Progress], None] | None = None,
    check_input: bool = True,
) -> Solution:
    """Minimise the group-robust risk of one neuron; parameters as in ``GroupDRONeuron``.

    ``callback`` is called with a :class:`Progress` after every iteration of Algorithm 1.
    ``check_input=False`` skips the check that ``X`` and ``y`` are arrays of finite numbers.
    """
    sigma, steps = get_activation(activation), get_schedule(schedule)
    check_options(nu, radius, precondition, truncate, max_iter, tol)
    if isinstance(steps, PaperSteps):
        if radius is not None:
            steps.log_term(sigma.beta, radius)
        precondition = None if precondition == "auto" else precondition
    if check_input and kind_of(X) == "memory":
        X, y = check_rows(X, y)
    engine = open_engine(
        X, y, groups, sample_weight, sigma,
        intercept=fit_intercept, centred=precondition is not None,
    )  # fmt: skip
    labels = engine.census.labels
    task = Task(
        engine=engine,
        divergence=get_divergence(divergence),
        prior=check_prior(per_group(prior, labels, "prior"), len(labels)),
        reference=check_reference(per_group(reference, labels, "reference"), len(labels)),
        steps=steps,
        precondition=precondition,
        radius=radius,
        truncate=truncate,
        polish=polish,
        max_iter=max_iter,
        tol=tol,
    )
    with single_threaded_blas():
        return task.fit(nu, start=start, callback=callback)
