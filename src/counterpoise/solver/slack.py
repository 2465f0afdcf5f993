"""The slack account: the measured cost of each step of Algorithm 1 to the proof.

Write ``rho_t = 1 + c1 A_t / 2``, ``dw = w_t - w_{t-1}``, ``dlam = lam_t - lam_{t-1}`` and ``V``
for the matrix of surrogate gradients. The proof of the gap's upper bound splits each step into
terms that telescope and

    E_t = a_t { lam_t.(loss(w_t) - loss(w_{t-1})) - <(lam_bar + dlam) V(w_{t-1}), dw> }
          - rho_t/2 ||dw||^2 - (nu0 + nu A_{t-1}) D(lam_t, lam_{t-1})
    Q_t = a_t ||dlam (V(w_t) - V(w_{t-1}))||^2

The paper chooses step sizes so small that worst-case constants pay for both. Here both are
computed. With sharpness ``c = c1`` between iterates and target, the slack of a step is
``E_t + Q_t / (2 c)``. If the running sum is not positive, the theorem's bound holds for this run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.dual.objective import Objective
from counterpoise.dual.step import DualState
from counterpoise.rows.engines.base import GroupEval

Array = np.ndarray


DUST = 32 * np.finfo(float).eps


@dataclass
class SlackAccount:
    """Running sums of ``E_t`` and ``Q_t``, and the size of the last boundary term.

    All figures are in the run's current unit (see :meth:`rescale`).
    """

    c1: float
    nu0: float
    nu: float
    direct: float = 0.0
    coupling: float = 0.0
    boundary: float = 0.0
    unit: float = 1.0
    total: float = 0.0

    @property
    def slack(self) -> float:
        """Running sum of slacks at ``c = c1``."""
        return self.direct + self.coupling / (2.0 * self.c1)

    @property
    def rho(self) -> float:
        """``rho_n = 1 + c1 A_n / 2``."""
        return self.unit + 0.5 * self.c1 * self.total

    def enter(
        self,
        objective: Objective,
        unit: float,
        rho: float,
        weights_bar: Array,
        dw: Array,
        before: GroupEval,
        after: GroupEval,
        dual: DualState,
        dual_next: DualState,
    ) -> None:
        """Enter iteration ``t``, from the states before and after it."""
        a, dlam = dual_next.step, dual_next.change
        rise = float(dual_next.weights @ (after.loss_K - before.loss_K))
        slope = float((weights_bar + dlam) @ (before.grad_KD @ dw))
        distance = objective.divergence.bregman(dual_next.point, dual.point, objective.prior)
        pull = self.nu0 * unit + self.nu * dual.total
        error = rise - slope
        if abs(error) <= DUST * float(dual_next.weights @ np.abs(after.loss_K)):
            error = 0.0  # rounding of the losses, which a huge step would amplify
        self.direct += a * error - 0.5 * rho * float(dw @ dw) - pull * distance
        turn = dlam @ (after.grad_KD - before.grad_KD)
        self.coupling += a * float(turn @ turn)
        # P_n of the proof is bounded by a_n ||dlam V(w_{n-1})|| ||w* - w_n||.
        last = dlam @ before.grad_KD
        self.boundary = a * float(np.sqrt(last @ last))

    @staticmethod
    def in_first_unit(value: float, unit: float) -> float:
        """Convert a figure of a rescaled run to the original unit, clipped to finite doubles."""
        if value == 0.0 or unit == 1.0:
            return value
        largest = float(np.finfo(float).max)
        whole = value / unit if unit > 0 else float(np.copysign(np.inf, value))
        return float(np.clip(whole, -largest, largest))

    def rescale(self, factor: float) -> None:
        """Divide every figure by ``factor``; the bound is homogeneous in them."""
        self.direct /= factor
        self.coupling /= factor
        self.boundary /= factor

    def close(self, unit: float, dual: DualState) -> None:
        self.unit, self.total = unit, dual.total
