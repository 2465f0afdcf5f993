"""Study 2: error against adversarial label noise, and traps for the true gradient."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from methods import METHODS, NU, outcome
from problems_known import (
    ADVERSARIES,
    Rows,
    by_group,
    corrupted,
    planted,
    problem_of,
    scale_of,
    smallest_sharpness,
)
from report import COLOURS, MARKERS, pyplot, save_figure, table, write_json

from counterpoise.dual.divergences import get_divergence

Array = np.ndarray

TITLE = "Error against adversarial label noise"
EPSILON = 0.01
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
SCOPES = {"one group": (0,), "all groups": None}
# Success: near the neuron behind the labels (zero and the opposite neuron are not), and a risk
# that is near the lowest any method reached on the same rows.
NEAR, LOW = 0.75, 1.1


# -- error against the noise ------------------------------------------------------------------


def theorem_factor(rows: Rows) -> float:
    """``C3 = 31 beta sqrt(B) / c1`` with ``6 B`` the largest second moment and ``c1`` measured."""
    problem = problem_of(rows, "relu", get_divergence("kl"), NU)
    B = scale_of(problem, rows, 1.0).moment / 6.0
    c1 = smallest_sharpness(problem, rows.w, np.random.default_rng(0))
    return 31.0 * float(np.sqrt(B)) / c1


def curves(
    seeds: int, shares: tuple[float, ...], n: int = 500, methods: tuple[str, ...] = tuple(METHODS)
) -> list[dict[str, Any]]:
    lines = []
    for adversary, scope, share, seed in itertools.product(
        ADVERSARIES, SCOPES, shares, range(seeds)
    ):
        clean = planted(K=4, n=n, d=8, noise=(0.1, 0.3), spread=0.15, seed=seed)
        rows = corrupted(clean, "relu", adversary, share, groups=SCOPES[scope], seed=seed)
        at_planted = by_group(rows, (np.maximum(rows.X @ rows.w, 0.0) - rows.y) ** 2)
        opt, factor = float(at_planted.max()), theorem_factor(rows)
        bound = factor * (np.sqrt(opt) + np.sqrt(EPSILON))
        for method in methods:
            lines.append(
                {"adversary": adversary, "scope": scope, "share": share, "seed": seed,
                 "method": method, "opt": opt, "C3": factor, "bound": bound,
                 **outcome(method, rows, "random", seed)}
            )  # fmt: skip
    return lines


# -- traps ----------------------------------------------------------------------------------


def trap(name: str, seed: int, n: int = 200) -> tuple[Rows, Any]:
    """Rows and where the methods that can be told start."""
    rng = np.random.default_rng(seed)
    rows = planted(K=4, n=n, d=5, noise=(0.05, 0.1), spread=0.15, seed=seed)
    if name == "from zero":
        return rows, "zero"
    if name == "from the opposite":
        return rows, -2.0 * rows.w
    if name == "features far from zero":
        # With every feature positive a random start is as likely as not to be dead on all rows.
        X, w = rows.X + 3.0, np.abs(rows.w)
        y = np.maximum(X @ w, 0.0) + 0.1 * rng.normal(size=len(X))
        return Rows(X, y, rows.groups, w), "random"
    if name == "decoy":
        # Where the neuron is silent, half of what the opposite one would say: a second basin.
        return rows._replace(y=rows.y + 0.5 * np.maximum(-rows.X @ rows.w, 0.0)), "random"
    return rows, "random"


TRAPS = ("random start", "from the opposite", "from zero", "features far from zero", "decoy")


def success(
    names: tuple[str, ...], seeds: int, methods: tuple[str, ...] = tuple(METHODS), n: int = 200
) -> dict[str, dict[str, dict[str, float]]]:
    """Shares of the seeds with success, per trap and method, by distance and by risk."""
    rates: dict[str, dict[str, dict[str, float]]] = {}
    for name in names:
        found = []
        for seed in range(seeds):
            rows, start = trap(name, seed, n)
            found.append([outcome(method, rows, start, seed) for method in methods])
            size = float(np.linalg.norm(rows.w))
            lowest = min(one["risk"] for one in found[-1])
            for one in found[-1]:
                one["near"] = one["error"] <= NEAR * size
                one["low"] = one["risk"] <= LOW * lowest
        rates[name] = {
            method: {
                "near": float(np.mean([line[i]["near"] for line in found])),
                "low": float(np.mean([line[i]["low"] for line in found])),
                "median_error": float(np.median([line[i]["error"] for line in found])),
            }
            for i, method in enumerate(methods)
        }
    return rates


# -- what is shown --------------------------------------------------------------------------


def medians(lines: list[dict[str, Any]], key: str, **chosen: Any) -> float:
    part = [r[key] for r in lines if all(r[k] == v for k, v in chosen.items())]
    return float(np.median(part))


def summary(lines: list[dict[str, Any]], rates: dict, shares: tuple[float, ...]) -> str:
    out = [f"## {TITLE}\n"]
    for scope in SCOPES:
        body = []
        for adversary, share in itertools.product(ADVERSARIES, shares[1:]):
            chosen = dict(scope=scope, adversary=adversary, share=share)
            body.append(
                [adversary, f"{share:.0%}", medians(lines, "opt", **chosen) ** 0.5,
                 *(medians(lines, "error", method=m, **chosen) for m in METHODS),
                 medians(lines, "bound", **chosen)]
            )  # fmt: skip
        head = ["adversary", "share", "sqrt(OPT)", *METHODS, "theorem's bound"]
        out.append(f"Median distance to the planted neuron, {scope}:\n\n{table(head, body)}")
    worst = {
        m: max(r["error"] / r["opt"] ** 0.5 for r in lines if r["method"] == m) for m in METHODS
    }
    over = sum(r["error"] > r["bound"] for r in lines)
    factors = [r["C3"] for r in lines]
    out.append(
        f"Fits with error beyond the bound: {over} of {len(lines)}. Largest error / sqrt(OPT): "
        + ", ".join(f"{m} {v:.2f}" for m, v in worst.items())
        + f"; C3 between {min(factors):.3g} and {max(factors):.3g}.\n"
    )
    body = [
        [name, *(f"{100 * r['near']:.0f} / {100 * r['low']:.0f}" for r in by_method.values())]
        for name, by_method in rates.items()
    ]
    head = ["trap", *next(iter(rates.values()))]
    out.append(
        f"Success in % of seeds: distance at most {NEAR} ||w*|| / risk at most {LOW} times the "
        f"lowest of all methods:\n\n{table(head, body)}"
    )
    return "\n".join(out)


def curve_figure(path: Path, lines: list[dict[str, Any]], shares: tuple[float, ...]) -> None:
    plt = pyplot()
    fig, axes = plt.subplots(2, 3, figsize=(11, 6), sharey=True, layout="constrained")
    for (i, scope), (j, adversary) in itertools.product(enumerate(SCOPES), enumerate(ADVERSARIES)):
        ax = axes[i, j]
        at = [dict(scope=scope, adversary=adversary, share=share) for share in shares]
        x = [medians(lines, "opt", **chosen) ** 0.5 for chosen in at]
        for k, method in enumerate(METHODS):
            y = [max(medians(lines, "error", method=method, **chosen), 1e-3) for chosen in at]
            ax.semilogy(x, y, color=COLOURS[k], marker=MARKERS[k], ms=4, lw=1, label=method)
        ax.semilogy(x, [medians(lines, "bound", **c) for c in at], "--", color=COLOURS[7],
                    label="theorem: C3 (sqrt(OPT) + sqrt(eps))")  # fmt: skip
        ax.set_title(f"{adversary} labels, {scope}")
        if i:
            ax.set_xlabel("sqrt(OPT)")
    for ax in axes[:, 0]:
        ax.set_ylabel("distance to the planted neuron")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    save_figure(fig, path)


def trap_figure(path: Path, rates: dict) -> None:
    plt = pyplot()
    methods = list(next(iter(rates.values())))
    fig, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True, layout="constrained")
    titles = {"near": f"with distance <= {NEAR} ||w*||",
              "low": f"with risk <= {LOW} times the lowest"}  # fmt: skip
    for ax, (key, title) in zip(axes, titles.items(), strict=True):
        values = np.array([[rates[name][m][key] for name in rates] for m in methods])
        ax.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            ax.text(column, row, f"{100 * value:.0f}", ha="center", va="center",
                    color="black" if value > 0.6 else "white")  # fmt: skip
        ax.set_xticks(range(len(rates)), [name.replace(" ", "\n", 1) for name in rates])
        ax.set_yticks(range(len(methods)), methods)
        ax.set_title(f"% of seeds {title}")
    save_figure(fig, path)


def main(out: Path, *, quick: bool = False) -> str:
    shares = SHARES[::2] if quick else SHARES
    lines = curves(1 if quick else 6, shares)
    rates = success(TRAPS, 5 if quick else 100)
    write_json({"curves": lines, "traps": rates}, out / "noise.json")
    curve_figure(out / "theory-noise.png", lines, shares)
    trap_figure(out / "theory-traps.png", rates)
    return summary(lines, rates, shares)
