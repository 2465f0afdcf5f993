"""From cells to tables: time to come close to the best known risk, and the ratio to ours."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import plots
import solvers
from datasets import SOURCES
from objectives import OBJECTIVES, TOLERANCES

SHOWN = (1e-3, 1e-6)  # in the tables of all problems


def by_problem(cells):
    """Cells of the same dataset, model and objective together, in order."""
    problems = defaultdict(list)
    for cell in cells:
        problems[cell["dataset"], cell["model"], cell["objective"]].append(cell)
    return problems


def same_model(name) -> bool:
    """Whether a solver fits the neuron itself, not something richer."""
    return getattr(solvers.get(name), "SAME_MODEL", True)


def reference(cells) -> float:
    """The lowest risk of any solver that fits the same class of models."""
    return min(
        (
            point["risk"]
            for cell in cells
            if same_model(cell["solver"])
            for run in cell["runs"]
            for point in run["points"]
            if math.isfinite(point["risk"])
        ),
        default=math.nan,
    )


def time_to(cell, goal):
    """Median, least and largest time to a risk of ``goal``, wall and CPU, for the best label.

    A label is a level or a setting; the one with the smallest median is shown.
    """
    labels = defaultdict(list)
    for run in cell["runs"]:
        met = [point for point in run["points"] if point["risk"] <= goal]
        if met:
            labels[str(run["label"])].append((met[0]["wall"], met[0]["cpu"]))
    if not labels:
        return None
    walls, cpus = min(
        (tuple(zip(*found, strict=True)) for found in labels.values()),
        key=lambda pair: np.median(pair[0]),
    )
    return {
        "wall": float(np.median(walls)), "least": min(walls), "most": max(walls),
        "cpu": float(np.median(cpus)), "runs": len(walls),
    }  # fmt: skip


def best_excess(cell, floor) -> float:
    risks = [point["risk"] for run in cell["runs"] for point in run["points"]]
    risks = [risk for risk in risks if math.isfinite(risk)]
    return min(risks) / floor - 1.0 if risks else math.inf


def summarise(cells):
    """One entry per cell: times to every tolerance, ratios to ours, lowest excess."""
    summary = []
    for cells_here in by_problem(cells).values():
        floor = reference(cells_here)
        goals = {f"{tol:g}": floor * (1.0 + tol) for tol in TOLERANCES}
        ours = next((cell for cell in cells_here if cell["solver"] == "ours"), None)
        base = {tol: time_to(ours, goal) if ours else None for tol, goal in goals.items()}
        for cell in cells_here:
            reached = {tol: time_to(cell, goal) for tol, goal in goals.items()}
            for tol, found in reached.items():
                if found and base[tol]:
                    found["ratio"] = found["wall"] / base[tol]["wall"]
                    found["cpu_ratio"] = found["cpu"] / base[tol]["cpu"]
            entry = {key: cell[key] for key in ("dataset", "model", "objective", "solver")}
            entry |= {"reference": floor, "excess": best_excess(cell, floor), "times": reached}
            entry |= {"limit": cell["limit"], "longest": _longest(cell), "shape": cell["shape"]}
            entry |= {key: cell[key] for key in ("left_out", "failed") if key in cell}
            shipped = getattr(solvers.get(cell["solver"]), "SHIPPED", None)
            if shipped:
                alone = {**cell, "runs": [run for run in cell["runs"] if run["label"] == shipped]}
                if alone["runs"]:
                    entry["shipped"] = {**time_to(alone, math.inf)}
                    entry["shipped"]["excess"] = best_excess(alone, floor)
            summary.append(entry)
    return summary


def _longest(cell) -> float:
    """The longest any run tried, the limit for one that was ended from outside."""
    ends = [run["points"][-1]["wall"] for run in cell["runs"] if run["points"]]
    killed = any(run["ended"] == "killed" for run in cell["runs"])
    return max([*ends, cell["limit"] if killed else 0.0], default=0.0)


def seconds(value, *spread) -> str:
    """A time in the unit that suits it; a spread after it in brackets, in the same unit."""
    factor, unit = (1.0, "s") if value >= 1 else (1e3, "ms")
    shown = [f"{v:.0f}" if v >= 1000 else f"{v:.3g}" for v in factor * np.array([value, *spread])]
    return f"{shown[0]} {unit}" + (f" ({'-'.join(shown[1:])})" if spread else "")


def times(ratio) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def show_time(entry, tol) -> str:
    """A cell of the table: median time (spread), CPU time, ratio to ours; or why there is none."""
    found = entry["times"][tol]
    if found is None:
        if entry["longest"] >= 0.95 * entry["limit"]:
            return f"> {seconds(entry['longest'])}"
        return f"no (tried {seconds(entry['longest'])})" if entry["longest"] else "-"
    spread = (found["least"], found["most"]) if found["runs"] > 1 else ()
    ratio = (
        f" **{times(found['ratio'])}**" if "ratio" in found and entry["solver"] != "ours" else ""
    )
    return f"{seconds(found['wall'], *spread)}, CPU {seconds(found['cpu'])}{ratio}"


def table(entries) -> str:
    """One problem in Markdown."""
    head = " | ".join(f"within {tol:g}" for tol in TOLERANCES)
    lines = [f"| solver | {head} | lowest excess |", "|---" * (len(TOLERANCES) + 2) + "|"]
    for entry in entries:
        solver = solvers.get(entry["solver"])
        tries = len(getattr(solver, "SETTINGS", ()))
        tuned = f" (best of {tries})" if tries > 1 else ""
        title = solver.TITLE + (tuned if same_model(entry["solver"]) else ": another model")
        if entry.get("left_out") or entry.get("failed"):
            why = entry.get("left_out") or f"failed: {entry['failed']}"
            lines.append(f"| {title} | {why} |" + " |" * len(TOLERANCES))
            continue
        cells = " | ".join(show_time(entry, f"{tol:g}") for tol in TOLERANCES)
        excess = entry["excess"]
        shown = f"{excess:.1e}" if math.isfinite(excess) else "-"
        lines.append(f"| {title} | {cells} | {shown} |")
        if "shipped" in entry:
            fit = entry["shipped"]
            said = f"{seconds(fit['wall'])}, CPU {seconds(fit['cpu'])}"
            empty = " |" * (len(TOLERANCES) - 1)
            lines.append(f"| {title}, default settings | {said} |{empty} {fit['excess']:.1e} |")
    return "\n".join(lines)


def overview(summary, tol) -> str:
    """All problems at one tolerance: our time, and the fastest peer's ratio to it."""
    lines = [
        f"| problem | rows x features, groups | ours | fastest peer within {tol} | ratio |",
        "|---|---|---|---|---|",
    ]
    for key, entries in by_problem(summary).items():
        ours = next((e for e in entries if e["solver"] == "ours"), None)
        mine = ours and ours["times"][tol]
        peers = [e for e in entries if e["times"][tol] and same_model(e["solver"])]
        peers = [e for e in peers if e["solver"] != "ours"]
        best = min(peers, key=lambda e: e["times"][tol]["wall"], default=None)
        shape = entries[0]["shape"]
        title = ", ".join((SOURCES[key[0]].title, key[1], OBJECTIVES[key[2]].TITLE))
        name = solvers.get(best["solver"]).TITLE if best else "none"
        time = f", {seconds(best['times'][tol]['wall'])}" if best else ""
        ratio = f"{times(best['times'][tol]['ratio'])}" if best and mine else "-"
        lines.append(
            f"| {title} | {shape['n']:,} x {shape['d']}, {shape['K']} | "
            f"{seconds(mine['wall']) if mine else 'not reached'} | {name}{time} | {ratio} |"
        )
    return "\n".join(lines)


