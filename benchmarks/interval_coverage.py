"""How often 95 % intervals of group risks cover the mean, beside those of Student's t.

    python benchmarks/interval_coverage.py

Groups of few rows whose losses are skewed, as squared errors are; 4,000 groups each.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import t as student

from counterpoise.assessment.intervals import group_moments

LAWS = {
    "normal errors": (lambda rng, shape: rng.normal(size=shape) ** 2, 1.0),
    "squared exponential": (lambda rng, shape: rng.exponential(size=shape) ** 2, 2.0),
    "lognormal": (lambda rng, shape: rng.lognormal(size=shape), math.exp(0.5)),
    "Student t(5) errors": (lambda rng, shape: rng.standard_t(5, size=shape) ** 2, 5.0 / 3.0),
}


def main(repeats: int = 4000) -> None:
    print(f"{'losses':<22}{'rows':>6}{'ours':>8}{'t':>8}{'too low':>9}{'too high':>9}")
    for name, (draw, mean) in LAWS.items():
        rng = np.random.default_rng(0)
        for n in (3, 4, 5, 10, 20, 50, 200, 1000):
            losses = draw(rng, (repeats, n)).ravel()
            moments = group_moments(losses, np.repeat(np.arange(repeats), n), repeats, None)
            low, high = moments.bounds(0.025)
            half = student.ppf(0.975, n - 1) * moments.error
            usual = np.mean(np.abs(moments.mean - mean) <= half)
            print(
                f"{name:<22}{n:>6}{np.mean((low <= mean) & (mean <= high)):>8.3f}{usual:>8.3f}"
                f"{np.mean(high < mean):>9.3f}{np.mean(low > mean):>9.3f}"
            )


if __name__ == "__main__":
    main()
