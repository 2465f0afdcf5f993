"""Tables of a comparison, as markdown."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from counterpoise.lm.compare.markdown import aligned, interval, markdown_table, ratio
from counterpoise.lm.compare.results import Results
from counterpoise.lm.compare.scores import TASK_AVERAGE, Tasks
from counterpoise.lm.compare.study import Study
from counterpoise.lm.compare.summary import final_spreads, paired_differences, tokens_to_target
from counterpoise.lm.tasks.catalog import PAPER_TASKS
from counterpoise.storage.files import write_text


def headline(study: Study) -> str:
    """Tabulate how every run of the first group ends, and how it compares with the baseline."""
    results, baseline = study.results, study.baseline
    runs = study.shown
    others = [run for run in runs if run != baseline]
    head = ["run"]
    columns: list[list[str]] = []
    seeds = [results.seeds(run) for run in runs]
    if any(s != seeds[0] for s in seeds):  # then the means are over different seeds
        head.append("seeds")
        columns.append([",".join(map(str, s)) for s in seeds])
    curves = study.has_curves
    for metric in study.metrics[:2] if curves else study.metrics:
        ends = [
            np.mean([
                results.curve(run, seed, metric, study.references)[1][-1]
                for seed in results.seeds(run)
            ])
            for run in runs
        ]  # fmt: skip
        head.append(metric if metric.endswith("excess") else f"{metric} loss")
        columns.append([f"{end:.3f}" for end in ends])
        if baseline not in runs or not others:
            continue
        differences = paired_differences(
            results, baseline, metric, runs=others, reference=study.references
        )
        shown = {d.run: interval(d.mean, d.low, d.high, 3) for d in differences}
        head.append(f"minus {baseline}")
        columns.append([shown.get(run, "") for run in runs])
        if curves:
            speedups = tokens_to_target(results, baseline, metric, runs=others)
            faster = {s.run: ratio(s, 2) for s in speedups}
            head.append("times fewer tokens")
            columns.append([faster.get(run, "") for run in runs])
    return aligned(head, list(zip(runs, *columns, strict=True)))


def ablations(study: Study) -> str:
    """Tabulate the other groups, each against its own baseline; empty if there are none."""
    rows = []
    for group in list(study.groups)[1:]:
        found = [study.differences(metric, group) for metric in study.metrics]
        for pairs in zip(*found, strict=True):
            cells = [interval(d.mean, d.low, d.high, 3) for d in pairs]
            rows.append([pairs[0].run, pairs[0].baseline, *cells])
    return aligned(["run", "minus", *study.metrics], rows) if rows else ""


def write_tables(study: Study, folder: str | os.PathLike[str]) -> str:
    """Write all tables to ``tables.md`` and return the text."""
    results = study.results
    sections = [headline(study), _about_seeds(results), ablations(study)]
    if study.closer is not None:
        sections += ["## Finished models, measured on more sequences", headline(study.closer)]
        sections.append(ablations(study.closer))
    for metric in study.metrics:
        for group in study.groups:
            found = study.differences(metric, group)
            if found:
                heading = f"{metric}: {group}" if group else metric
                sections += [f"## Final loss, {heading}", markdown_table(found)]
    for metric in study.metrics:
        speedups = [pair for group in study.groups for pair in study.speedups(metric, group)]
        if speedups:
            sections += [f"## Tokens to equal quality, {metric}", markdown_table(speedups)]
    if len(results.tasks):
        sections += _task_tables(study)
    for column, title in (("loss", "loss"), ("weight", "weight"), ("epochs", "epochs")):
        sections += [
            f"## Final {title} of each domain",
            markdown_table(final_spreads(results, column)),
        ]
    missing = {
        group["against"] for group in study.groups.values() if group["against"] not in results.runs
    }
    if missing:
        names = ", ".join(sorted(missing))
        sections.insert(1, f"Not finished, so nothing is compared with them: {names}.")
    text = "\n\n".join(section.rstrip("\n") for section in sections if section) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder, "tables.md"), text)
    return text


def _about_seeds(results: Results) -> str:
    numbers = sorted({len(results.seeds(run)) for run in results.runs})
    paired = "with the same first model and the same stream of every domain"
    if numbers == [1]:
        return f"One seed: no interval. Runs are compared {paired}."
    shown = " or ".join(map(str, numbers))
    return f"Seeds per run: {shown}. Differences are paired by seed, {paired}; intervals are 95 %."


def _task_tables(study: Study) -> list[str]:
    """Tabulate task scores at the last measured checkpoint, in per cent."""
    results = study.results
    names = list(dict.fromkeys(results.tasks.task.tolist()))
    scored = [run for run in results.runs if results.tasks.seeds(run)]
    rows = []
    for run in scored:
        cells = [run]
        for metric in (TASK_AVERAGE, *(f"task {name}" for name in names)):
            try:
                ends = [results.curve(run, s, metric)[1][-1] for s in results.tasks.seeds(run)]
            except ValueError:  # some tasks of some runs are not measured
                cells.append("-")
                continue
            spread = f" ± {100 * np.std(ends, ddof=1):.2f}" if len(ends) > 1 else ""
            cells.append(f"{100 * np.mean(ends):.2f}{spread}")
        rows.append(cells)
    sections = [
        "## Downstream tasks, %",
        aligned(["run", "average", *names], rows),
        _how_measured(results.tasks),
    ]
    others = [run for run in scored if run != study.baseline]
    whole = all(row[1] != "-" for row in rows)
    if study.baseline in scored and others and whole:
        found = paired_differences(results, study.baseline, TASK_AVERAGE, runs=others)
        faster = tokens_to_target(results, study.baseline, TASK_AVERAGE, runs=others)
        sections += [markdown_table(found), markdown_table(faster)]
    return sections


def _how_measured(tasks: Tasks) -> str:
    """State shots and documents of each task, and which of the paper's tasks are missing."""
    sections = []
    for name in dict.fromkeys(tasks.task.tolist()):
        mine = tasks.rows(tasks.task == name)
        ways = {
            f"{metric}, {shots} shots, {n} documents ({source})"
            for metric, shots, n, source in zip(
                mine.metric.tolist(), mine.shots.tolist(), mine.n.tolist(), mine.source.tolist(),
                strict=True,
            )
        }  # fmt: skip
        sections.append(f"{name}: {' or '.join(sorted(ways))}")
    missing = [task.name for task in PAPER_TASKS if task.name not in tasks.task.tolist()]
    note = f" Tasks of the paper that were not measured: {', '.join(missing)}." if missing else ""
    return f"Measured by {'; '.join(sections)}.{note}"
