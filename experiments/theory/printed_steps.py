"""The printed steps in closed form: how many the paper asks for, and how that grows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from report import slope

from counterpoise import AdaptiveSteps, PaperSteps
from counterpoise.assessment.diagnosis.assumptions import adaptive_passes, paper_passes
from counterpoise.solver.schedules import Measurement, ProblemScale

# Constants true of Gaussian rows: second moments up to 1.1, sharpness of a ReLU 0.25, ||w*|| = 1.
TRUE = dict(B=1.1 / 6.0, c1=0.25)


def gaussian_scale(nu: float, K: int) -> ProblemScale:
    return ProblemScale(1.0, K, 3.0, nu, 1.1, 1.0, 0.5, modulus=1.0)


def printed(
    nu: float, K: int, epsilon: float, B: float = TRUE["B"], c1: float = TRUE["c1"]
) -> float:
    """Iterations of the printed steps; the default constants are true of Gaussian rows."""
    return paper_passes(PaperSteps(epsilon=epsilon, B=B, c1=c1), gaussian_scale(nu, K), 1.0)


def theorem(nu: float, K: int, epsilon: float) -> float:
    """The theorem's count, its unnamed constant one, ``||w*|| = 1`` and ``D`` at most ``K``:
    ``C'_W min(log(...) / sqrt(c1 nu), sqrt(2 K / eps^2 + D / eps))``."""
    inner = 6.0 + TRUE["B"] * math.log(3.0 * TRUE["B"] / epsilon) ** 2
    cw = 2.0 * math.sqrt(3.0 * inner) * 3.0 * TRUE["B"]
    linear = math.sqrt(2.0 * K / epsilon**2 + K / epsilon)
    if nu == 0:
        return cw * linear
    return cw * min(math.log(0.5 / epsilon + 0.25) / math.sqrt(TRUE["c1"] * nu), linear)


def played(steps: PaperSteps, nu: float, K: int, total: float, most: int) -> float:
    """Iterations until the printed steps add up to ``total``, one by one."""
    scale, added = gaussian_scale(nu, K), 0.0
    for t in range(1, most + 1):
        now = Measurement(t, added, 0.0, 0.0)
        added += steps.step(scale, steps.c1, steps.starting_weight(scale), now)
        if added >= total:
            return float(t)
    return math.inf


def closed_form_check() -> dict[str, float]:
    """The closed form against steps added one by one, where that is short enough."""
    brisk = PaperSteps(epsilon=0.1, B=0.2, c1=0.9)
    total = 2.0 / brisk.c1 * (2.0 / brisk.epsilon - 1.0)
    return {
        "closed_form": paper_passes(brisk, gaussian_scale(0.1, 4), 1.0),
        "one_by_one": played(brisk, 0.1, 4, total, 200_000),
    }


def predictions() -> dict[str, Any]:
    """Counts of the printed steps and of the theorem over nu, K and epsilon, with slopes."""
    nus, ks = np.logspace(0, -12, 25), np.logspace(0, 6, 13)
    eps = np.logspace(-1.3, -7, 13)
    lines = {
        "nu": (nus, [printed(v, 8, 1e-3) for v in nus], [theorem(v, 8, 1e-3) for v in nus]),
        "K": (ks, [printed(0.0, int(k), 1e-2) for k in ks],
              [theorem(0.0, int(k), 1e-2) for k in ks]),
        "1/epsilon": (1 / eps, [printed(0.0, 8, e) for e in eps],
                      [theorem(0.0, 8, e) for e in eps]),
    }  # fmt: skip
    ends = {}
    for key, (x, steps, said) in lines.items():
        usual = slice(0, 9) if key == "nu" else slice(0, 5)
        local = np.gradient(np.log(steps), np.log(x))
        ends[key] = {
            "range": f"{x[usual][0]:.2g} to {x[usual][-1]:.2g}",
            "theorem": slope(x[usual], said[usual]),
            "printed": slope(x[usual], steps[usual]),
            "printed, steepest anywhere": float(local[np.argmax(np.abs(local))]),
            "where": f"{x[np.argmax(np.abs(local))]:.2g}",
        }
    own = {
        "nu": slope(nus[:9], [own_bound(v, 8, 1e-3) for v in nus[:9]]),
        "1/epsilon": slope(1 / eps[:9], [own_bound(0.0, 8, e) for e in eps[:9]]),
    }
    return {"lines": lines, "slopes": ends, "adaptive_bound_slopes": own}


def own_bound(nu: float, K: int, epsilon: float) -> float:
    """Iterations after which our inequality has forgotten the start, adaptive steps, were the
    gradients' spread one throughout."""
    return adaptive_passes(AdaptiveSteps(c1=0.2), gaussian_scale(nu, K), 1.0, epsilon, 1.0)
