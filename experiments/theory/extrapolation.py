"""Study 4: dual extrapolation on and off, and the primal one before it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from problems_known import Rows, conflicting, problem_of, scale_of
from report import COLOURS, MARKERS, number, pyplot, save_figure, settled, table, write_json

from counterpoise import AdaptiveSteps
from counterpoise.dual.divergences import get_divergence
from counterpoise.solver.algorithm import primal_dual
from counterpoise.solver.schedules import Measurement, ProblemScale

Array = np.ndarray

TITLE = "Extrapolation on and off"


@dataclass(frozen=True)
class RoomySteps(AdaptiveSteps):
    """Adaptive steps that take the weights' divergence for ``room`` times what it is.

    Under KL a room of two is ``D >= ||.||_1^2``, true of chi-squared: Pinsker's is half of that.
    With a room of one half, the primal term that pays for the motion of the weights keeps half of
    itself for the curvature. The dual part of the steps changes by the square root of ``room``.
    """

    room: float = 1.0

    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        return super().step(scale._replace(modulus=self.room * scale.modulus), c1, nu0, now)


@dataclass(frozen=True)
class CautiousSteps(AdaptiveSteps):
    """Adaptive steps that trust the second moments, not the curvature met on the way."""

    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        return super().step(scale, c1, nu0, now._replace(curvature=0.0))


# Extrapolation, and room for the weights.
VARIANTS = {
    "dual": ("dual", 1.0),
    "none": ("none", 1.0),
    "primal": ("primal", 1.0),
    "dual, longer steps": ("dual", 2.0),
    "dual, shorter steps": ("dual", 0.5),
}
DUAL = [v for v, (kind, _) in VARIANTS.items() if kind == "dual"]


def runs(
    rows: Rows, activation: str, name: str, nu: float, share: float, max_iter: int
) -> dict[str, dict[str, Array]]:
    """Risks and running slack of every variant; ``share`` multiplies the default ``nu0``."""
    problem = problem_of(rows, activation, get_divergence(name), nu * float(np.mean(rows.y**2)))
    scale = scale_of(problem, rows, np.inf)
    nu0 = share * AdaptiveSteps().starting_weight(scale)
    start = np.zeros(problem.size)
    found = {}
    for variant, (kind, room) in VARIANTS.items():
        run = primal_dual(
            problem, RoomySteps(nu0=nu0, room=room), scale, start=start, max_iter=max_iter, tol=0.0,
            extrapolation=kind,
        )  # fmt: skip
        found[variant] = {"risk": run.history["risk"], "slack": run.history["slack"]}
    return found


def limit_of(risks: list[Array]) -> float:
    """Where the calmest run ended. All variants have the same fixed points, and the lowest risk of
    any may be one that a run only passed through."""
    tails = [r[-max(len(r) // 10, 1) :] for r in risks]
    return float(min(tails, key=np.ptp)[-1])


def upward(risks: Array, limit: float) -> float:
    """All rises of the risk along the run, as a share of the limit: zero for a descent."""
    return float(np.maximum(np.diff(risks), 0.0).sum()) / limit


def study(
    *, seeds: int, max_iter: int, groups: tuple[int, ...] = (2, 10, 40),
    conds: tuple[float, ...] = (1.0, 100.0), n: int = 150,
) -> list[dict[str, Any]]:  # fmt: skip
    lines = []
    for activation, K, cond, name, nu, share, seed in itertools.product(
        ("relu", "identity"), groups, conds, ("kl", "chi2"), (0.1, 0.0), (1.0, 0.01), range(seeds)
    ):
        rows = conflicting(activation, K=K, n=n, d=8, cond=cond, spread=1.0, noise=(0.1, 0.5),
                           seed=seed)  # fmt: skip
        found = runs(rows, activation, name, nu, share, max_iter)
        limit = limit_of([one["risk"] for one in found.values()])
        head = dict(activation=activation, K=K, cond=cond, divergence=name, nu=nu, nu0=share,
                    seed=seed, limit=limit)  # fmt: skip
        for variant, one in found.items():
            lines.append(
                head
                | {"variant": variant, "to_1": settled(one["risk"], limit, 0.01),
                   "to_01": settled(one["risk"], limit, 0.001),
                   "upward": upward(one["risk"], limit),
                   "slack_positive": bool((one["slack"] > 0).any())}
            )  # fmt: skip
    return lines


# Two groups each: blown up on the way by ill-conditioned features, and swinging without them.
ROUGH = (("relu", 100.0, 0), ("identity", 1.0, 1), ("identity", 1.0, 2))


def rises(max_iter: int) -> list[list[Any]]:
    """How far the risk rose on three problems, in limits, and whether the slack was ever positive:
    steps as they are, with curvature from second moments, and shorter."""
    lines = []
    for (activation, cond, seed), name, nu, kind in itertools.product(
        ROUGH, ("kl", "chi2"), (0.1, 0.0), ("dual", "none")
    ):
        rows = conflicting(activation, K=2, n=150, d=8, cond=cond, spread=1.0, noise=(0.1, 0.5),
                           seed=seed)  # fmt: skip
        problem = problem_of(rows, activation, get_divergence(name), nu * float(np.mean(rows.y**2)))
        scale, start = scale_of(problem, rows, np.inf), np.zeros(problem.size)
        found = [
            primal_dual(problem, steps, scale, start=start, max_iter=max_iter, tol=0.0,
                        extrapolation=kind).history
            for steps in (AdaptiveSteps(), CautiousSteps(), RoomySteps(room=0.5))
        ]  # fmt: skip
        limit = limit_of([run["risk"] for run in found])
        line = [activation, cond, seed, name, nu, kind]
        for run in found:
            slack = bool((run["slack"] > 0).any()) if kind == "dual" else None
            line += [upward(run["risk"], limit), slack]
        lines.append(line)
    return lines


def pairs(lines: list[dict[str, Any]], first: str, second: str, key: str = "to_01") -> Array:
    """Counts of two variants, problem by problem."""
    one = [r[key] for r in lines if r["variant"] == first]
    other = [r[key] for r in lines if r["variant"] == second]
    return np.array([one, other])


def duel(lines: list[dict[str, Any]], first: str, second: str) -> list[Any]:
    """How often the first needs at least a tenth fewer iterations, about as many, or more."""
    a, b = pairs(lines, first, second)
    good = np.isfinite(a) | np.isfinite(b)
    a, b = a[good], b[good]
    return [first, second, len(a), int((a < 0.9 * b).sum()),
            int(((a >= 0.9 * b) & (b >= 0.9 * a)).sum()), int((b < 0.9 * a).sum())]  # fmt: skip


def cell(part: list[dict[str, Any]]) -> str:
    """Median iterations to 0.1 %, how many never stayed there, and the most that a risk rose."""
    never = sum(np.isinf(r["to_01"]) for r in part)
    middle = number(float(np.median([r["to_01"] for r in part])))
    return f"{middle}; {never}; {number(max(r['upward'] for r in part))}"


def summary(lines: list[dict[str, Any]], rough_runs: list[list[Any]]) -> str:
    out = [f"## {TITLE}\n", "Median iterations to 0.1 %; runs that never stayed there; the "
           "most that a risk rose along the way, in limits:\n"]  # fmt: skip
    for keys in (("cond", "divergence", "nu", "nu0"), ("cond", "divergence", "nu", "K")):
        # By groups, with the default nu0 and without regularisation only.
        chosen = [r for r in lines if "K" not in keys or (r["nu0"] == 1.0 and r["nu"] == 0.0)]
        kinds = sorted({tuple(r[k] for k in keys) for r in chosen})
        body = []
        for kind in kinds:
            part = [r for r in chosen if tuple(r[k] for k in keys) == kind]
            by = [[r for r in part if r["variant"] == v] for v in VARIANTS]
            slack = [sum(r["slack_positive"] for r in by[list(VARIANTS).index(v)]) for v in DUAL]
            body.append([*kind, len(by[0]), *map(cell, by), *slack])
        titles = [f"{v}: slack > 0" for v in DUAL]
        out.append(table((*keys, "runs", *VARIANTS, *titles), body))
    out.append("Which needs fewer iterations to 0.1 % (by a tenth or more):\n")
    calm = [r for r in lines if r["nu0"] == 1.0]
    rough = [r for r in lines if r["nu0"] != 1.0]
    body = []
    for title, part in (("default nu0", calm), ("a hundredth", rough)):
        body += [[title, *duel(part, "dual", other)] for other in VARIANTS if other != "dual"]
        body.append([title, *duel(part, "dual, shorter steps", "none")])
    out.append(table(("nu0", "A", "B", "problems", "A first", "alike", "B first"), body))
    out.append("How far the risk rose on two groups, in limits:\n")
    head = ("activation", "cond", "seed", "divergence", "nu", "extrapolation", "as they are",
            "slack > 0", "curvature from second moments", "slack > 0", "shorter steps",
            "slack > 0")  # fmt: skip
    out.append(table(head, rough_runs))
    return "\n".join(out)


def figure(path: Path, lines: list[dict[str, Any]], max_iter: int) -> None:
    plt = pyplot()
    fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    rows = conflicting("identity", K=2, n=150, d=8, spread=1.0, noise=(0.1, 0.5), seed=1)
    found = runs(rows, "identity", "kl", 0.0, 1.0, min(max_iter, 300))
    limit = limit_of([one["risk"] for one in found.values()])
    styles = {"dual, longer steps": (4, ":"), "dual": (2, "-"), "dual, shorter steps": (3, "-."),
              "none": (0, "--")}  # fmt: skip
    for variant, (colour, style) in styles.items():
        excess = np.maximum(np.abs(found[variant]["risk"] / limit - 1.0), 1e-8)
        axes[0].semilogy(np.arange(1, len(excess) + 1), excess, color=COLOURS[colour], ls=style,
                         lw=1.2, label=variant)  # fmt: skip
    axes[0].set(title="two groups, identity, KL, nu = 0", xlabel="iteration",
                ylabel="risk / limit - 1")  # fmt: skip
    axes[0].legend(frameon=False, fontsize=8)
    cap = 1.5 * max_iter
    for ax, other in zip(axes[1:], ("none", "dual, shorter steps"), strict=True):
        for k, (name, nu) in enumerate(itertools.product(("kl", "chi2"), (0.1, 0.0))):
            part = [r for r in lines if r["divergence"] == name and r["nu"] == nu]
            x, y = np.minimum(pairs(part, other, "dual"), cap)
            ax.loglog(x, y, MARKERS[k], color=COLOURS[k + 1], ms=4, alpha=0.7, ls="none",
                      label=f"{name}, nu = {nu:g}")  # fmt: skip
        ax.loglog([1, cap], [1, cap], color=COLOURS[7], lw=1)
        ax.set(title="iterations to 0.1 %", xlabel=f"{other} (right edge: never)",
               ylabel="dual (top edge: never)")  # fmt: skip
    axes[1].legend(frameon=False)
    save_figure(fig, path)


def main(out: Path, *, quick: bool = False, sizes: dict[str, Any] | None = None) -> str:
    sizes = sizes or dict(seeds=1 if quick else 2, max_iter=200 if quick else 1000)
    lines, rough = study(**sizes), rises(min(sizes["max_iter"], 400))
    write_json({"runs": lines, "rises": rough}, out / "extrapolation.json")
    figure(out / "theory-extrapolation.png", lines, sizes["max_iter"])
    return summary(lines, rough)
