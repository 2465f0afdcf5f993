"""Study 1: the theorem's inequality, ours, and the certificate, along runs with a known target."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from inequality_show import figure, summary
from problems_known import (
    ACTIVATIONS,
    LAWS,
    Rows,
    best_known,
    conflicting,
    corrupted,
    planted,
    problem_of,
    scale_of,
    smallest_sharpness,
    unit_vector,
)
from report import write_json
from sides import Sides, Trace, sides, slack_sums, trace

from counterpoise import AdaptiveSteps, PaperSteps
from counterpoise.assessment.diagnosis.assumptions import (
    GAMMAS,
    margins,
    sharpness_from,
    tail_parameters,
)
from counterpoise.dual.divergences import get_divergence
from counterpoise.solver.certificate import Certificate
from counterpoise.solver.options import FitOptions
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import Schedule
from counterpoise.solver.solution import Solution
from counterpoise.solver.solve import open_solver

Array = np.ndarray

EPSILON = 0.1


def paper_steps(problem: Problem, rows: Rows, moment: float, rng: np.random.Generator) -> Schedule:
    """The printed steps with the largest constants that are true of these rows: ``B`` from second
    moments, ``c1`` from sharpness, ``C_M`` such that no label is clipped."""
    B, W = moment / 6.0, 3.0 * float(np.linalg.norm(rows.w))
    c1 = 0.9 * smallest_sharpness(problem, rows.w, rng)
    log = np.log(max(B * W / EPSILON, 1.1))
    return PaperSteps(EPSILON, B, c1, max(1.0, float(np.abs(rows.y).max()) / (W * B * log)))


def count(run: Trace, found: Sides) -> dict[str, Any]:
    """One line of the study: what held, how tightly."""
    ratio = {k: found.left / getattr(found, k) for k in ("paper", "ours", "signed")}
    direct, coupling, _ = slack_sums(run)
    account, own = run.run.account.slack, direct[-1] + coupling[-1] / (2.0 * run.c1)
    return {
        "iterations": len(found.left),
        "premise": found.premise,
        "paper_broken": Sides.broken(found.left, found.paper),
        "ours_broken": Sides.broken(found.left, found.ours),
        "signed_broken": Sides.broken(found.left, found.signed),
        "paper_ratio": ratio["paper"][-1],
        "ours_ratio": ratio["ours"][-1],
        "signed_ratio": ratio["signed"][-1],
        "ours_largest": ratio["ours"].max(),
        "silent": int(np.isinf(found.ours).sum()),
        "slack_positive": int((found.slack > 0).sum()),
        "slack_ends_positive": bool(found.slack[-1] > 0),
        "account_differs": abs(account - own) / (abs(own) + 1e-12),
        "sharpness": found.sharpness,
        "c1": run.c1,
        "reach": found.reach,
        "rho": run.rho[-1],
    }


def certificate_check(rows: Rows, activation: str, name: str, nu: float, star: Array) -> dict:
    """The bounds at the measured sharpness against true distances, in the solver's coordinates.

    The theorem's is of Algorithm 1 run to the end; before a polish it stops too early to say much.
    """
    options = FitOptions(activation=activation, divergence=name, fit_intercept=False)
    solver = open_solver(rows.X, rows.y, rows.groups, options=options)
    fit, alone = solver.fit(nu), solver.variant(polish=False)
    point = solver.frame.coordinates.from_user
    last = float(np.linalg.norm(alone.run(alone.set_up(nu), nu).u - point(star)))
    end = float(np.linalg.norm(point(fit.coef) - point(star)))
    bound = _at_measured(alone.fit(nu)).theorem_bound
    claim = _at_measured(fit)
    return {
        "last": last,
        "theorem_bound": bound,
        "theorem_bound_before_polish": claim.theorem_bound,
        "returned": end,
        "returned_bound": claim.returned_bound,
        "last_broken": last > bound * (1 + 1e-6),
        "returned_broken": end > claim.returned_bound * (1 + 1e-6),
        "risk": fit.risk,
    }


def _at_measured(fit: Solution) -> Certificate:
    """What the theorem says if the sharpness along the run holds everywhere; no user is told."""
    found = fit.certificate
    return found if found.c1 == 0 else found.at_sharpness(found.c1)


def labelled(activation: str, law: str, labels: str, seed: int, n: int) -> Rows:
    rows = planted(activation, law, n=n, spread=0.15, seed=seed)
    if labels == "noise":
        return rows
    return corrupted(rows, activation, "flipped", 0.1, groups=(0, 3), seed=seed)


def cases(quick: bool) -> list[tuple]:
    activations = ("relu", "identity") if quick else ACTIVATIONS
    return list(
        itertools.product(
            activations, LAWS, ("noise", "adversary"), ("kl", "chi2"), (0.1, 0.0),
            range(1 if quick else 2),
        )
    )  # fmt: skip


def study(chosen: list[tuple], *, n: int, adaptive: int, paper: int) -> list[dict[str, Any]]:
    """All runs. Targets: the neuron behind the labels, and the best known minimiser."""
    lines = []
    for activation, law, labels, name, nu, seed in chosen:
        rng = np.random.default_rng(seed)
        rows = labelled(activation, law, labels, seed, n)
        problem = problem_of(rows, activation, get_divergence(name), nu)
        scale = scale_of(problem, rows, 3.0 * float(np.linalg.norm(rows.w)))
        starts = [rows.w, np.zeros_like(rows.w) + 1e-3, -rows.w]
        starts += [unit_vector(rng, len(rows.w)) for _ in range(2)]
        star, lowest = best_known(problem, starts)
        head = dict(activation=activation, law=law, labels=labels, divergence=name, nu=nu,
                    seed=seed)  # fmt: skip
        kinds = {
            "adaptive": (AdaptiveSteps(), adaptive),
            "paper": (paper_steps(problem, rows, scale.moment, rng), paper),
        }
        for schedule, (steps, length) in kinds.items():
            run = trace(problem, scale, steps, length)
            for target, w in (("planted", rows.w), ("minimiser", star)):
                found = sides(run, w, B=scale.moment / 6.0)
                lines.append(head | {"schedule": schedule, "target": target} | count(run, found))
        proof = certificate_check(rows, activation, name, nu, star)
        moved = float(np.linalg.norm(star - rows.w))
        lines[-1] |= {"certificate": proof | {"lowest": lowest, "planted_to_minimiser": moved}}
    return lines


def at_odds(*, adaptive: int, n: int = 150) -> list[dict[str, Any]]:
    """The same where steps a little too long oscillate: two groups that want different slopes,
    features as they are, of condition number 1 and 100."""
    lines = []
    for activation, cond, name, nu, seed in itertools.product(
        ("relu", "identity"), (1.0, 100.0), ("kl", "chi2"), (0.1, 0.0), range(2)
    ):
        rows = conflicting(activation, K=2, n=n, d=8, cond=cond, spread=1.0, noise=(0.1, 0.5),
                           seed=seed)  # fmt: skip
        strength = nu * float(np.mean(rows.y**2))
        problem = problem_of(rows, activation, get_divergence(name), strength)
        scale = scale_of(problem, rows, 3.0 * float(np.linalg.norm(rows.w)))
        star, _ = best_known(problem, [rows.w, np.full_like(rows.w, 1e-3)])
        run = trace(problem, scale, AdaptiveSteps(), adaptive)
        head = dict(activation=activation, law=f"two groups, condition number {cond:g}",
                    labels="conflict", divergence=name, nu=nu, seed=seed,
                    schedule="adaptive")  # fmt: skip
        for target, w in (("planted", rows.w), ("minimiser", star)):
            found = sides(run, w, B=scale.moment / 6.0)
            lines.append(head | {"target": target} | count(run, found))
    return lines


def constants(n: int = 20_000, d: int = 5) -> list[dict[str, Any]]:
    """The paper's constants for each law, as its formulas give them, beside what rows show."""
    found = []
    for law in LAWS:
        rng = np.random.default_rng(0)
        X = LAWS[law](rng, n, d)
        directions = np.array([unit_vector(rng, d) for _ in range(200)] + list(np.eye(d)))
        B = np.array([tail_parameters(X @ directions.T).max()])  # for r >= 1, as the paper has it
        formula = sharpness_from(B, margins(X, directions[:60], GAMMAS), 1.0)
        w = directions[0]
        rows = Rows(X, np.maximum(X @ w, 0.0), np.zeros(n, dtype=int), w)
        problem = problem_of(rows, "relu", get_divergence("kl"), 0.1)
        measured = smallest_sharpness(problem, w, rng)
        fourth = float(np.mean((X @ directions.T) ** 4, axis=0).max())
        top = float(np.linalg.eigvalsh(X.T @ X / n)[-1])
        found.append(
            {"law": law, "second_moment": top, "fourth_moment": fourth, "tail_B": B[0],
             "c0": formula.c0, "c1_formula": formula.c1,
             "c1_measured": measured, "C3_formula": 31 * np.sqrt(formula.B) / formula.c1,
             "C3_measured": 31 * np.sqrt(top / 6) / measured}
        )  # fmt: skip
    return found


def pictured(*, n: int, adaptive: int, paper: int) -> dict[str, Sides]:
    """One problem under both schedules."""
    rows = labelled("relu", "gaussian", "noise", 0, n)
    problem = problem_of(rows, "relu", get_divergence("kl"), 0.1)
    scale = scale_of(problem, rows, 3.0)
    printed = paper_steps(problem, rows, scale.moment, np.random.default_rng(0))
    return {
        title: sides(trace(problem, scale, steps, length), rows.w, B=scale.moment / 6.0)
        for title, steps, length in (
            ("adaptive steps", AdaptiveSteps(), adaptive),
            ("printed steps", printed, paper),
        )
    }


def main(out: Path, *, quick: bool = False, sizes: dict[str, int] | None = None) -> str:
    sizes = sizes or dict(n=250, adaptive=300, paper=1000 if quick else 2000)
    lines, laws = study(cases(quick), **sizes), constants()
    lines += at_odds(adaptive=sizes["adaptive"])
    write_json({"runs": lines, "laws": laws}, out / "inequality.json")
    figure(out / "theory-inequality.png", lines, pictured(**sizes))
    return summary(lines, laws)
