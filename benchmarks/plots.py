"""Risk against time, one picture per problem, and all problems in one."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import solvers
from datasets import SOURCES
from objectives import OBJECTIVES, TOLERANCES

# Okabe and Ito's colours, told apart by colour-blind readers too; markers tell them apart again.
STYLE = {
    "ours": ("#000000", "o"),
    "cvxpy_qr": ("#E69F00", "s"),
    "cvxpy_rows": ("#E69F00", "D"),
    "numpy_eg": ("#0072B2", "^"),
    "lbfgs": ("#009E73", "v"),
    "slsqp": ("#009E73", "<"),
    "sklearn_logistic": ("#999999", "d"),
    "torch_groupdro": ("#D55E00", "P"),
    "torch_response": ("#D55E00", "X"),
    "fairlearn_eg": ("#CC79A7", "*"),
    "dro_group": ("#56B4E9", "h"),
    "dro_mlp": ("#56B4E9", "p"),
}
FLOOR = 1e-7  # excesses below this are drawn here


def file_name(dataset, model, objective) -> str:
    return f"{dataset}.{model}.{objective}.png"


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def curve(cell, floor):
    """Lowest excess so far against wall seconds: medians of repeats, best label at each time."""
    times = defaultdict(list)
    for run in cell["runs"]:
        if len(run["points"]) == 1:
            times[str(run["label"])].append(run["points"][0])
    points = [
        (float(np.median([p["wall"] for p in found])), found[0]["risk"]) for found in times.values()
    ]
    traced = [run["points"] for run in cell["runs"] if len(run["points"]) > 1]
    points += [(p["wall"], p["risk"]) for run in traced for p in run]
    wall, excess, best = [], [], math.inf
    for when, risk in sorted(points):
        if risk < best:
            best = risk
            wall.append(when)
            excess.append(max(risk / floor - 1.0, FLOOR))
    return wall, excess


def risk_against_time(key, cells, floor, out) -> None:
    """Log-log, each line labelled where it ends."""
    plt = _pyplot()
    dataset, model, objective = key
    fig, ax = plt.subplots(figsize=(8.5, 5), layout="constrained")
    ends = []
    for cell in cells:
        wall, excess = curve(cell, floor)
        if not wall:
            continue
        name = cell["solver"]
        colour, marker = STYLE[name]
        ours, dense = name == "ours", len(wall) > 8
        same = getattr(solvers.get(name), "SAME_MODEL", True)
        ax.plot(wall, excess, color=colour, marker=None if dense else marker, ms=6,
                lw=2.6 if ours else 1.5, drawstyle="steps-post", ls="-" if same else ":",
                zorder=3 if ours else 2)  # fmt: skip
        ax.plot(wall[-1:], excess[-1:], color=colour, marker=marker, ms=7, zorder=4)
        title = solvers.get(name).TITLE + ("" if same else ": another model")
        ends.append((wall[-1], excess[-1], title, colour))
    if not ends:
        plt.close(fig)
        return
    ax.set(xscale="log", yscale="log", xlabel="wall time, seconds",
           ylabel="risk above the lowest found, relative")  # fmt: skip
    ax.set_ylim(FLOOR / 2, 2.0)
    left, right = ax.get_xlim()
    ax.set_xlim(left, right * (right / left) ** 0.35)
    for tol in TOLERANCES:
        ax.axhline(tol, color="#dddddd", lw=0.8, zorder=0)
    _label(ax, ends)
    title = f"{SOURCES[dataset].title}; {model}; {OBJECTIVES[objective].TITLE}"
    ax.set_title(title, fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(out / file_name(*key), dpi=130)
    plt.close(fig)


def _label(ax, ends, gap=0.045) -> None:
    """Names in a column at the right, in the order of the lines' ends and clear of each other."""
    to_axes = ax.transData + ax.transAxes.inverted()
    placed = sorted((*to_axes.transform((x, y)), title, colour) for x, y, title, colour in ends)
    placed.sort(key=lambda entry: entry[1])
    lowest = -1.0
    heights = []
    for _, y, *_ in placed:
        lowest = max(y, lowest + gap)
        heights.append(lowest)
    over = max(heights[-1] - 0.97, 0.0)
    for (x, y, title, colour), height in zip(placed, heights, strict=True):
        ax.annotate(
            title, (x, y), (0.78, height - over), xycoords="axes fraction",
            textcoords="axes fraction", color=colour, fontsize=8.5, va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "alpha": 0.5},
        )  # fmt: skip


def overview(summary, out, tol="0.001") -> None:
    """Every problem a row, every solver a mark at its time to within ``tol``."""
    plt = _pyplot()
    rows = list(dict.fromkeys((e["dataset"], e["model"], e["objective"]) for e in summary))
    fig, ax = plt.subplots(figsize=(9, 1.8 + 0.28 * len(rows)), layout="constrained")
    seen = {}
    for entry in summary:
        found = entry["times"][tol]
        if not found:
            continue
        row = rows.index((entry["dataset"], entry["model"], entry["objective"]))
        colour, marker = STYLE[entry["solver"]]
        mark = ax.scatter(found["wall"], row, color=colour, marker=marker, s=45, alpha=0.9,
                          zorder=4 if entry["solver"] == "ours" else 3)  # fmt: skip
        seen.setdefault(entry["solver"], mark)
    ax.set_yticks(range(len(rows)), [" ".join(row) for row in rows], fontsize=8)
    ax.set_ylim(len(rows) - 0.3, -0.7)
    ax.set(
        xscale="log", xlabel=f"seconds to within {tol} of the lowest risk (no mark: not reached)"
    )
    ax.grid(axis="x", color="#eeeeee", zorder=0)
    ax.spines[["top", "right"]].set_visible(False)
    order = [name for name in solvers.NAMES if name in seen]
    fig.legend([seen[name] for name in order], [solvers.get(name).TITLE for name in order],
               loc="outside upper center", ncols=4, frameon=False, fontsize=8)  # fmt: skip
    fig.savefig(out / "overview.png", dpi=130)
    plt.close(fig)
