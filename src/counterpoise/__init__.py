"""Counterpoise: learning that holds up on the worst group.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from counterpoise.lazy import lazy_names

if TYPE_CHECKING:
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
    from counterpoise.saving import load
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
    "load",
    "relu",
    "risk",
    "risk_intervals",
    "robust_risk",
    "softplus",
    "solve",
    "solve_path",
    "worst_group_risk",
]

_MODULES = {
    "KL": "divergences",
    "Activation": "activations",
    "AdaptiveSteps": "schedules",
    "CVaR": "divergences",
    "Certificate": "certificate",
    "ChiSquare": "divergences",
    "Chunks": "sources",
    "Diagnosis": "diagnosis",
    "Divergence": "divergences",
    "DualState": "dual",
    "Frontier": "tradeoff",
    "GroupDRONeuron": "neuron",
    "GroupDRONeuronCV": "selection",
    "Interval": "intervals",
    "Npy": "sources",
    "OnlineDataMixing": "rules",
    "PaperSteps": "schedules",
    "Parquet": "sources",
    "Progress": "algorithm",
    "ReweightWarning": "reweight",
    "Reweighter": "reweight",
    "RiskIntervals": "intervals",
    "Rule": "rules",
    "Solution": "solution",
    "Source": "sources",
    "Start": "solution",
    "Temperature": "rules",
    "diagnose": "diagnosis",
    "dual_step": "dual",
    "elu": "activations",
    "extrapolate": "dual",
    "frontier": "tradeoff",
    "group_risks": "metrics",
    "huber_relu": "activations",
    "identity": "activations",
    "leaky_relu": "activations",
    "load": "saving",
    "relu": "activations",
    "risk": "divergences",
    "risk_intervals": "intervals",
    "robust_risk": "metrics",
    "softplus": "activations",
    "solve": "solver",
    "solve_path": "solver",
    "worst_group_risk": "metrics",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
