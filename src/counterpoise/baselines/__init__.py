"""Common alternatives to :class:`counterpoise.GroupDRONeuron`, for comparison.

They share its rows, engines and interface, and differ in objective or optimiser.
"""

from counterpoise.baselines.average import AverageNeuron
from counterpoise.baselines.cvar import GroupCVaRNeuron
from counterpoise.baselines.exponentiated import ExponentiatedGradientNeuron
from counterpoise.baselines.primal import PrimalExtrapolationNeuron
from counterpoise.baselines.row_chi_square import RowChiSquareNeuron
from counterpoise.baselines.stochastic import StochasticMirrorNeuron
from counterpoise.baselines.tilted import TiltedNeuron

__all__ = [
    "AverageNeuron",
    "ExponentiatedGradientNeuron",
    "GroupCVaRNeuron",
    "PrimalExtrapolationNeuron",
    "RowChiSquareNeuron",
    "StochasticMirrorNeuron",
    "TiltedNeuron",
]
