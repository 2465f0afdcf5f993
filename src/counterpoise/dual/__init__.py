"""Group weights: divergences on the simplex, the one function that moves weights, the objective.

It knows K numbers and no rows, needs numpy alone, and imports only `common`.
"""

from counterpoise.dual.divergences import KL, ChiSquare, CVaR, Divergence, SimplexPoint, risk
from counterpoise.dual.objective import Objective
from counterpoise.dual.step import DualState, dual_step, extrapolate

__all__ = [
    "KL",
    "CVaR",
    "ChiSquare",
    "Divergence",
    "DualState",
    "Objective",
    "SimplexPoint",
    "dual_step",
    "extrapolate",
    "risk",
]
