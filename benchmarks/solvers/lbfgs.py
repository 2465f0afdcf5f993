"""SciPy's L-BFGS on the risk; the worst group is smoothed (log-sum-exp), less and less.

All stages but the last end as soon as a step gains little beside the error of their smoothing. A
ReLU neuron is started several times, from the mean label and at random; the best of all starts
counts, with the time of all.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from solvers.scaled import Scaled

NAME = "lbfgs"
TITLE = "L-BFGS"
ENVIRONMENT = "main"
# First smoothing of the maximum, in units of the loss, and how often it is lowered.
SETTINGS = [
    {"first": first, "stages": stages} for first, stages in product((1e-1, 1e-2, 1e-3), (3, 6))
]
LAST = 1e-7
STARTS = 5


def refuses(shape):
    return None


def run(problem, record, first, stages):
    from scipy.optimize import minimize

    scaled, rng = Scaled(problem), np.random.default_rng(0)
    temperatures = [scaled.nu] if scaled.nu else list(np.geomspace(first, LAST, stages))

    def smoothed(v, temperature):
        losses, slope = scaled.losses(v)
        shifted = np.exp((losses - losses.max()) / temperature)
        value = losses.max() + temperature * np.log(shifted.mean())
        return value, scaled.gradient(shifted / shifted.sum(), slope)

    for start in range(STARTS if scaled.model == "relu" else 1):
        v = scaled.start()
        if start:
            v = v + rng.normal(size=len(v)) / np.sqrt(len(v))
        for temperature in temperatures:
            last = temperature == temperatures[-1]
            v = minimize(
                smoothed, v, args=(temperature,), jac=True, method="L-BFGS-B",
                callback=lambda v: record(lambda: scaled.back(v)),
                options={"maxiter": 1000 if last else 500, "maxcor": 20, "gtol": 1e-9,
                         "ftol": 1e-14 if last else 1e-3 * temperature},
            ).x  # fmt: skip
