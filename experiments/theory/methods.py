"""The methods compared under noise, and what is measured of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from problems_known import Rows, by_group
from sklearn.exceptions import ConvergenceWarning

from counterpoise import GroupDRONeuron, risk
from counterpoise.baselines import (
    AverageNeuron,
    ExponentiatedGradientNeuron,
    PrimalExtrapolationNeuron,
    StochasticMirrorNeuron,
)

NU = 0.1

METHODS: dict[str, Callable[[Any, int], Any]] = {
    "group DRO": lambda start, seed: GroupDRONeuron(nu=NU, fit_intercept=False),
    "group DRO, no polish": lambda start, seed: GroupDRONeuron(
        nu=NU, fit_intercept=False, polish=False
    ),
    "primal extrapolation": lambda start, seed: PrimalExtrapolationNeuron(
        nu=NU, divergence="kl", fit_intercept=False
    ),
    "average, surrogate": lambda start, seed: AverageNeuron(
        prior=None, fit_intercept=False, start=start, random_state=seed
    ),
    "average, true gradient": lambda start, seed: AverageNeuron(
        prior=None, fit_intercept=False, gradient="true", start=start, random_state=seed
    ),
    "exponentiated gradient": lambda start, seed: ExponentiatedGradientNeuron(
        fit_intercept=False, start=start, max_iter=500, random_state=seed
    ),
    "stochastic mirror": lambda start, seed: StochasticMirrorNeuron(
        fit_intercept=False, start=start, max_iter=600, batch_size=8, random_state=seed
    ),
}


def outcome(method: str, rows: Rows, start: Any, seed: int) -> dict[str, float]:
    """Distance to the planted neuron, and the risk whatever the method minimises itself."""
    with warnings.catch_warnings():
        # "Never moved" is what some of these cases are about.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = METHODS[method](start, seed).fit(rows.X, rows.y, groups=rows.groups)
    losses = by_group(rows, (np.maximum(rows.X @ model.coef_, 0.0) - rows.y) ** 2)
    return {
        "error": float(np.linalg.norm(model.coef_ - rows.w)),
        "risk": risk(losses, NU),
        "worst": float(losses.max()),
    }
