"""Both sides of the theorem's inequality at every iteration, from the iterates.

Nothing is taken from the library's account: logarithms of weights, errors and couplings are
computed anew, and the account is compared with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from counterpoise.dual.divergences import KL, SimplexPoint
from counterpoise.rows.engines.base import GroupEval
from counterpoise.solver.algorithm import PrimalDualResult, primal_dual
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import ProblemScale, Schedule

Array = np.ndarray

# A side is a sum of terms; below this share of them a difference is rounding.
ROUNDING = 1e-9
# Points this much closer to the target than the first are at it: no sharpness is measured there.
AT_TARGET = 1e-6


@dataclass(frozen=True)
class Recording(Problem):
    """A problem that remembers where it was evaluated and what it answered."""

    seen: list[tuple[Array, GroupEval]] = field(default_factory=list)

    def evaluate(self, u: Array, *, surrogate: bool) -> GroupEval:
        found = super().evaluate(u, surrogate=surrogate)
        self.seen.append((u, found))
        return found


@dataclass(frozen=True)
class Trace:
    """A finished run: iterates 0..n, their losses, gradients and log-weights; steps 1..n."""

    problem: Problem
    scale: ProblemScale
    run: PrimalDualResult
    c1: float
    nu0: float
    points: Array
    loss: Array
    grad: Array
    logs: Array
    step: Array

    @property
    def weights(self) -> Array:
        return np.exp(self.logs) if self._is_kl else self.logs

    @property
    def _is_kl(self) -> bool:
        return isinstance(self.problem.objective.divergence, KL)

    @property
    def total(self) -> Array:
        """``A_0 = 0, A_1, ..., A_n``."""
        return np.concatenate([[0.0], np.cumsum(self.step)])

    @property
    def rho(self) -> Array:
        return 1.0 + 0.5 * self.c1 * self.total


def trace(problem: Problem, scale: ProblemScale, steps: Schedule, n: int) -> Trace:
    """Run ``n`` iterations from zero and keep everything."""
    recording = Recording(problem.engine, problem.coordinates, problem.objective)
    run = primal_dual(recording, steps, scale, start=np.zeros(problem.size), max_iter=n, tol=0.0)
    c1, nu0 = steps.sharpness(scale), steps.starting_weight(scale)
    loss = np.array([found.loss_K for _, found in recording.seen])
    step = run.history["step"]
    objective = problem.objective
    if isinstance(objective.divergence, KL):
        logs = kl_log_weights(loss, step, objective.nu, nu0, objective.prior)
    else:
        logs = np.vstack([objective.prior, run.history["weights"]])
    return Trace(
        problem, scale, run, c1, nu0, np.array([u for u, _ in recording.seen]), loss,
        np.array([found.grad_KD for _, found in recording.seen]), logs, step,
    )  # fmt: skip


def kl_log_weights(loss: Array, step: Array, nu: float, nu0: float, prior: Array) -> Array:
    """The dual step of Algorithm 1 in logarithms, which never reach zero."""
    logs, total = [np.log(prior)], 0.0
    for a, at in zip(step, loss[1:], strict=True):
        new = a * at + (nu0 + nu * total) * logs[-1] + a * nu * np.log(prior)
        total += a
        new /= nu0 + nu * total
        new -= new.max()
        logs.append(new - np.log(np.exp(new).sum()))
    return np.array(logs)


def dual_distances(run: Trace, best: SimplexPoint) -> Array:
    """``D(lam*, lam_t)`` for every ``t``."""
    prior, lam = run.problem.objective.prior, best.weights
    if run._is_kl:
        live = lam > 0
        return (lam[live] * (np.log(lam[live]) - run.logs[:, live])).sum(axis=1)
    return ((lam - run.weights) ** 2 / prior).sum(axis=1)


def slack_sums(run: Trace) -> tuple[Array, Array, Array]:
    """Running sums of ``E_t`` and ``Q_t``, and the boundary term, for ``n = 1, 2, ...``."""
    lam, a = run.weights, run.step
    nu, prior = run.problem.objective.nu, run.problem.objective.prior
    dw, dlam = np.diff(run.points, axis=0), np.diff(lam, axis=0)
    before = np.vstack([np.zeros_like(dlam[:1]), dlam[:-1]])
    last = np.concatenate([[0.0], a[:-1]])
    bar = lam[:-1] + (last / a)[:, None] * before
    rise = (lam[1:] * np.diff(run.loss, axis=0)).sum(axis=1)
    ahead = np.einsum("tk,tkd,td->t", bar + dlam, run.grad[:-1], dw)
    error = rise - ahead
    # The losses' own rounding, which a huge step would blow up.
    dust = 32 * np.finfo(float).eps * (lam[1:] * run.loss[1:]).sum(axis=1)
    error[np.abs(error) <= dust] = 0.0
    if run._is_kl:
        moved = (lam[1:] * np.diff(run.logs, axis=0)).sum(axis=1)
    else:
        moved = (dlam**2 / prior).sum(axis=1)
    pull = run.nu0 + nu * run.total[:-1]
    direct = a * error - 0.5 * run.rho[1:] * (dw**2).sum(axis=1) - pull * np.maximum(moved, 0.0)
    turn = np.einsum("tk,tkd->td", dlam, np.diff(run.grad, axis=0))
    tail = a * np.linalg.norm(np.einsum("tk,tkd->td", dlam, run.grad[:-1]), axis=1)
    return np.cumsum(direct), np.cumsum(a * (turn**2).sum(axis=1)), tail


@dataclass(frozen=True)
class Sides:
    """The inequality against one target, for ``n = 1, 2, ...``.

    ``left <= paper`` is the theorem with its constants, true for the run if ``premise``;
    ``left <= signed`` ours, with the measured slack whatever its sign; ``left <= ours`` what the
    certificate uses, where a slack below zero counts as zero. Infinite where the sharpness met is
    too small for the steps.
    """

    left: Array
    paper: Array
    ours: Array
    signed: Array
    slack: Array
    premise: bool
    sharpness: float
    reach: float

    @staticmethod
    def broken(left: Array, right: Array) -> Array:
        """Iterations at which ``left <= right`` fails by more than rounding."""
        return np.flatnonzero(left > right + ROUNDING * (np.abs(left) + np.abs(right))) + 1


def sides(run: Trace, star: Array, *, B: float) -> Sides:
    """Evaluate the inequality for the target ``star``; ``6 B`` bounds the second moments."""
    objective, beta = run.problem.objective, run.scale.beta
    loss_star = run.problem.evaluate(star, surrogate=False).loss_K
    best, opt = objective.respond(loss_star), float(loss_star.max())
    apart = np.sum((run.points - star) ** 2, axis=1)
    gaps = dual_distances(run, best)
    left = 0.25 * run.rho * apart + (run.nu0 + objective.nu * run.total) * gaps
    start = 0.5 * apart[0] + run.nu0 * gaps[0]

    separation = np.concatenate(
        [run.problem.separation(part, star) for part in np.array_split(run.points, 20)]
    )
    far = apart > AT_TARGET**2 * apart[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = np.minimum(
            (separation[:-1] * run.weights[1:]).sum(axis=1) / apart[:-1],
            (separation @ best.weights)[1:] / apart[1:],
        )
        every = (separation.min(axis=1) / apart)[far].min()
    mixed[~(far[:-1] & far[1:])] = np.inf
    c = np.minimum.accumulate(mixed)

    direct, coupling, tail = slack_sums(run)
    spare = c - 0.25 * run.c1
    known = spare > 0
    room = np.where(known, spare, np.nan)
    noise = beta**2 * run.scale.moment * opt * run.total[1:] * (3.0 / room + 2.0 / c)
    slack = direct + coupling * 3.0 / (8.0 * room)
    fixed = start + noise + tail**2 / run.rho[1:]
    return Sides(
        left=left[1:],
        paper=start + 40.0 * beta**2 * B / run.c1 * run.total[1:] * opt,
        ours=np.where(known, fixed + np.maximum(slack, 0.0), np.inf),
        signed=np.where(known, fixed + slack, np.inf),
        slack=direct + coupling / (2.0 * run.c1),
        premise=bool(every >= run.c1),
        sharpness=float(every),
        reach=float(np.linalg.norm(run.points, axis=1).max() / np.linalg.norm(star)),
    )
