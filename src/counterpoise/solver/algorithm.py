"""Algorithm 1 of the paper: the primal-dual loop, in its line order.

Each iteration reads the rows once: the dual step, the slack account, the risk and the next primal
step all use the losses and surrogate gradients at ``w_t``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.dual.step import DualState, dual_step, extrapolate
from counterpoise.rows.engines.base import GroupEval
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import Measurement, ProblemScale, Schedule
from counterpoise.solver.slack import SlackAccount

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# Sums of step sizes grow geometrically. Before they overflow, all are divided by this.
RESCALE = 1e150
# What is extrapolated before the primal step: the weights (the paper), the whole gradient (its
# predecessor), or nothing.
EXTRAPOLATIONS = ("dual", "primal", "none")
# An extrapolated gradient overshoots more than extrapolated weights: on a quadratic of curvature
# L, steps are stable up to 2/(3L) instead of 2/L. Curvatures are multiplied by these factors.
CAUTION = {"dual": 1.0, "primal": 2.0, "none": 1.0}
# The loop has converged after this many iterations without progress, if the risk then oscillates
# by at most this many tolerances.
PATIENCE, CALM = 8, 100.0


class Progress(NamedTuple):
    """Progress of a run, passed to the callback after every iteration."""

    iteration: int
    risk: float
    worst: float
    step: float
    slack: float
    weights: Array


@dataclass
class PrimalDualResult:
    """The result of a run of Algorithm 1.

    ``u`` is the last iterate, which the theorem bounds; ``best`` is the iterate with the lowest
    risk. ``result`` is the last if the schedule runs ``as_printed``, else the best.
    ``milestones`` pair iterates 0, 1, 3, 7, ... with the group weights one step later, and the
    last iterate with its own weights.
    """

    u: Array
    eval: GroupEval
    best: Array
    best_eval: GroupEval
    as_printed: bool
    dual: DualState
    account: SlackAccount
    history: dict[str, Array]
    milestones: list[tuple[Array, Array]]
    converged: bool
    n_iter: int
    start: Array
    first_weights: Array

    @property
    def result(self) -> Array:
        return self.u if self.as_printed else self.best

    @property
    def result_eval(self) -> GroupEval:
        return self.eval if self.as_printed else self.best_eval


def primal_dual(
    problem: Problem,
    schedule: Schedule,
    scale: ProblemScale,
    *,
    start: Array,
    weights: SimplexPoint | None = None,
    max_iter: int,
    tol: float,
    patience: int = PATIENCE,
    floor: float = 0.0,
    steady: bool = False,
    least_rho: float = 0.0,
    extrapolation: str = "dual",
    callback: Callable[[Progress], None] | None = None,
) -> PrimalDualResult:
    """Run Algorithm 1 from ``start`` and from group ``weights`` (the prior if None).

    A schedule that runs ``as_printed`` makes exactly ``max_iter`` iterations. Otherwise the loop
    ends when the best risk has improved by less than ``tol`` for ``patience`` iterations; with
    ``tol = 0`` it never ends early. ``tol`` is relative, and risks below ``floor`` count as zero.
    If no polish follows, the risk must also be ``steady``: while it oscillates, it has not
    converged. Nor does the loop end before ``rho`` has grown to ``least_rho``.

    ``extrapolation`` is "dual" as in the paper, or "primal" or "none" for comparison. The slack
    account follows the paper's proof; without dual extrapolation its slack is NaN.
    """
    caution = _caution(extrapolation)
    scale = scale._replace(moment=caution * scale.moment)
    objective = problem.objective
    nu, prior = objective.nu, objective.prior
    c1, nu0 = schedule.sharpness(scale), schedule.starting_weight(scale)
    account = SlackAccount(c1=c1, nu0=nu0, nu=nu)

    u = start
    ev = problem.evaluate(u, surrogate=True)
    dual = DualState.start(prior if weights is None else weights.weights)
    first_weights = dual.weights
    unit, curvature = 1.0, 0.0
    best, best_eval, best_risk = u, ev, problem.risk(ev.loss_K)
    milestones: list[tuple[Array, Array]] = []
    names = ("risk", "worst", "step", "slack", "weights", "group_risks")
    log: dict[str, list[Any]] = {name: [] for name in names}
    idle, converged = 0, False
    behind = dual.weights @ ev.grad_KD  # the gradient one iteration ago

    for t in range(1, max_iter + 1):
        # line 2: step size a_t, from measurements at w_{t-1}
        now = Measurement(t, dual.total, dual.step, spread(ev.grad_KD), unit, caution * curvature)
        step = schedule.step(scale, c1, nu0, now)
        rho = unit + 0.5 * c1 * (dual.total + step)
        # line 4: extrapolated weights
        factor = dual.step / step
        weights_bar = extrapolate(dual, factor if extrapolation == "dual" else 0.0)
        # line 5: primal step over the ball
        ahead = weights_bar @ ev.grad_KD
        if extrapolation == "primal":
            behind, ahead = ahead, ahead + factor * (ahead - behind)
        u_next = problem.project(u - (step / rho) * ahead)
        ev_next = problem.evaluate(u_next, surrogate=True)
        if t > 1 and not np.isfinite(ev_next.loss_K).all():
            break  # a loss without a bounded second derivative grew beyond all numbers
        # line 6: dual step
        dual_next = dual_step(
            dual,
            objective.excess(ev_next.loss_K),
            step=step,
            nu=nu,
            nu0=nu0 * unit,
            prior=prior,
            divergence=objective.divergence,
        )
        paid = account.slack
        if extrapolation == "dual":
            account.enter(
                objective, unit, rho, weights_bar, u_next - u, ev, ev_next, dual, dual_next
            )
        else:
            account.direct = np.nan
        curvature = max(curvature, _bend(u_next - u, ev_next.grad_KD - ev.grad_KD))
        if account.slack > paid:
            curvature *= 1.25
        if t & (t - 1) == 0:
            milestones.append((u, dual_next.weights))  # w_{t-1} and lam_t, as the proof pairs them
        u, ev, dual = u_next, ev_next, dual_next

        risk = problem.risk(ev.loss_K)
        gain = best_risk - risk
        idle = 0 if gain > tol * max(objective.size(risk), floor) / patience else idle + 1
        if gain > 0:
            best, best_eval, best_risk = u, ev, risk
        log["risk"].append(risk)
        log["worst"].append(float(ev.loss_K.max()))
        log["step"].append(account.in_first_unit(step, unit))
        log["slack"].append(account.in_first_unit(account.slack, unit))
        log["weights"].append(dual.weights)
        log["group_risks"].append(ev.loss_K)
        if callback is not None:
            worst, slack = log["worst"][-1], log["slack"][-1]
            callback(Progress(t, risk, worst, log["step"][-1], slack, dual.weights))
        logger.debug("iteration %d: risk %.6g, slack %.3g", t, risk, log["slack"][-1])
        grown = account.in_first_unit(rho, unit) >= least_rho
        if idle >= patience and tol > 0 and grown and not schedule.as_printed:
            recent = log["risk"][-patience:]
            calm = max(recent) - min(recent) <= CALM * tol * max(objective.size(risk), floor)
            if calm or not steady:
                converged = True
                break
        if dual.total > RESCALE:
            unit, dual = unit / RESCALE, _rescaled(dual)
            account.rescale(RESCALE)

    milestones.append((u, dual.weights))
    account.close(unit, dual)
    history = {key: np.array(values) for key, values in log.items()}
    return PrimalDualResult(
        u=u, eval=ev, best=best, best_eval=best_eval, as_printed=schedule.as_printed, dual=dual,
        account=account, history=history, milestones=milestones, converged=converged,
        n_iter=len(log["risk"]), start=start, first_weights=first_weights,
    )  # fmt: skip


def _caution(extrapolation: str) -> float:
    if extrapolation not in EXTRAPOLATIONS:
        raise ValueError(
            f"extrapolation={extrapolation!r} is not known; use one of "
            f"{', '.join(map(repr, EXTRAPOLATIONS))}"
        )
    return CAUTION[extrapolation]


def spread(grad_KD: Array) -> float:
    """Return ``G = max_i ||v_i - mean_j v_j||``."""
    return float(np.sqrt(np.sum((grad_KD - grad_KD.mean(axis=0)) ** 2, axis=1).max()))


def _bend(dw: Array, change_KD: Array) -> float:
    """Return the largest change of any group's surrogate gradient per length of ``dw``."""
    moved = float(np.linalg.norm(dw))
    return float(np.linalg.norm(change_KD, axis=1).max()) / moved if moved > 0 else 0.0


def _rescaled(dual: DualState) -> DualState:
    return DualState(
        dual.point, dual.previous, dual.step / RESCALE, dual.total / RESCALE, dual.iteration
    )
