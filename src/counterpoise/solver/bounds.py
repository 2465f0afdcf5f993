"""Certification of a finished run: duality gap, sharpness and bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.rows.engines.base import GroupEval
from counterpoise.solver.algorithm import PrimalDualResult
from counterpoise.solver.certificate import (
    Certificate,
    CertificateConstants,
    largest_loss_at_optimum,
)
from counterpoise.solver.coordinates import RANK_TOLERANCE
from counterpoise.solver.minmax import solve_semidefinite
from counterpoise.solver.problem import Problem
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.schedules import ProblemScale

Array = np.ndarray

METRICS = {
    "whiten": "as the root mean square of the linear score, averaged over groups",
    "scale": "in coefficients of features scaled to unit mean square",
    "none": "in coefficients",
}
# With more coefficients than this, the matrix of the duality gap is too large.
GAP_LIMIT = 4096
MEASURED = (
    "measured between this run's iterates and the returned coefficients, which stand in for "
    "the unknown minimiser"
)


EXACT = "exact: the smallest eigenvalue of any group's second moment"


class DualityGap(NamedTuple):
    """A proved bound on ``R(u) - min R``, and on the distance from ``u`` to any minimiser.

    Both hold for coefficients without a component in the ``flat`` directions of the proof's
    matrix.
    """

    value: float
    distance: float
    flat: int = 0


def certify(
    problem: Problem,
    run: PrimalDualResult,
    scale: ProblemScale,
    *,
    u: Array,
    loss_K: Array,
    point: SimplexPoint,
    gap: DualityGap | None,
    metric: str,
    moment_exact: bool,
) -> Certificate:
    """Certify the returned coefficients ``u`` after a run of Algorithm 1.

    ``problem`` is the problem that Algorithm 1 ran on; ``gap`` is the duality gap, if any.
    """
    objective, account = problem.objective, run.account
    risk = objective.risk(loss_K)
    constants = CertificateConstants(
        account=account,
        beta=scale.beta,
        moment=scale.moment,
        dual_start=float(
            objective.divergence.corner_distances(run.first_weights, objective.prior).max()
        ),
        risk_floor=objective.risk(np.zeros_like(loss_K)),
        moment_exact=moment_exact,
        mean_moment=scale.mean_moment,
    )
    certificate = Certificate(
        risk=risk,
        duality_gap=None if gap is None else gap.value,
        running_slack=account.in_first_unit(account.slack, account.unit),
        rho=account.in_first_unit(account.rho, account.unit),
        c1_assumed=account.c1,
        c1=account.c1,
        c1_source="assumed by the step sizes",
        opt_bound=largest_loss_at_optimum(objective, risk),
        theorem_bound=math.inf,
        returned_bound=math.inf if gap is None else gap.distance,
        iterate_norm=float(np.linalg.norm(run.u - run.start)),
        metric=METRICS[metric],
        label_scale=scale.label_scale,
        dropped=max(problem.coordinates.dropped, gap.flat if gap is not None else 0),
        constants=constants,
    )
    apart = _Apart.of(problem, run, u)
    if apart is not None:
        certificate = replace(certificate, group_sharpness=tuple(apart.by_group.tolist()))
    if isinstance(problem.engine, QuadraticEngine):
        exact = 0.5 * float(np.linalg.eigvalsh(problem.engine.hess)[:, :1].min(initial=np.inf))
        if 1e-9 * scale.moment < exact < np.inf:
            return certificate.at_sharpness(exact, EXACT)
    if apart is None:
        return certificate.at_sharpness(account.c1, certificate.c1_source)
    sharpness = apart.mixed(point)
    if sharpness == 0.0:  # coefficients differ, but outputs do not
        return replace(certificate, c1=0.0, c1_source=MEASURED)
    return certificate.at_sharpness(sharpness, MEASURED)


class _Apart(NamedTuple):
    """Distances between the iterates and the returned coefficients.

    ``separation`` (T, K) measures them by the neuron's outputs in each group, ``squares`` (T,) by
    the coefficients. ``weights`` (T, K) are those that the proof pairs with the iterates. The
    returned coefficients stand in for the unknown minimiser.
    """

    separation: Array
    squares: Array
    weights: Array

    @classmethod
    def of(cls, problem: Problem, run: PrimalDualResult, u: Array) -> _Apart | None:
        """Measure the distances in one pass; None if the iterates never left ``u``."""
        points = np.array([v for v, _ in run.milestones])
        gaps = np.linalg.norm(points - u, axis=1)
        far = gaps > 1e-6 * max(float(np.linalg.norm(u)), float(gaps.max()))
        if not far.any():
            return None
        weights = np.array([lam for _, lam in run.milestones])[far]
        return cls(problem.separation(points[far], u), gaps[far] ** 2, weights)

    @property
    def by_group(self) -> Array:
        return (self.separation / self.squares[:, None]).min(axis=0)

    def mixed(self, point: SimplexPoint) -> float:
        """Return the sharpness that the proof uses, at the weights where it uses it.

        This is the smallest ``lam . mean (sigma(w_t.x) - sigma(w.x))^2 / ||w_t - w||^2`` over the
        iterates.
        """
        iterates = np.sum(self.separation * self.weights, axis=1)
        least = np.minimum(iterates, self.separation @ point.weights)
        return float((least / self.squares).min())


def duality_gap(
    problem: Problem, u: Array, ev: GroupEval, point: SimplexPoint, matrices: Array | None
) -> DualityGap:
    """Compute ``R(u) - min_w L(w, lam)`` for quadratic losses with values ``ev`` at ``u``.

    The gap is ``[R(u) - L(u, lam)] + g.H^+.g / 2``, where ``g`` and ``H`` are the gradient and the
    matrix of ``L(., lam)``. Neither term is negative, so nothing cancels. A ball with multiplier
    ``m`` adds ``m/2 (||coef||^2 - radius^2)`` to the Lagrangian; any ``m >= 0`` gives a valid
    bound.
    """
    objective, coordinates = problem.objective, problem.coordinates
    if matrices is None and problem.size > GAP_LIMIT:
        return DualityGap(math.inf, math.inf)
    gradient = point.weights @ ev.grad_KD
    if matrices is not None:
        curved = np.tensordot(point.weights, matrices, axes=1)
    else:
        curved = problem.curvature(u, point.weights)
    inner = problem.risk(ev.loss_K) - objective.lagrangian(ev.loss_K, point.weights)
    multipliers = [0.0]
    if coordinates.radius is not None:
        pulled = coordinates.coef_gram() @ u
        size = float(pulled @ pulled)
        if size > 0:
            multipliers.append(max(0.0, -float(gradient @ pulled) / size))

    def outer(multiplier: float) -> float:
        room = 0.0
        slope, matrix = gradient, curved
        if multiplier:
            gram = coordinates.coef_gram()
            slope, matrix = gradient + multiplier * (gram @ u), curved + multiplier * gram
            room = (coordinates.radius or 0.0) ** 2 - coordinates.coef_norm(u) ** 2
        if not len(slope):
            return 0.0
        step = solve_semidefinite(matrix, slope, flat=RANK_TOLERANCE)
        # A gradient lies in the range of its group's matrix. The component outside is rounding
        # unless it is as large as the gradients themselves.
        miss = float(np.linalg.norm(matrix @ step - slope))
        if miss > 1e-6 * float(np.linalg.norm(ev.grad_KD, axis=1).max()):
            return math.inf
        return 0.5 * multiplier * room + 0.5 * float(slope @ step)

    gap = max(inner, 0.0) + max(min(map(outer, multipliers)), 0.0)
    gap += 8 * np.finfo(float).eps * float(np.abs(ev.loss_K).max())  # rounding of the risk itself
    # R(v) >= L(v, lam) >= R(u) - gap + s ||v - m||^2, where m minimises L(., lam) and s is the
    # smallest eigenvalue of the mixed second moment: u and any minimiser are close to m.
    if not len(u):
        return DualityGap(gap, 0.0)
    values = 0.5 * np.linalg.eigvalsh(curved)
    size = np.sqrt(np.diag(curved))
    alive = size > 0
    unit = np.linalg.eigvalsh(curved[np.ix_(alive, alive)] / np.outer(size[alive], size[alive]))
    flat = int(np.sum(unit <= RANK_TOLERANCE * unit.max(initial=0.0)))
    if not alive.all() or values[0] <= 1e-12 * values[-1]:
        return DualityGap(gap, math.inf, flat)
    return DualityGap(gap, 2.0 * math.sqrt(gap / float(values[0])), flat)
