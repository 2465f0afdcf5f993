"""Fit random problems, certify regions around the fits, and search them for a lower risk.

python -m experiments.regions.run --problems 2000
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter

import numpy as np

from counterpoise import GroupDRONeuron
from experiments.regions.attack import attack
from experiments.regions.problems import random_problem


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    began, tried, regions, breaches = time.perf_counter(), 0, 0, []
    kinds: Counter[str] = Counter()
    shares = []
    for seed in range(args.first, args.first + args.problems):
        problem = random_problem(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = GroupDRONeuron(**problem.options, certificate="region")
            model.fit(problem.X, problem.y, problem.groups, problem.weights)
        found, points = attack(problem, model)
        for breach in found:
            print("BREACH", breach, flush=True)
        breaches += found
        tried, regions = tried + points, regions + len(model.certificate_.regions)
        kinds[problem.kind] += 1
        near = model.certificate_.proof.within(0.1 * model.certificate_.proof.spread)
        if near is not None and model.risk_ > 0:
            shares.append(near.gap / model.risk_)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{args.problems} problems ({counted})")
    print(f"{regions} regions, {tried} points tried in {time.perf_counter() - began:.0f} s")
    quartiles = np.quantile(shares, [0.25, 0.5, 0.75]) if shares else []
    print("gap at a tenth of the labels' spread, share of the risk, quartiles:",
          ", ".join(f"{q:.1e}" for q in quartiles))  # fmt: skip
    print(f"{len(breaches)} breaches")
    return bool(breaches)


if __name__ == "__main__":
    raise SystemExit(main())
