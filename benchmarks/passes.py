"""Reads of the rows until the risk stays within 1 % of its limit, and the running slack.

    python benchmarks/passes.py

Algorithm 1 alone (no polish), 10 groups of 2,000 rows with 50 features, groups with their own
slopes and noise; then whole fits with polish.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from counterpoise import solve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from problems import neuron_data


def main() -> None:
    head = (
        f"{'activation':<11}{'cond':>5}{'precond.':>10}{'objective':>12}{'passes':>8}{'slack':>11}"
    )
    print(head + f"{'limit':>9}{'polished':>10}{'passes':>8}")
    for activation in ("relu", "identity"):
        for cond, precondition in ((1.0, None), (100.0, None), (100.0, "whiten")):
            X, y, g = neuron_data(K=10, n=2000, d=50, activation=activation, cond=cond)
            for divergence, nu in (("kl", 0.1), ("kl", 0.0), ("chi2", 0.1), ("chi2", 0.0)):
                options = dict(activation=activation, divergence=divergence, nu=nu,
                               precondition=precondition, fit_intercept=False)  # fmt: skip
                run = solve(X, y, g, polish=False, tol=0.0, max_iter=600, **options)
                risk = run.history["risk"]
                late = np.flatnonzero(np.abs(risk / risk[-1] - 1) > 0.01)
                passes = int(late[-1]) + 3 if len(late) else 2
                whole = solve(X, y, g, **options)
                print(
                    f"{activation:<11}{cond:>5.0f}{precondition or 'none':>10}"
                    f"{f'{divergence} {nu:g}':>12}{passes:>8}{run.history['slack'].max():>11.2g}"
                    f"{risk[-1]:>9.4f}{whole.risk:>10.5f}{whole.n_passes:>8}"
                )


if __name__ == "__main__":
    main()
