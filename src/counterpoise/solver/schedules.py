"""Schedules: the step sizes ``a_t`` of Algorithm 1 as functions of measurements."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import ClassVar, NamedTuple

from counterpoise.common.arguments import chosen


class ProblemScale(NamedTuple):
    """Constants of a problem that are known before the first step.

    Attributes
    ----------
    beta : float
        Lipschitz constant of the activation; in general, ``2 beta^2`` bounds the second derivative
        of the loss.
    n_groups : int
    radius : float
        ``W``, the radius of the ball in the theory.
    nu : float
    moment : float
        Largest eigenvalue of any group's second moment, in the solver's coordinates.
    mean_moment : float
        Mean eigenvalue of the groups' average second moment; one after scaling or whitening.
    label_scale : float
        Mean squared deviation of the labels.
    modulus : float
        Strong convexity of the divergence: 2 for chi-squared, 1 for Kullback-Leibler.
    """

    beta: float
    n_groups: int
    radius: float
    nu: float
    moment: float
    mean_moment: float
    label_scale: float
    modulus: float


class Measurement(NamedTuple):
    """Measurements before step ``t``.

    ``total`` is ``A_{t-1}``, ``previous`` is ``a_{t-1}``, and ``spread`` is
    ``G_t = max_i ||v_i - mean_j v_j||``. ``curvature`` is the largest so far, zero before the
    first step. ``unit`` is the value that 1 has after rescaling.
    """

    iteration: int
    total: float
    previous: float
    spread: float
    unit: float = 1.0
    curvature: float = 0.0


def _positive(owner: str, **values: object) -> None:
    for name, value in values.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):  # type: ignore[arg-type,operator]
            raise ValueError(f"{owner}: {name} must be a positive number; got {value!r}")


class Schedule(ABC):
    """Step sizes of Algorithm 1. Subclass it to define your own."""

    # Whether Algorithm 1 runs as printed: from zero, for exactly ``max_iter`` iterations, in the
    # user's coordinates unless ``precondition`` is set, with its last iterate as the result.
    as_printed: ClassVar[bool] = False
    # Whether Algorithm 1 is all that runs: no intercept, no polish, in a ball of a given radius.
    alone: bool = False

    @abstractmethod
    def sharpness(self, scale: ProblemScale) -> float:
        """Return ``c1``, the sharpness that the steps assume."""

    @abstractmethod
    def starting_weight(self, scale: ProblemScale) -> float:
        """Return ``nu0``, the weight of the distance to the starting weights."""

    @abstractmethod
    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        """Return ``a_t`` in units of ``now.unit``; it must not shrink from step to step."""

    def check(self, beta: float, radius: float) -> None:
        """Raise ValueError if the constants do not fit a ball of this radius."""
        return

    def least_radius(self, beta: float) -> float | None:
        """Return the smallest radius to use if the user gives none; None for no ball."""
        return None

    def truncation(self, beta: float, radius: float) -> float | None:
        """Return the level for clipping labels if the user gives none; None for no clipping."""
        return None


@dataclass(frozen=True)
class AdaptiveSteps(Schedule):
    """Step sizes from measured curvature and gradient spread; the default.

    ``a_t = max(a_{t-1}, min((1 + c1 A/2) / (L - c1/2),
    sqrt(m (nu0 + nu A)(1 + c1 A/2)) / G_t))`` with ``A = A_{t-1}`` and ``m`` the strong convexity
    of the divergence. Steps are as large as the curvature of the losses and the motion of the
    weights allow, and never shrink.

    ``L`` is at most ``2 beta^2 max_i eig_max(mean_i x x^T)``. An activation that is flat on half
    of the rows has half of that curvature. So, after the first step, ``L`` is 1.2 times the
    largest ``||v_i(w_t) - v_i(w_{t-1})|| / ||w_t - w_{t-1}||`` so far, increased by a quarter
    after every step that did not pay for its errors. The run measures the cost of each step to
    the proof (see :class:`counterpoise.Certificate`).

    Parameters
    ----------
    c1 : float or None
        Assumed sharpness, in the solver's coordinates. None takes ``0.2`` times the mean
        eigenvalue of the features' second moment. The iterates hardly depend on it, but a much
        larger value makes the steps grow faster than the progress.
    nu0 : float or None
        Weight of the distance to the starting weights. None takes ``0.2`` times the labels' mean
        squared deviation, in units of squared coefficients.
    """

    c1: float | None = None
    nu0: float | None = None

    def __post_init__(self) -> None:
        given = {"c1": self.c1, "nu0": self.nu0}
        _positive("AdaptiveSteps", **{k: v for k, v in given.items() if v is not None})

    def sharpness(self, scale: ProblemScale) -> float:
        ceiling = self._curvature(scale)
        if self.c1 is None:
            return min(0.2 * scale.mean_moment, ceiling)
        if self.c1 >= 2.0 * ceiling:
            raise ValueError(
                f"AdaptiveSteps: c1={self.c1!r} exceeds what these features allow "
                f"(less than {2.0 * ceiling:.3g}); choose a smaller one or None"
            )
        return self.c1

    def starting_weight(self, scale: ProblemScale) -> float:
        if self.nu0 is not None:
            return self.nu0
        return 0.2 * scale.label_scale / scale.mean_moment

    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        unit, total = now.unit, now.total
        curvature = self._curvature(scale)
        if now.curvature > 0:
            curvature = max(min(curvature, 1.2 * now.curvature), c1)
        longest = (unit + 0.5 * c1 * total) / (curvature - 0.5 * c1)
        if now.spread > 0:
            room = (nu0 * unit + scale.nu * total) * (unit + 0.5 * c1 * total) * scale.modulus
            longest = min(longest, math.sqrt(room) / now.spread)
        return max(now.previous, longest)

    @staticmethod
    def _curvature(scale: ProblemScale) -> float:
        return 2.0 * scale.beta**2 * scale.moment


@dataclass(frozen=True)
class PaperSteps(Schedule):
    """The step sizes printed in Algorithm 1, from worst-case constants.

    They prove the theorem but are far too small in practice: with ``beta = B = 1`` and
    ``c1 = 0.1``, they grow by a factor of ``1 + 6e-7`` per step.

    Parameters
    ----------
    epsilon : float
        Target accuracy; ``nu0 = epsilon / (4 K)``.
    B : float
        Tail parameter of the features (sub-exponential projections).
    c1 : float
        Sharpness.
    C_M : float
        Constant of the truncation level ``M = C_M W B beta log(beta B W / epsilon)``.
    alone : bool
        Whether Algorithm 1 is all that runs, as with ``schedule="paper"``: ``polish`` and
        ``fit_intercept`` are then ignored, ``precondition`` must be "auto" or None, and a
        ``radius`` is needed.
    """

    as_printed: ClassVar[bool] = True

    epsilon: float = 0.01
    B: float = 1.0
    c1: float = 0.1
    C_M: float = 1.0
    alone: bool = False

    def __post_init__(self) -> None:
        _positive("PaperSteps", epsilon=self.epsilon, B=self.B, c1=self.c1, C_M=self.C_M)

    def sharpness(self, scale: ProblemScale) -> float:
        return self.c1

    def starting_weight(self, scale: ProblemScale) -> float:
        return self.epsilon / (4.0 * scale.n_groups)

    def check(self, beta: float, radius: float) -> None:
        self.log_term(beta, radius)

    def least_radius(self, beta: float) -> float:
        """Return the radius for which ``log(beta B W / epsilon)`` is one."""
        return math.e * self.epsilon / (beta * self.B)

    def log_term(self, beta: float, radius: float) -> float:
        """Return ``log(beta B W / epsilon)``, which the theory requires to be positive."""
        ratio = beta * self.B * radius / self.epsilon
        if ratio <= 1.0:
            raise ValueError(
                f"PaperSteps: epsilon={self.epsilon!r} is not below beta * B * radius = "
                f"{beta * self.B * radius:.4g}, so log(beta B W / epsilon) is not positive; "
                "choose a smaller epsilon"
            )
        return math.log(ratio)

    def truncation(self, beta: float, radius: float) -> float:
        """Return the level ``M`` at which the paper truncates labels."""
        return self.C_M * radius * self.B * beta * self.log_term(beta, radius)

    def constants(self, scale: ProblemScale, c1: float) -> tuple[float, float]:
        """Return ``C_4`` and ``C'_W`` of the paper."""
        beta, radius, B = scale.beta, scale.radius, self.B
        c4 = 27.0 * c1 + 2163.0 * beta**4 * B**2 / c1
        inner = 6.0 * beta**2 + self.C_M**2 * B * self.log_term(beta, radius) ** 2
        return c4, 2.0 * math.sqrt(3.0) * math.sqrt(inner) * beta * radius * B

    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        c4, cw = self.constants(scale, c1)
        t = now.iteration
        # In logarithms: the dual factor may overflow long before it matters.
        primal = (t - 1) * math.log1p(c1 / (8.0 * c4)) - math.log(4.0 * c4)
        growth = math.log1p(math.sqrt(c1 * scale.nu) / (4.0 * math.sqrt(2.0) * cw))
        dual = (t - 1) * growth + math.log(math.sqrt(nu0) / (4.0 * cw))
        linear = math.log(c1 * nu0 * t) - 2.0 * math.log(4.0 * math.sqrt(2.0) * cw)
        return math.exp(min(primal, max(dual, linear))) * now.unit


NAMED: dict[str, Callable[[], Schedule]] = {
    "adaptive": AdaptiveSteps,
    "paper": partial(PaperSteps, alone=True),
}


def get_schedule(schedule: str | Schedule) -> Schedule:
    """Return the schedule with this name, or the object itself."""
    own = ", or an AdaptiveSteps(...), PaperSteps(...) or other Schedule object"
    found: Schedule = chosen("schedule", schedule, Schedule, NAMED, own)
    return found
