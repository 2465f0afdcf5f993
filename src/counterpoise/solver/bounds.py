"""Certification of a finished run: duality gap, sharpness and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.algorithm import PrimalDualResult
from counterpoise.solver.certificate import (
    ASSUMED,
    EXACT,
    MEASURED,
    Certificate,
    CertificateConstants,
    RegionProof,
    largest_loss_at_optimum,
)
from counterpoise.solver.coordinates import RANK_TOLERANCE, Coordinates
from counterpoise.solver.frame import Frame
from counterpoise.solver.problem import Problem
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.schedules import ProblemScale
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray

METRICS = {
    "whiten": "as the root mean square of the linear score, averaged over groups",
    "scale": "in coefficients of features scaled to unit mean square",
    "none": "in coefficients",
}
# With more coefficients than this, the matrix of the duality gap is too large.
GAP_LIMIT = 4096


class DualityGap(NamedTuple):
    """A proved bound on ``R(u) - min R``, and on the distance from ``u`` to any minimiser.

    Both hold for coefficients without a component in the ``flat`` directions of the proof's
    matrix. ``rounding`` is the part of ``value`` that allows for rounding.
    """

    value: float
    distance: float
    flat: int = 0
    rounding: float = 0.0


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
    proof: RegionProof | None = None,
    asked: bool = False,
) -> Certificate:
    """Certify the returned coefficients ``u`` after a run of Algorithm 1.

    ``problem`` is the problem that Algorithm 1 ran on; ``gap`` is the duality gap, if any, and
    ``proof`` what was proved about regions around ``u``. ``asked`` is whether the theorem should
    bound a distance.
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
        c1_source=ASSUMED,
        opt_bound=largest_loss_at_optimum(objective, risk),
        theorem_bound=math.inf,
        returned_bound=math.inf if gap is None else gap.distance,
        iterate_norm=float(np.linalg.norm(run.u - run.start)),
        metric=METRICS[metric],
        label_scale=scale.label_scale,
        dropped=max(problem.coordinates.dropped, gap.flat if gap is not None else 0),
        constants=constants,
        iterations=run.n_iter,
        iterate_to_fit=float(np.linalg.norm(run.u - u)),
        proof=proof,
        asked=asked,
    )
    apart = _Apart.of(problem, run, u)
    if apart is not None:
        certificate = replace(certificate, group_sharpness=tuple(apart.by_group.tolist()))
    if isinstance(problem.engine, QuadraticEngine):
        exact = 0.5 * float(np.linalg.eigvalsh(problem.engine.hess)[:, :1].min(initial=np.inf))
        if 1e-9 * scale.moment < exact < np.inf:
            return certificate.at_sharpness(exact, EXACT)
    if apart is None:
        return certificate
    sharpness = apart.mixed(point)
    return replace(certificate, c1=sharpness, c1_source=MEASURED)


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
    problem: Problem, u: Array, ev: GroupEval, point: SimplexPoint, frame: Frame
) -> DualityGap:
    """Compute ``R(u) - min_w L(w, lam)`` for quadratic losses with values ``ev`` at ``u``.

    The gap is ``[R(u) - L(u, lam)] + g.H^+.g / 2``, where ``g`` and ``H`` are the gradient and the
    matrix of ``L(., lam)``. Neither term is negative, so nothing cancels. A ball with multiplier
    ``m`` adds ``m/2 (||coef||^2 - radius^2)`` to the Lagrangian; any ``m >= 0`` gives a valid
    bound. The gap includes what rounding may have done to the losses and the gradient.
    """
    objective, coordinates = problem.objective, problem.coordinates
    if frame.matrices is None and problem.size > GAP_LIMIT:
        return DualityGap(math.inf, math.inf)
    gradient = point.weights @ ev.grad_KD
    if frame.matrices is not None:
        curved = np.tensordot(point.weights, frame.matrices, axes=1)
    else:
        curved = problem.curvature(u, point.weights)
    inner = problem.risk(ev.loss_K) - objective.lagrangian(ev.loss_K, point.weights)
    rounding = Rounding.of(problem, u, ev.loss_K, point, frame)
    multipliers = [0.0]
    if coordinates.radius is not None:
        pulled = coordinates.coef_gram() @ u
        size = float(pulled @ pulled)
        if size > 0:
            multipliers.append(max(0.0, -float(gradient @ pulled) / size))

    def outer(multiplier: float, lost: Callable[[Array], float]) -> float:
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
        left = math.sqrt(max(float(slope @ step), 0.0)) + lost(matrix)
        return max(0.5 * multiplier * room, 0.0) + 0.5 * left**2

    exact = max(inner, 0.0) + min(outer(m, lambda matrix: 0.0) for m in multipliers)
    gap = max(inner, 0.0) + min(outer(m, rounding.length) for m in multipliers) + rounding.loss
    # R(v) >= L(v, lam) >= R(u) - gap + s ||v - m||^2, where m minimises L(., lam) and s is the
    # smallest eigenvalue of the mixed second moment: u and any minimiser are close to m.
    if not len(u):
        return DualityGap(gap, 0.0, 0, gap - exact)
    values = 0.5 * np.linalg.eigvalsh(curved)
    size = np.sqrt(np.maximum(np.diag(curved), 0.0))
    alive = size > 0
    unit = np.linalg.eigvalsh(curved[np.ix_(alive, alive)] / np.outer(size[alive], size[alive]))
    flat = int(np.sum(unit <= RANK_TOLERANCE * unit.max(initial=0.0)))
    sharp = alive.all() and values[0] > 1e-12 * values[-1]
    distance = 2.0 * math.sqrt(gap / float(values[0])) if sharp else math.inf
    return DualityGap(gap, distance, flat, gap - exact if math.isfinite(gap) else 0.0)


