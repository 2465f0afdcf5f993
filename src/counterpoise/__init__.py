"""Counterpoise: learning that holds up on the worst group."""

from counterpoise.activations import (
    Activation,
    elu,
    huber_relu,
    identity,
    leaky_relu,
    relu,
    softplus,
)
from counterpoise.algorithm import Progress
from counterpoise.certificate import Certificate
from counterpoise.diagnosis import Diagnosis, diagnose
from counterpoise.divergences import KL, ChiSquare, CVaR, Divergence, risk
from counterpoise.dual import DualState, dual_step, extrapolate
from counterpoise.intervals import Interval, RiskIntervals, risk_intervals
from counterpoise.metrics import group_risks, robust_risk, worst_group_risk
from counterpoise.neuron import GroupDRONeuron
from counterpoise.reweight import Reweighter, ReweightWarning
from counterpoise.rules import OnlineDataMixing, Rule, Temperature
from counterpoise.schedules import AdaptiveSteps, PaperSteps
from counterpoise.selection import GroupDRONeuronCV
from counterpoise.solution import Solution, Start
from counterpoise.solver import solve, solve_path
from counterpoise.sources import Chunks, Npy, Parquet, Source
from counterpoise.tradeoff import Frontier, frontier

__version__ = "0.1.0"

__all__ = [
    "KL",
    "Activation",
    "AdaptiveSteps",
    "CVaR",
    "Certificate",
    "ChiSquare",
    "Chunks",
    "Diagnosis",
    "Divergence",
    "DualState",
    "Frontier",
    "GroupDRONeuron",
    "GroupDRONeuronCV",
    "Interval",
    "Npy",
    "OnlineDataMixing",
    "PaperSteps",
    "Parquet",
    "Progress",
    "ReweightWarning",
    "Reweighter",
    "RiskIntervals",
    "Rule",
    "Solution",
    "Source",
    "Start",
    "Temperature",
    "diagnose",
    "dual_step",
    "elu",
    "extrapolate",
    "frontier",
    "group_risks",
    "huber_relu",
    "identity",
    "leaky_relu",
    "relu",
    "risk",
    "risk_intervals",
    "robust_risk",
    "softplus",
    "solve",
    "solve_path",
    "worst_group_risk",
]
