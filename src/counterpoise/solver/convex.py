"""The duality gap of losses that are convex in the score.

Fix weights ``lam`` and let ``F = L(., lam)``, with gradient ``g`` at the returned ``u``. Let ``A``
be a matrix below the second derivatives of ``F`` everywhere within a distance ``r`` of ``u``, in
the norm of ``A`` itself. There,

    F(u + x) >= F(u) + g.x + x.A.x / 2 >= F(u) - l ||x|| + ||x||^2 / 2,   l = sqrt(g.A^-1.g).

If ``r >= 2 l``, then ``F >= F(u)`` on the boundary. ``F`` is convex, so it is not smaller outside.
Hence ``F >= F(u) - l^2 / 2`` for *all* coefficients: what holds near ``u`` is proved everywhere,
without a bound on coefficients, and without a ridge.

One pass measures ``A``: each row's second derivative is replaced by its smallest value within reach
(``Loss.least_bend``). After Newton's last step ``l`` is so small that this changes little.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.rows.engines.scores import GramScores, LeastGram, ScoreErrors, SlopeSquares
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.frame import Frame
from counterpoise.solver.problem import Problem
from counterpoise.solver.stacked import Stacked

Array = np.ndarray

# With more coefficients than this, the matrix of the gap is too large.
GAP_LIMIT = 4096
# The first reach, in multiples of l; it is doubled this often if second derivatives vary too much.
REACH, DOUBLINGS = 4.0, 3
# Directions whose curvature is below this share of the largest are too flat to judge.
FLAT = 1e-13
# Slopes are measured, to bound the effect of rounding, if their bound is larger than this.
MEASURED = 2.0


class ConvexGap(NamedTuple):
    """A proved bound on ``R(u) - min R``, and on the distance from ``u`` to any minimiser.

    ``rounding`` is the part of ``value`` that allows for rounding. Both bounds are infinite if
    nothing could be proved.
    """

    value: float
    distance: float
    rounding: float = 0.0


NOTHING = ConvexGap(math.inf, math.inf)


def convex_gap(
    problem: Problem,
    u: Array,
    ev: GroupEval,
    point: SimplexPoint,
    frame: Frame,
    hess: Array | None = None,
) -> ConvexGap:
    """Prove a duality gap at ``u``, where losses and gradients are ``ev``.

    ``hess`` are second derivatives of the groups near ``u``, if known. They only choose the norm.
    """
    if problem.size > GAP_LIMIT:
        return NOTHING
    if not problem.size:
        return ConvexGap(0.0, 0.0)
    objective, coordinates = problem.objective, problem.coordinates
    inner = max(problem.risk(ev.loss_K) - objective.lagrangian(ev.loss_K, point.weights), 0.0)
    gradient = point.weights @ ev.grad_KD
    if hess is None or len(hess) != len(point.weights):
        curved = problem.curvature(u, point.weights)
    else:
        curved = np.tensordot(point.weights, hess, axes=1)
    errors = Errors.of(problem, u, ev.loss_K, point, frame)
    best = NOTHING
    for multiplier in _multipliers(coordinates, u, gradient):
        slope, matrix, room = gradient, curved, 0.0
        if multiplier:
            gram = coordinates.coef_gram()
            slope, matrix = gradient + multiplier * (gram @ u), curved + multiplier * gram
            room = (coordinates.radius or 0.0) ** 2 - coordinates.coef_norm(u) ** 2
            room = max(0.5 * multiplier * room, 0.0)
        slack = inner + room + errors.loss
        found = _outer(problem, u, point, slope, matrix, matrix - curved, errors, inner, slack)
        if found is not None:
            exact, lost, distance = found
            value = slack + 0.5 * (exact + lost) ** 2
            if value < best.value:
                best = ConvexGap(value, distance, value - inner - room - 0.5 * exact**2)
    return best


def _multipliers(coordinates: Coordinates | Stacked, u: Array, gradient: Array) -> list[float]:
    """Return multipliers of the ball to try; any that is not negative gives a valid bound."""
    out = [0.0]
    if coordinates.radius is not None:
        pulled = coordinates.coef_gram() @ u
        size = float(pulled @ pulled)
        if size > 0:
            out.append(max(0.0, -float(gradient @ pulled) / size))
    return out


def _outer(
    problem: Problem,
    u: Array,
    point: SimplexPoint,
    slope: Array,
    matrix: Array,
    extra: Array,
    errors: Errors,
    inner: float,
    slack: float,
) -> tuple[float, float, float] | None:
    """Return ``l``, what rounding adds to it, and the distance to points not above ``R(u)``.

    There ``F`` is at most ``F(u) + slack``. None if the second derivatives may vanish within reach.
    ``extra`` is a part of ``matrix`` that does not depend on the rows.
    """
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= FLAT * values[-1]:
        return None
    root = vectors / np.sqrt(values)  # in these coordinates the matrix is the identity
    length = float(np.linalg.norm(root.T @ slope)) + errors.length(root)
    least_reach = REACH * max(length, math.sqrt(inner), 1e-12 * math.sqrt(abs(inner) + 1.0))
    first = max(least_reach, REACH * math.sqrt(slack))
    for reach in dict.fromkeys([first, *(least_reach * 2.0**i for i in range(DOUBLINGS + 1))]):
        least = _least(problem, u, point, root, float(values[0]), reach) + root.T @ extra @ root
        if problem.ridge is not None:
            least = least + root.T @ problem.ridge.matrix() @ root
        small, turns = np.linalg.eigh(0.5 * (least + least.T))
        if small[0] <= 0:
            continue
        inverse = root @ (turns / np.sqrt(small))
        exact = float(np.linalg.norm(inverse.T @ slope))
        lost = errors.length(inverse)
        total = exact + lost
        # On the boundary, ||x|| in the norm of the bound is at least sqrt(small) reach.
        edge = math.sqrt(small[0]) * reach
        rise = 0.5 * edge**2 - total * edge
        if rise < inner:
            continue
        if rise >= slack:
            beyond = total + math.sqrt(total**2 + 2.0 * slack)
            return exact, lost, beyond * float(np.linalg.norm(inverse, 2))
        # F rises at least in proportion beyond the boundary.
        beyond = reach * slack / rise if rise > 0 else math.inf
        return exact, lost, beyond / math.sqrt(values[0])
    return None


def _least(
    problem: Problem, u: Array, point: SimplexPoint, root: Array, flattest: float, reach: float
) -> Array:
    """Bound second derivatives from below, within ``reach`` in the coordinates of ``root``.

    The result is in these coordinates too.
    """
    engine, coordinates = problem.engine, problem.coordinates
    assert isinstance(engine, SumEngine)
    w = coordinates.to_user(u)
    share = point.weights / engine.census.totals
    intercept, loss = engine.census.intercept, engine.loss
    if isinstance(coordinates, Stacked):
        # ||root.T (e_s (x) row)|| <= ||row|| / sqrt(flattest) for every score s
        wide = reach / math.sqrt(flattest)
        asked = GramScores(w, loss, share, engine.shift, coordinates.map, intercept, wide)
        return root.T @ coordinates.pull_curvature(loss.unit * engine.ask(asked)) @ root
    basis = coordinates.map @ root
    return engine.ask(LeastGram(w, loss, share, engine.shift, basis, intercept, reach))


class Errors(NamedTuple):
    """Bounds on what rounding did to ``L(u, lam)``, and to the gradient along each coordinate.

    A score is a sum of ``d + 1`` products, so its error is at most that many units of rounding,
    relative to the sum of the products' sizes. A sum over rows loses at most a unit per addition.
    These are worst cases; real errors are far smaller.
    """

    loss: float
    gradient_D: Array

    @classmethod
    def of(
        cls, problem: Problem, u: Array, loss_K: Array, point: SimplexPoint, frame: Frame
    ) -> Errors:
        engine, objective, coordinates = problem.engine, problem.objective, problem.coordinates
        assert isinstance(engine, SumEngine)
        unit, d, loss = 0.5 * engine.rounding, engine.n_features, engine.loss
        intercept, totals, weights = engine.census.intercept, engine.census.totals, point.weights
        w = coordinates.to_user(u)
        W = w.reshape(loss.n_scores, -1)
        products = np.abs(W[:, :d]) @ frame.sizes
        products = float((products + np.abs(W[:, d:]).sum(axis=1)).max())
        # Groups may be farther out than the average: E_i x^2 <= E x^2 / prior_i.
        share = np.sqrt(np.maximum(objective.prior, np.finfo(float).tiny))
        score_K = (d + 8) * unit * (products / share + 1.0)
        slope_K = np.full(len(loss_K), loss.slope_bound)
        if loss.slope_bound > MEASURED:
            slope_K = np.sqrt(engine.ask(SlopeSquares(w, loss, intercept))[:, 0] / totals)
        raw = np.append(frame.sizes, 1.0)
        summing = (engine.additions + 16) * unit
        off = float(weights @ ((summing + len(w) * unit) * slope_K / share)) * raw
        lost = float(weights @ (summing * loss_K))
        if math.isfinite(loss.bend_bound):
            # The errors of several scores add up: ||B e|| <= bend_bound ||e||.
            several = math.sqrt(loss.n_scores)
            lost += several * float(weights @ (slope_K * score_K))
            off = off + several * loss.bend_bound * float(weights @ (score_K / share)) * raw
        else:  # second moments do not bound what rows with a large second derivative do
            sums = (d + 8) * unit * (weights / totals) @ engine.ask(ScoreErrors(w, loss, intercept))
            lost, off = lost + float(sums[0]), off + sums[1:]
        lost += 16 * np.finfo(float).eps * (float(loss_K.max()) + abs(objective.risk(loss_K)))
        off[:d] += np.abs(coordinates.shift) * off[d]
        each = coordinates.each if isinstance(coordinates, Stacked) else coordinates
        basis, off = np.abs(each.basis), off if intercept else off[:d]
        pulled = off @ basis if basis.ndim == 2 else off * basis
        gradient = np.tile(pulled, problem.size // len(pulled))
        if problem.ridge is not None:
            more, along = problem.ridge.rounding(u)
            lost, gradient = lost + more, gradient + along
        return cls(lost, gradient)

    def length(self, root: Array) -> float:
        """Bound ``||root.T e||`` over errors ``e`` of the gradient."""
        return float(np.linalg.norm(np.abs(root).T @ self.gradient_D))