class Rounding(NamedTuple):
    """Bounds on what rounding did to ``L(u, lam)``, to residuals, and to sums for the gradient.

    A score is a sum of ``d + 1`` products, so its error is at most that many units of rounding,
    relative to the sum of the products' sizes. A sum over rows loses at most a unit per addition.
    These are worst cases; real errors are far smaller.
    """

    loss: float
    score: float
    sums_D: Array

    @classmethod
    def of(
        cls, problem: Problem, u: Array, loss_K: Array, point: SimplexPoint, frame: Frame
    ) -> Rounding:
        engine, objective, coordinates = problem.engine, problem.objective, problem.coordinates
        assert isinstance(engine, SumEngine)
        assert isinstance(coordinates, Coordinates)
        unit, d = 0.5 * engine.rounding, engine.n_features
        w = coordinates.to_user(u)
        products = float(np.abs(w[:d]) @ frame.sizes) + (abs(w[d]) if len(w) > d else 0.0)
        # Groups may be farther out than the average: E_i x^2 <= E x^2 / prior_i.
        share = np.sqrt(np.maximum(objective.prior, np.finfo(float).tiny))
        score_K = (d + 3) * unit * (products / share + np.sqrt(engine.label_squares()))
        summing = (engine.additions + 8) * unit
        root_K = np.sqrt(loss_K)
        lost_K = 2.0 * root_K * score_K + score_K**2 + summing * loss_K
        plain = 16 * np.finfo(float).eps * (float(loss_K.max()) + abs(objective.risk(loss_K)))
        raw = frame.sizes + np.abs(coordinates.shift)
        raw = np.append(raw, 1.0) if len(w) > d else raw
        reach = raw @ np.abs(coordinates.basis) if coordinates.basis.ndim == 2 else (
            raw * np.abs(coordinates.basis)
        )  # fmt: skip
        adding = 2.0 * (summing + len(w) * unit) * float(point.weights @ (root_K / share))
        score = math.sqrt(float(point.weights @ score_K**2))
        return cls(float(point.weights @ lost_K) + plain, score, adding * reach)

    def length(self, matrix: Array) -> float:
        """Bound ``sqrt(e.H^+.e)`` over errors ``e`` of the gradient, for the matrix ``H``."""
        diagonal = matrix.diagonal()
        alive = diagonal > 0
        scale = np.where(alive, 1.0 / np.sqrt(np.where(alive, diagonal, 1.0)), 0.0)
        values, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
        keep = values > RANK_TOLERANCE * values.max(initial=0.0)
        inverse = (vectors[:, keep] ** 2 / values[keep]).sum(axis=1)
        # Residuals off by e change the gradient by 2 mean e x, and H is 2 mean x x^T.
        error = math.sqrt(2.0) * self.score * np.sqrt(np.maximum(diagonal, 0.0)) + self.sums_D
        return float(error @ (scale * np.sqrt(inverse)))
