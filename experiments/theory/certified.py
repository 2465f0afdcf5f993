"""Study 5: regions around fits whose best neuron is known, beside the theorem's distance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from inequality import _at_measured, cases, labelled
from problems_known import best_known, problem_of, unit_vector
from report import table, write_json

from counterpoise.dual.divergences import get_divergence
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running

# Radii of regions, as shares of the labels' spread.
SHARES = (0.1, 0.5, 1.0)


def check(activation: str, law: str, labels: str, name: str, nu: float, seed: int, n: int) -> dict:
    """One problem: gaps, the true distance to the best known minimiser, and the theorem's."""
    rows = labelled(activation, law, labels, seed, n)
    problem = problem_of(rows, activation, get_divergence(name), nu)
    rng = np.random.default_rng(seed)
    starts = [rows.w, np.zeros_like(rows.w) + 1e-3, -rows.w]
    starts += [unit_vector(rng, len(rows.w)) for _ in range(2)]
    star, lowest = best_known(problem, starts)
    options = FitOptions(activation=activation, divergence=name, fit_intercept=False)
    solver = open_solver(rows.X, rows.y, rows.groups, options=options)
    with running(solver):
        asked = _at_measured(solver.variant(certificate="theorem").fit(nu))
        fit = solver.variant(certificate="region").fit(nu)
        spread = fit.certificate.proof.spread
        proof = solver.regions_around(fit.coef, nu, [s * spread for s in SHARES], 0)
    point = solver.frame.coordinates.from_user
    away = float(np.linalg.norm(point(fit.coef) - point(star)))
    inside = [region for region in proof.regions if away <= region.radius]
    widest = fit.certificate.proof.widest()
    return {
        "activation": activation, "law": law, "labels": labels, "divergence": name, "nu": nu,
        "gaps": [proof.within(s * spread).gap / fit.risk for s in SHARES],
        "widest": 0.0 if widest is None else widest.radius / spread,
        "away": away / spread,
        "theorem": min(asked.theorem_bound, asked.returned_bound) / spread,
        "lowest": lowest,
        "risk": fit.risk,
        "broken": any(region.lower_bound > lowest * (1 + 1e-9) for region in inside),
    }  # fmt: skip


def main(out: Path, *, quick: bool = False, sizes: dict[str, int] | None = None) -> str:
    n = (sizes or {}).get("n", 250)
    lines = [check(*case, n=n) for case in cases(quick)]
    write_json(lines, out / "certified.json")
    head = ["activation, labels", "problems", *(f"gap at {s:.0%} of the spread" for s in SHARES),
            "widest, gap <= 1 %", "true distance", "theorem, given c1", "broken"]  # fmt: skip
    shown = []
    for activation in dict.fromkeys(line["activation"] for line in lines):
        for labels in ("noise", "adversary"):
            part = [x for x in lines if x["activation"] == activation and x["labels"] == labels]
            shown.append([f"{activation}, {labels}", len(part), *_medians(part)])
    return (
        "## Certified regions\n\nMedians; gaps are shares of the risk, distances shares of the "
        f"labels' spread.\n\n{table(head, shown)}"
    )


def _medians(part: list[dict[str, Any]]) -> list[Any]:
    def middle(values: list[float]) -> float:
        return float(np.median(np.where(np.isfinite(values), values, 1e300)))

    gaps = [middle([line["gaps"][k] for line in part]) for k in range(len(SHARES))]
    rest = [middle([line[key] for line in part]) for key in ("widest", "away", "theorem")]
    rest = [math.inf if value >= 1e300 else value for value in rest]
    return [*gaps, *rest, sum(line["broken"] for line in part)]
