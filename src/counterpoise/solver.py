"""solve(): from rows to a Solution. Prepare, run Algorithm 1, polish, certify."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.activations import Activation, get_activation
from counterpoise.algorithm import PrimalDualResult, Progress, primal_dual
from counterpoise.certificate import Certificate
from counterpoise.certify import certify, duality_gap
from counterpoise.divergences import (
    Divergence,
    SimplexPoint,
    check_prior,
    get_divergence,
)
from counterpoise.engines import GroupEval, QuadraticEngine, make_engine
from counterpoise.engines.threads import single_threaded_blas
from counterpoise.groups import GroupedData
from counterpoise.objective import Objective
from counterpoise.polish import PolishResult
from counterpoise.polish import polish as descend
from counterpoise.preparation import Frame, label_scale, settle
from counterpoise.problem import Problem, QuadraticProblem
from counterpoise.schedules import PaperSteps, ProblemScale, Schedule, get_schedule
from counterpoise.validation import check_options, check_reference, check_rows, per_group

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# With a polish to follow, Algorithm 1 need not be run to the last digit.
SURROGATE_TOL = 5e-3
# Risks below this share of the labels' mean square are rounding.
RISK_FLOOR = 1e-14
# A linear fit whose duality gap exceeds its tolerance by this factor has not converged.
GAP_SLACK = 100.0


@dataclass(frozen=True)
class Solution:
    """Everything a fit found.

    Attributes
    ----------
    coef, intercept : the neuron ``sigma(coef.x + intercept)``
    losses : array of shape (K,), mean squared loss of every group (of truncated labels, if any)
    weights : array of shape (K,), the group weights
    risk : float
    nu, radius, truncation : the values used
    n_iter : iterations of Algorithm 1
    n_passes : reads of the rows, polish and measurements included
    converged : bool
    status : a sentence
    history : arrays of equal length, one entry per iteration; ``slack`` is the running sum
    certificate : Certificate
    labels : array of shape (K,), the group labels
    """

    coef: Array
    intercept: float
    losses: Array
    weights: Array
    risk: float
    nu: float
    radius: float | None
    truncation: float | None
    n_iter: int
    n_passes: int
    converged: bool
    status: str
    history: Mapping[str, Array]
    certificate: Certificate
    labels: Array


def solve(
    X: Any,
    y: Array,
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
    callback: Callable[[Progress], None] | None = None,
    check_input: bool = True,
) -> Solution:
    """Minimise the group-robust risk of one neuron; parameters as in ``GroupDRONeuron``.

    ``callback`` is called with a :class:`Progress` after every iteration of Algorithm 1.
    ``check_input=False`` skips the check that ``X`` and ``y`` are arrays of finite numbers.
    """
    sigma, steps = get_activation(activation), get_schedule(schedule)
    d_f = get_divergence(divergence)
    check_options(nu, radius, precondition, truncate, max_iter, tol)
    if isinstance(steps, PaperSteps):
        if radius is not None:
            steps.log_term(sigma.beta, radius)
        precondition = None if precondition == "auto" else precondition
    if check_input:
        X, y = check_rows(X, y)
    data = GroupedData.build(X, y, groups, sample_weight, intercept=fit_intercept)
    prior_K = check_prior(per_group(prior, data.labels, "prior"), data.n_groups)
    reference_K = check_reference(per_group(reference, data.labels, "reference"), data.n_groups)

    with single_threaded_blas():
        engine = make_engine(data, sigma, centred=precondition is not None)
        frame = Frame.measure(engine, prior_K, precondition, radius)
        terms = settle(engine, frame, prior_K, steps, nu=nu, radius=radius, truncate=truncate)
        engine, start, paper = terms.engine, terms.start, isinstance(steps, PaperSteps)

        objective = Objective(d_f, terms.nu, prior_K, reference_K)
        problem = Problem(engine, frame.coordinates, objective)
        scale = ProblemScale(
            beta=sigma.beta,
            n_groups=data.n_groups,
            radius=terms.radius,
            nu=terms.nu,
            moment=frame.moment,
            mean_moment=frame.mean_moment,
            label_scale=label_scale(engine.data, prior_K),
        )
        floor = RISK_FLOOR * scale.label_scale
        working = _working_problem(problem, frame, sigma)
        run = primal_dual(
            working, steps, scale, start=start, max_iter=max_iter,
            tol=max(tol, SURROGATE_TOL) if polish else tol, floor=floor, callback=callback,
        )  # fmt: skip
        logger.info("Algorithm 1: %d iterations, risk %.6g", run.n_iter, run.history["risk"][-1])
        matrices = frame.matrices if sigma.is_identity else None
        u, ev = (run.u, run.eval) if paper else (run.best, run.best_eval)
        point, polished = run.dual.point, None
        if polish:
            polished = descend(problem, u, point, tol=tol, floor=floor, matrices=matrices)
            logger.info("polish: %d steps, risk %.6g", polished.n_iter, polished.risk)
            u, ev, point = polished.u, polished.eval, polished.point
        elif working is not problem:
            ev = problem.evaluate(u, surrogate=False)
        point = _better_weights(objective, ev, point, scale)
        at_zero = engine.data.group_mean(engine.data.y**2)  # sigma(0) = 0
        if problem.risk(at_zero) < problem.risk(ev.loss_K):
            u = np.zeros_like(u)
            ev = problem.evaluate(u, surrogate=False)
            point = objective.respond(ev.loss_K)
        loss = ev.loss_K

        gap = duality_gap(problem, u, ev, point, matrices) if sigma.is_identity else None
        certificate = certify(
            working, run, scale, start=start, u=u, loss_K=loss, point=point, gap=gap,
            metric=frame.kind, moment_exact=frame.matrices is not None,
        )  # fmt: skip

    w = frame.coordinates.to_user(u)
    converged, status = _status(run, polished, paper)
    size = max(abs(problem.risk(loss)), floor)
    allowed = GAP_SLACK * max(tol, 1e-7) * size
    if polish and gap is not None and allowed < gap.value < math.inf:
        converged = False
        status = (
            f"Stopped with a duality gap of {gap.value:.2g}, {gap.value / size:.1g} of the risk; "
            "rescale the features, lower tol, or try another precondition."
        )
    return Solution(
        coef=w[: data.n_features].copy(),
        intercept=float(w[-1]) if data.intercept else 0.0,
        losses=loss,
        weights=point.weights,
        risk=problem.risk(loss),
        nu=terms.nu,
        radius=radius,
        truncation=terms.truncation,
        n_iter=run.n_iter,
        n_passes=engine.passes,
        converged=converged,
        status=status,
        history=run.history,
        certificate=certificate,
        labels=data.labels,
    )


def _working_problem(problem: Problem, frame: Frame, sigma: Activation) -> Problem:
    """What Algorithm 1 runs on: quadratics without rows, if the losses are that."""
    if not sigma.is_identity or frame.matrices is None:
        return problem
    origin = problem.evaluate(np.zeros(problem.size), surrogate=False)
    engine = QuadraticEngine(origin.loss_K, origin.grad_KD, frame.matrices)
    return QuadraticProblem(engine, problem.coordinates, problem.objective)


def _better_weights(
    objective: Objective, ev: GroupEval, point: SimplexPoint, scale: ProblemScale
) -> SimplexPoint:
    """The weights found, or the exact response to the losses: whichever explains the fit better.

    At a minimiser the two agree. For small ``nu`` the response is decided by the last digits of
    tied losses, so it is judged as a dual solution would be: by what ``L`` falls short of ``R``
    and by the gradient that the weights leave.
    """
    if objective.nu == 0:
        return point
    loss, grad = ev
    risk, curvature = objective.risk(loss), 2.0 * scale.beta**2 * scale.mean_moment

    def miss(candidate: SimplexPoint) -> float:
        slope = candidate.weights @ grad
        short = max(risk - objective.lagrangian(loss, candidate.weights), 0.0)
        return short + 0.5 * float(slope @ slope) / curvature

    # Ties and rounding go to the response, which is the closed form.
    response, rounding = objective.respond(loss), 1e-12 * float(np.abs(loss).max())
    return response if miss(response) <= 2.0 * miss(point) + rounding else point


def _status(run: PrimalDualResult, polished: PolishResult | None, paper: bool) -> tuple[bool, str]:
    """Whether the fit is done, and a sentence that says what to do if not."""
    if polished is not None:
        if polished.converged:
            return True, (
                f"Converged: after {run.n_iter} iterations of Algorithm 1 and {polished.n_iter} "
                "polishing steps, no step lowers the risk by more than tol."
            )
        return False, (
            f"Stopped after {polished.n_iter} polishing steps before the risk settled to tol; "
            "raise tol, or rescale the features if precondition=None."
        )
    if paper:
        return True, (
            f"Ran the {run.n_iter} iterations of Algorithm 1 that max_iter asked for, with the "
            "paper's step sizes; these move slowly, and schedule='adaptive' is the practical one."
        )
    if run.converged:
        return True, f"Converged: the risk settled to tol after {run.n_iter} iterations."
    return False, (
        f"Stopped at max_iter={run.n_iter} before the risk settled to tol; raise max_iter or "
        "tol, or use polish=True."
    )
