"""SciPy's SLSQP on the epigraph: the least ``t`` with every group's loss at most ``t``.

A quasi-Newton method made for such constraints; what one tries after an afternoon of reading.
With a divergence there is no kink left, so nothing that L-BFGS does not do better.
"""

from __future__ import annotations

import numpy as np

from solvers.scaled import Scaled

NAME = "slsqp"
TITLE = "SLSQP (epigraph)"
ENVIRONMENT = "main"
SETTINGS = [{}]


def refuses(shape):
    if shape.model == "relu":
        return "no ReLU: not convex"
    return "see L-BFGS: the risk is smooth" if shape.nu else None


def run(problem, record):
    from scipy.optimize import minimize

    scaled = Scaled(problem)
    v = scaled.start()
    seen = {}

    def look(x):
        """Losses and gradients of the groups; asked for twice at every point."""
        if seen.get("x") is None or not np.array_equal(seen["x"], x):
            losses, slope = scaled.losses(x[:-1])
            seen.update(x=x.copy(), losses=losses, slopes=scaled.gradients(slope))
        return seen["losses"], seen["slopes"]

    top = np.append(np.zeros(len(v)), 1.0)
    constraint = {
        "type": "ineq",
        "fun": lambda x: x[-1] - look(x)[0],
        "jac": lambda x: np.column_stack([-look(x)[1], np.ones(problem.n_groups)]),
    }
    minimize(
        lambda x: x[-1], np.append(v, scaled.losses(v)[0].max()), jac=lambda _: top,
        method="SLSQP", constraints=[constraint],
        callback=lambda x: record(lambda: scaled.back(x[:-1])),
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
