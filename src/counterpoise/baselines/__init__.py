"""Common alternatives to group DRO, for comparison.

They share the rows, engines and interface of :class:`counterpoise.GroupDRONeuron` or
:class:`counterpoise.GroupDROClassifier`, and differ in objective or optimiser.
"""

from counterpoise.baselines.average import AverageClassifier, AverageNeuron
from counterpoise.baselines.cvar import GroupCVaRNeuron
from counterpoise.baselines.exponentiated import (
    ExponentiatedGradientClassifier,
    ExponentiatedGradientNeuron,
)
from counterpoise.baselines.known_group import Balanced as Balanced
from counterpoise.baselines.known_group import PerGroup as PerGroup
from counterpoise.baselines.known_group import WithGroup as WithGroup
from counterpoise.baselines.primal import PrimalExtrapolationNeuron
from counterpoise.baselines.row_chi_square import RowChiSquareClassifier, RowChiSquareNeuron
from counterpoise.baselines.row_cvar import RowCVaRClassifier
from counterpoise.baselines.stochastic import StochasticMirrorNeuron
from counterpoise.baselines.subsampled import SubsampledClassifier
from counterpoise.baselines.tilted import TiltedClassifier, TiltedNeuron

__all__ = [
    "AverageClassifier",
    "AverageNeuron",
    "ExponentiatedGradientClassifier",
    "ExponentiatedGradientNeuron",
    "GroupCVaRNeuron",
    "PrimalExtrapolationNeuron",
    "RowCVaRClassifier",
    "RowChiSquareClassifier",
    "RowChiSquareNeuron",
    "StochasticMirrorNeuron",
    "SubsampledClassifier",
    "TiltedClassifier",
    "TiltedNeuron",
]
