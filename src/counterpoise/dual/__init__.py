"""Group weights: divergences on the simplex, the update of the weights, and the objective.

This room sees one number per group and no rows. It needs only numpy and imports only `common`.
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