def markdown(results) -> str:
    machine, summary = results["machine"], results["summary"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    parts = [
        "# Time to a good fit",
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{machine['python']}; {versions}.",
        "Training risk, scored by one function for all. Times are medians of runs on raw rows "
        "(least to largest in brackets), without imports and compilation; the bold figure is "
        "the time divided by ours, so below 1 the peer is faster. Peers are tuned in hindsight: "
        "the best setting for each column counts. The excess is relative to the lowest risk "
        "that any solver of the same model found.",
        *(overview(summary, f"{tol:g}") for tol in SHOWN),
    ]
    for (dataset, model, objective), entries in by_problem(summary).items():
        shape = entries[0]["shape"]
        parts += [
            f"## {SOURCES[dataset].title}; {model}; {OBJECTIVES[objective].TITLE}",
            f"{shape['n']:,} rows, {shape['d']} features, {shape['K']} groups; lowest risk "
            f"{entries[0]['reference']:.6g}.",
            table(entries),
            f"![risk against time]({plots.file_name(dataset, model, objective)})",
        ]
    used = {entry["solver"] for entry in summary}
    notes = [
        f"- {solvers.get(name).TITLE}: {solvers.get(name).NOTE}."
        for name in solvers.NAMES
        if name in used and hasattr(solvers.get(name), "NOTE")
    ]
    if notes:
        parts += ["## Notes", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"


def write(results, out: Path) -> None:
    """results.md and the plots."""
    scratch = out / "results.md.part"
    scratch.write_text(markdown(results))
    scratch.replace(out / "results.md")
    for key, cells in by_problem(results["cells"]).items():
        plots.risk_against_time(key, cells, reference(cells), out)
    plots.overview(results["summary"], out)
