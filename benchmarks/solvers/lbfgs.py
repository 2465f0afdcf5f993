"""SciPy's L-BFGS on the risk; the worst group is smoothed, less and less.

A ReLU neuron is started several times, from the mean label and at random; the best of all
starts counts, with the time of all.
"""

from __future__ import annotations

import numpy as np

from solvers.scaled import Scaled

NAME = "lbfgs"
TITLE = "L-BFGS"
ENVIRONMENT = "main"
SETTINGS = [{"first": 1e-1}, {"first": 1e-2}, {"first": 1e-3}]  # first smoothing of the maximum
STARTS = 5


def refuses(shape):
    return None


def run(problem, record, first):
    from scipy.optimize import minimize

    scaled, rng = Scaled(problem), np.random.default_rng(0)
    temperatures = [scaled.nu] if scaled.nu else list(np.geomspace(first, 1e-6, 6))

    def smoothed(v, temperature):
        losses, residual, active = scaled.losses(v)
        shifted = np.exp((losses - losses.max()) / temperature)
        value = losses.max() + temperature * np.log(shifted.mean())
        return value, scaled.gradient(shifted / shifted.sum(), residual, active)

    for start in range(STARTS if scaled.relu else 1):
        v = scaled.start()
        if start:
            v = v + rng.normal(size=len(v)) / np.sqrt(len(v))
        for temperature in temperatures:
            v = minimize(
                smoothed, v, args=(temperature,), jac=True, method="L-BFGS-B",
                callback=lambda v: record(lambda: scaled.back(v)),
                options={"maxiter": 500, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9},
            ).x  # fmt: skip
