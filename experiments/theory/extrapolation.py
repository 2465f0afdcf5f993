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
from counterpoise.algorithm import primal_dual
from counterpoise.divergences import get_divergence
from counterpoise.schedules import Measurement, ProblemScale

Array = np.ndarray

TITLE = "Extrapolation on and off"


@dataclass(frozen=True)
class LongerSteps(AdaptiveSteps):
    """Adaptive steps that let the weights move as ``D >= ||.||_1^2`` permits.

    That is true of chi-squared. Of KL only half of it is (Pinsker), and the dual part of these
    steps is then too long by the square root of two.
    """

    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        return super().step(scale._replace(modulus=2.0), c1, nu0, now)


@dataclass(frozen=True)
class CautiousSteps(AdaptiveSteps):
    """Adaptive steps that trust the second moments, not the curvature met on the way."""

    def step(self, scale: ProblemScale, c1: float, nu0: float, now: Measurement) -> float:
        return super().step(scale, c1, nu0, now._replace(curvature=0.0))


VARIANTS = {
    "dual": ("dual", AdaptiveSteps),
    "none": ("none", AdaptiveSteps),
    "primal": ("primal", AdaptiveSteps),
}
# Under chi-squared the longer steps are the usual ones.
UNDER_KL = {"dual, longer steps": ("dual", LongerSteps)}


def runs(
    rows: Rows, activation: str, name: str, nu: float, share: float, max_iter: int
) -> dict[str, dict[str, Array]]:
    """Risks and running slack of every variant (the longer steps for KL only); ``share``
    multiplies the default ``nu0``."""
    problem = problem_of(rows, activation, get_divergence(name), nu * float(np.mean(rows.y**2)))
    scale = scale_of(problem, rows, np.inf)
    nu0 = share * AdaptiveSteps().starting_weight(scale)
    start = np.zeros(problem.size)
    found = {}
    variants = VARIANTS | UNDER_KL if name == "kl" else VARIANTS
    for variant, (kind, steps) in variants.items():
        run = primal_dual(
            problem, steps(nu0=nu0), scale, start=start, max_iter=max_iter, tol=0.0,
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


# Two groups each: blown up on the way by ill-conditioned features; swinging without them.
ROUGH = (("relu", 100.0, 0), ("identity", 1.0, 1))


def rises(max_iter: int) -> list[list[Any]]:
    """How far the risk rose on two problems, in limits, and whether the slack was ever positive:
    with curvature as measured on the way, and from second moments."""
    lines = []
    for (activation, cond, seed), name, nu, kind in itertools.product(
        ROUGH, ("kl", "chi2"), (0.1, 0.0), ("dual", "none")
    ):
        rows = conflicting(activation, K=2, n=150, d=8, cond=cond, spread=1.0, noise=(0.1, 0.5),
                           seed=seed)  # fmt: skip
        problem = problem_of(rows, activation, get_divergence(name), nu * float(np.mean(rows.y**2)))
        scale, start = scale_of(problem, rows, np.inf), np.zeros(problem.size)
        found = [
            primal_dual(problem, steps(), scale, start=start, max_iter=max_iter, tol=0.0,
                        extrapolation=kind).history
            for steps in (AdaptiveSteps, CautiousSteps)
        ]  # fmt: skip
        limit = limit_of([run["risk"] for run in found])
        line = [activation, cond, name, nu, kind]
        for run in found:
            slack = bool((run["slack"] > 0).any()) if kind == "dual" else None
            line += [upward(run["risk"], limit), slack]
        lines.append(line)
    return lines


def pairs(lines: list[dict[str, Any]], first: str, second: str, key: str = "to_01") -> Array:
    """Counts of two variants, problem by problem; both must have run on all of them."""
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
    if not part:
        return "-"
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
            by = [[r for r in part if r["variant"] == v] for v in VARIANTS | UNDER_KL]
            slack = [sum(r["slack_positive"] for r in by[k]) if by[k] else None for k in (0, -1)]
            body.append([*kind, len(by[0]), *map(cell, by), *slack])
        out.append(table((*keys, "runs", *VARIANTS, *UNDER_KL, "dual: slack > 0",
                          "longer steps: slack > 0"), body))  # fmt: skip
    out.append("Which needs fewer iterations to 0.1 % (by a tenth or more):\n")
    calm = [r for r in lines if r["nu0"] == 1.0]
    rough = [r for r in lines if r["nu0"] != 1.0]
    body = []
    for title, part in (("default nu0", calm), ("a hundredth", rough)):
        kl = [r for r in part if r["divergence"] == "kl"]
        body += [[title, *duel(part, "dual", other)] for other in VARIANTS if other != "dual"]
        body += [[f"{title}, KL", *duel(kl, "dual", other)] for other in UNDER_KL]
    out.append(table(("nu0", "A", "B", "problems", "A first", "alike", "B first"), body))
    out.append("How far the risk rose in limits, two groups, curvature as measured and not:\n")
    head = ("activation", "cond", "divergence", "nu", "extrapolation", "curvature measured",
            "slack > 0", "from second moments", "slack > 0")  # fmt: skip
    out.append(table(head, rough_runs))
    return "\n".join(out)


def figure(path: Path, lines: list[dict[str, Any]], max_iter: int) -> None:
    plt = pyplot()
    fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    rows = conflicting("identity", K=2, n=150, d=8, spread=1.0, noise=(0.1, 0.5))
    found = runs(rows, "identity", "kl", 0.0, 1.0, min(max_iter, 300))
    limit = limit_of([one["risk"] for one in found.values()])
    for k, variant in enumerate(("dual", "none", *UNDER_KL)):
        excess = np.maximum(np.abs(found[variant]["risk"] / limit - 1.0), 1e-8)
        axes[0].semilogy(np.arange(1, len(excess) + 1), excess, color=COLOURS[(2, 0, 4)[k]],
                         ls=("-", "--", "-.")[k], lw=1.2, label=variant)  # fmt: skip
    axes[0].set(title="two groups, identity, KL, nu = 0", xlabel="iteration",
                ylabel="risk / limit - 1")  # fmt: skip
    axes[0].legend(frameon=False)
    cap = 1.5 * max_iter
    duels = ((axes[1], "none", ("kl", "chi2")), (axes[2], "dual, longer steps", ("kl",)))
    for ax, other, names in duels:
        for k, (name, nu) in enumerate(itertools.product(names, (0.1, 0.0))):
            part = [r for r in lines if r["divergence"] == name and r["nu"] == nu]
            x, y = np.minimum(pairs(part, other, "dual"), cap)
            ax.loglog(x, y, MARKERS[k], color=COLOURS[k + 1], ms=4, alpha=0.7, ls="none",
                      label=f"{name}, nu = {nu:g}")  # fmt: skip
        ax.loglog([1, cap], [1, cap], color=COLOURS[7], lw=1)
        ax.set(title=f"iterations to 0.1 %: dual, {other}", xlabel=f"{other} (right edge: never)")
        ax.legend(frameon=False)
    axes[1].set_ylabel("dual (top edge: never)")
    save_figure(fig, path)


def main(out: Path, *, quick: bool = False, sizes: dict[str, Any] | None = None) -> str:
    sizes = sizes or dict(seeds=1 if quick else 2, max_iter=200 if quick else 1000)
    lines, rough = study(**sizes), rises(min(sizes["max_iter"], 400))
    write_json({"runs": lines, "rises": rough}, out / "extrapolation.json")
    figure(out / "theory-extrapolation.png", lines, sizes["max_iter"])
    return summary(lines, rough)
