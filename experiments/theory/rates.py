"""Study 3: iterations against nu, K and epsilon, beside the rates the paper predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from printed_steps import closed_form_check, predictions, printed, theorem
from problems_known import conflicting, problem_of, scale_of
from report import COLOURS, MARKERS, pyplot, save_figure, settled, slope, table, write_json

from counterpoise import AdaptiveSteps, PaperSteps
from counterpoise.assessment.diagnosis.assumptions import paper_passes
from counterpoise.dual.divergences import get_divergence
from counterpoise.solver.algorithm import primal_dual

Array = np.ndarray

TITLE = "Rates"
NUS = (1.0, 0.1, 0.01, 1e-3, 1e-4, 0.0)
EPSILONS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
GROUPS = (2, 4, 8, 16, 32, 64)
CASES = (("identity", "chi2"), ("relu", "chi2"), ("identity", "kl"), ("relu", "kl"))


def counts(
    activation: str, name: str, nu: float, K: int, seed: int, max_iter: int, n: int = 150
) -> list[float]:
    """Iterations of the adaptive steps until the risk stays within each epsilon of its limit;
    ``nu`` in units of the labels' mean square."""
    rows = conflicting(activation, K=K, n=n, d=8, spread=1.0, noise=(0.1, 0.5), seed=seed)
    strength = nu * float(np.mean(rows.y**2))
    problem = problem_of(rows, activation, get_divergence(name), strength)
    scale = scale_of(problem, rows, np.inf)
    start = np.zeros(problem.size)
    run = primal_dual(problem, AdaptiveSteps(), scale, start=start, max_iter=max_iter, tol=0.0)
    risks = run.history["risk"]
    # The limit is the run's own: for the identity it is the minimum, else near it.
    return [settled(risks[: max_iter // 2], float(risks[-1]), eps) for eps in EPSILONS]


def measured(seeds: int, max_iter: int) -> dict[str, Any]:
    """Median counts over seeds: ``by_nu[case][nu][epsilon]`` and ``by_K[case][K][epsilon]``."""
    by_nu: dict[str, dict] = {}
    by_K: dict[str, dict] = {}
    for activation, name in CASES:
        key = f"{activation}, {name}"
        by_nu[key] = {
            nu: np.median([counts(activation, name, nu, 8, s, max_iter) for s in range(seeds)], 0)
            for nu in NUS
        }
        by_K[key] = {
            K: np.median([counts(activation, name, 0.0, K, s, max_iter) for s in range(seeds)], 0)
            for K in GROUPS
        }
    return {"by_nu": by_nu, "by_K": by_K}


def measured_slopes(found: dict[str, Any]) -> list[list[Any]]:
    """Exponents on logarithms, beside those of the theorem."""
    at = EPSILONS.index(1e-4)
    lines = []
    for case, counts_by_nu in found["by_nu"].items():
        positive = [nu for nu in NUS if nu > 0]
        inverse = [1.0 / eps for eps in EPSILONS]
        lines.append(
            [case,
             slope(positive, [counts_by_nu[nu][at] for nu in positive]),
             slope(inverse, counts_by_nu[0.1]),
             slope(inverse, counts_by_nu[0.0]),
             slope(GROUPS, [found["by_K"][case][K][at] for K in GROUPS])]
        )  # fmt: skip
    return lines


def short_run(n: int) -> dict[str, Any]:
    """Both schedules for ``n`` iterations on one ReLU problem."""
    rows = conflicting("relu", K=8, n=150, d=8, spread=1.0, noise=(0.1, 0.5))
    problem = problem_of(rows, "relu", get_divergence("kl"), 0.1)
    scale = scale_of(problem, rows, 3.0)
    printed_steps = PaperSteps(epsilon=0.01, B=scale.moment / 6.0, c1=0.25)
    start = np.zeros(problem.size)
    out: dict[str, Any] = {"iterations": n}
    for name, steps in (("adaptive", AdaptiveSteps()), ("printed", printed_steps)):
        run = primal_dual(problem, steps, scale, start=start, max_iter=n, tol=0.0)
        out[name] = {"risk": run.history["risk"], "A": float(run.history["step"].sum())}
    out["first_risk"] = problem.risk(problem.evaluate(start, surrogate=False).loss_K)
    out["closed_form"] = paper_passes(printed_steps, scale, 1.0)
    return out


# -- what is shown --------------------------------------------------------------------------


def summary(found: dict[str, Any], said: dict[str, Any], run: dict[str, Any], check: dict) -> str:
    out = [f"## {TITLE}\n", "Exponents p of iterations ~ x^p, adaptive steps, measured:\n"]
    head = ("case", "x = nu, eps = 1e-4", "x = 1/eps, nu = 0.1", "x = 1/eps, nu = 0",
            "x = K, nu = 0, eps = 1e-4")  # fmt: skip
    out.append(table(head, [["the theorem", -0.5, "0 (logarithm)", 1, 0.5],
                            *measured_slopes(found)]))  # fmt: skip
    body = [
        [case, nu, *(float(v) for v in values)]
        for case, by_nu in found["by_nu"].items()
        for nu, values in by_nu.items()
    ]
    out.append("Median iterations, 8 groups:\n")
    out.append(table(("case", "nu / mean square of labels", *map(str, EPSILONS)), body))
    out.append("The printed steps, closed form, constants true of Gaussian rows:\n")
    keys = list(next(iter(said["slopes"].values())))
    out.append(table(("x", *keys), [[k, *(v[i] for i in keys)] for k, v in said["slopes"].items()]))
    own = ", ".join(f"{k} {v:.2f}" for k, v in said["adaptive_bound_slopes"].items())
    steps, fast = run["printed"], run["adaptive"]
    out.append(
        f"What our inequality guarantees for adaptive steps, exponents: {own}.\n\n"
        f"Printed steps, eps = 1e-3, 8 groups: {printed(0.1, 8, 1e-3):.3g} iterations for nu = "
        f"0.1, {printed(0.0, 8, 1e-3):.3g} for nu = 0; the theorem's expression gives "
        f"{theorem(0.1, 8, 1e-3):.3g} and {theorem(0.0, 8, 1e-3):.3g}. With B = 1, c1 = 0.1: "
        f"{printed(0.1, 8, 1e-3, 1.0, 0.1):.3g}; with what the paper's formulas give for Gaussian "
        f"features: {printed(0.1, 8, 1e-3, 0.889, 2.49e-6):.3g}.\n\n"
        f"{run['iterations']:,} iterations: risk {run['first_risk']:.4f} to "
        f"{steps['risk'][-1]:.4f} (printed, A = {steps['A']:.3g}), {fast['risk'][-1]:.4f} "
        f"(adaptive, there to 1 % after {settled(fast['risk'], fast['risk'][-1], 0.01):.0f}); "
        f"closed form for the printed: {run['closed_form']:.3g}. Closed form against steps added "
        f"one by one: {check['closed_form']:.0f} and {check['one_by_one']:.0f}.\n"
    )
    return "\n".join(out)


def figure(path: Path, found: dict[str, Any], said: dict[str, Any]) -> None:
    plt = pyplot()
    fig, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    at = EPSILONS.index(1e-4)
    positive = np.array([nu for nu in NUS if nu > 0])
    inverse = 1.0 / np.array(EPSILONS)
    for k, case in enumerate(found["by_nu"]):
        style = dict(color=COLOURS[k], marker=MARKERS[k], ms=4, lw=1, label=case)
        by_nu, by_K = found["by_nu"][case], found["by_K"][case]
        axes[0, 0].loglog(positive, [by_nu[nu][at] for nu in positive], **style)
        axes[0, 1].loglog(inverse, by_nu[0.0], **style)
        axes[0, 2].loglog(GROUPS, [by_K[K][at] for K in GROUPS], **style)
    guides = ((positive, -0.5), (inverse, 1.0), (np.array(GROUPS), 0.5))
    for ax, (x, p) in zip(axes[0], guides, strict=True):
        first = 10.0 * (x / x[0]) ** p
        keep = first < 3e3
        ax.loglog(x[keep], first[keep], ":", color=COLOURS[7], label=f"slope {p:g}, predicted")
        # The cases are named once, each prediction where it is drawn.
        handles = ax.get_legend_handles_labels()[0][0 if ax is axes[0, 0] else -1 :]
        ax.legend(handles=handles, frameon=False, fontsize=8)
    axes[0, 2].set_xticks(GROUPS, map(str, GROUPS))
    axes[0, 2].minorticks_off()
    axes[0, 0].set(title="adaptive, measured: nu (eps = 1e-4)", ylabel="iterations")
    axes[0, 1].set(title="adaptive, measured: 1/eps (nu = 0)")
    axes[0, 2].set(title="adaptive, measured: K (nu = 0, eps = 1e-4)")
    titles = ("nu (K = 8, eps = 1e-3)", "1/eps (K = 8, nu = 0)", "K (nu = 0, eps = 1e-2)")
    keys = ("nu", "1/epsilon", "K")
    for ax, key, title in zip(axes[1], keys, titles, strict=True):
        x, steps, expression = said["lines"][key]
        ax.loglog(x, steps, color=COLOURS[4], label="printed steps, closed form")
        ax.loglog(x, expression, "--", color=COLOURS[2], label="theorem's expression")
        ax.set(title=f"printed, predicted: {title}", xlabel=key)
    axes[1, 0].legend(frameon=False)
    axes[1, 0].set_ylabel("iterations")
    for ax in (axes[0, 0], axes[1, 0]):
        ax.invert_xaxis()
    save_figure(fig, path)


def main(out: Path, *, quick: bool = False) -> str:
    found = measured(1 if quick else 5, 400 if quick else 3000)
    said, run, check = predictions(), short_run(500 if quick else 3000), closed_form_check()
    write_json({"measured": found, "predicted": said, "short_run": run, "check": check},
               out / "rates.json")  # fmt: skip
    figure(out / "theory-rates.png", found, said)
    return summary(found, said, run, check)
