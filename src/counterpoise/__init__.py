"""Counterpoise: learning that holds up on the worst group.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from counterpoise.common.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.activations.activation import (
        Activation,
        elu,
        huber_relu,
        identity,
        leaky_relu,
        relu,
        softplus,
    )
    from counterpoise.assessment.assess import assess
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis, diagnose
    from counterpoise.assessment.intervals import Interval, RiskIntervals, risk_intervals
    from counterpoise.assessment.metrics import group_risks, robust_risk, worst_group_risk
    from counterpoise.dual.divergences import KL, ChiSquare, CVaR, Divergence, risk
    from counterpoise.dual.step import DualState, dual_step, extrapolate
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV
    from counterpoise.estimators.frontier import Frontier, frontier
    from counterpoise.estimators.neuron import GroupDRONeuron
    from counterpoise.reweight.reweighter import Reweighter, ReweightWarning
    from counterpoise.reweight.rules import OnlineDataMixing, Rule, Temperature
    from counterpoise.rows.sources import Chunks, Npy, Parquet, Source
    from counterpoise.solver.algorithm import Progress
    from counterpoise.solver.certificate import Certificate
    from counterpoise.solver.schedules import AdaptiveSteps, PaperSteps
    from counterpoise.solver.solution import Solution, Start
    from counterpoise.solver.solve import solve, solve_path
    from counterpoise.storage.models import load

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
    "assess",
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
    "KL": "dual.divergences",
    "Activation": "activations.activation",
    "AdaptiveSteps": "solver.schedules",
    "CVaR": "dual.divergences",
    "Certificate": "solver.certificate",
    "ChiSquare": "dual.divergences",
    "Chunks": "rows.sources",
    "Diagnosis": "assessment.diagnosis.diagnose",
    "Divergence": "dual.divergences",
    "DualState": "dual.step",
    "Frontier": "estimators.frontier",
    "GroupDRONeuron": "estimators.neuron",
    "GroupDRONeuronCV": "estimators.cross_validation",
    "Interval": "assessment.intervals",
    "Npy": "rows.sources",
    "OnlineDataMixing": "reweight.rules",
    "PaperSteps": "solver.schedules",
    "Parquet": "rows.sources",
    "Progress": "solver.algorithm",
    "ReweightWarning": "reweight.reweighter",
    "Reweighter": "reweight.reweighter",
    "RiskIntervals": "assessment.intervals",
    "Rule": "reweight.rules",
    "Solution": "solver.solution",
    "Source": "rows.sources",
    "Start": "solver.solution",
    "Temperature": "reweight.rules",
    "assess": "assessment.assess",
    "diagnose": "assessment.diagnosis.diagnose",
    "dual_step": "dual.step",
    "elu": "activations.activation",
    "extrapolate": "dual.step",
    "frontier": "estimators.frontier",
    "group_risks": "assessment.metrics",
    "huber_relu": "activations.activation",
    "identity": "activations.activation",
    "leaky_relu": "activations.activation",
    "load": "storage.models",
    "relu": "activations.activation",
    "risk": "dual.divergences",
    "risk_intervals": "assessment.intervals",
    "robust_risk": "assessment.metrics",
    "softplus": "activations.activation",
    "solve": "solver.solve",
    "solve_path": "solver.solve",
    "worst_group_risk": "assessment.metrics",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
