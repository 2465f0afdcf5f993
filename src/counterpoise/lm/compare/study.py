"""What a comparison found: small files to keep, and tables and figures made from them alone."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.lm.compare.markdown import aligned, interval, markdown_table, ratio
from counterpoise.lm.compare.plan import plan
from counterpoise.lm.compare.results import Results, read_results, write_results
from counterpoise.lm.compare.scores import TASK_AVERAGE, Tasks
from counterpoise.lm.compare.summary import (
    Difference,
    Speedup,
    final_spreads,
    paired_differences,
    tokens_to_target,
)
from counterpoise.lm.tasks.catalog import PAPER_TASKS
from counterpoise.lm.training.references import reported_references
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import read_json, write_json, write_text

logger = logging.getLogger("counterpoise")

STUDY, FORMAT, VERSION = "study.json", "counterpoise study", 1
# The average excess differs from the average by a number that is the same for all runs.
METRICS = ("average", "worst", "worst excess")


@dataclass(frozen=True)
class Study:
    """Results, and what they mean.

    Attributes
    ----------
    results : Results
    baseline : str
    references : dict or None
        Losses by domain, above which a loss is an excess, on the split that is reported.
    groups : dict
        Names of groups of runs, each with the run it is compared with and its runs.
    about : dict
        Command and settings, for the reader.
    final_references : dict or None
        The same for the closer look.
    """

    results: Results
    baseline: str
    references: dict[str, float] | None
    groups: dict[str, dict[str, Any]]
    about: dict[str, Any]
    final_references: dict[str, float] | None = None

    @property
    def metrics(self) -> list[str]:
        return [m for m in METRICS if self.references is not None or "excess" not in m]

    @property
    def closer(self) -> Study | None:
        """The finished models, by the closer look that they were given."""
        finals = self.results.finals
        if finals is None:
            return None
        return replace(self, results=finals, references=self.final_references)

    @property
    def has_curves(self) -> bool:
        """Whether there is more than the end of every run."""
        results = self.results
        return any(len(results.matrix(r, results.seeds(r)[0])[0]) > 1 for r in results.runs)

    @property
    def shown(self) -> list[str]:
        """The baseline, if it is of another group, and the runs of the first that have ended."""
        runs = next(iter(self.groups.values()))["runs"]
        named = runs if self.baseline in runs else [self.baseline, *runs]
        return [run for run in named if run in self.results.runs]

    def against(self, baseline: str, group: str | None = None) -> Study:
        """The same study, a group (the first) compared with another run."""
        known = self.results.runs
        if baseline not in known:
            raise ValueError(
                f"baseline {baseline!r} is not a run that has ended; there are {known!r}"
            )
        first = next(iter(self.groups))
        turned = first if group is None else group
        groups = self.groups | {turned: self.groups[turned] | {"against": baseline}}
        overall = baseline if turned == first else self.baseline
        return replace(self, baseline=overall, groups=groups)

    def differences(self, metric: str, group: str) -> list[Difference]:
        """Runs of a group against the run that it names; those that are there."""
        against, runs = self._pairs(group)
        if not runs:
            return []
        return paired_differences(
            self.results, against, metric, runs=runs, reference=self.references
        )

    def speedups(self, metric: str, group: str) -> list[Speedup]:
        """Tokens to equal quality, of the same runs."""
        against, runs = self._pairs(group)
        if not runs:
            return []
        return tokens_to_target(self.results, against, metric, runs=runs, reference=self.references)

    def _pairs(self, group: str) -> tuple[str, list[str]]:
        against, runs = self.groups[group]["against"], self.groups[group]["runs"]
        there = [r for r in runs if r in self.results.runs and r != against]
        return against, there if against in self.results.runs else []


def gather(settings: Settings, command: str = "") -> Study:
    """The results of all runs of a comparison that have ended."""
    compare = settings.compare
    shown = [run for run in compare.run if not run.stage]
    ended = [item for item in plan(settings) if not item.run.stage and item.done]
    if not ended:
        raise ValueError(f"no run of the comparison in {settings.out!r} has ended yet")
    names = [run.name for run in shown]
    ended.sort(key=lambda item: (names.index(item.run.name), item.seed))
    folders = [(i.run.name, i.seed, i.folder.path) for i in ended]
    closer_look = settings.closer_look if settings.evaluate.final else None
    results = Results.from_runs(folders, closer_look)
    baseline = compare.baseline or shown[0].name
    groups: dict[str, dict[str, Any]] = {}
    for run in shown:
        group = groups.setdefault(run.group, {"against": run.against or baseline, "runs": []})
        group["runs"].append(run.name)
    about = {"command": command, "settings": settings.table}
    known, final = reported_references(settings, results.domains)
    return Study(results, baseline, known, groups, about, final)


def save_study(study: Study, folder: str | os.PathLike[str]) -> None:
    """Write a study to a few small files."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_results(path, study.results)
    known = {
        "format": FORMAT, "version": VERSION, "baseline": study.baseline,
        "references": study.references, "final_references": study.final_references,
        "groups": study.groups, "about": study.about,
    }  # fmt: skip
    write_json(path / STUDY, known)


def load_study(folder: str | os.PathLike[str]) -> Study:
    """What `save_study` wrote."""
    path = Path(folder)
    if not (path / STUDY).is_file():
        raise FileNotFoundError(f"there is no study in {str(path)!r} (no {STUDY})")
    known = read_json(path / STUDY, FORMAT, VERSION)
    names = ("baseline", "references", "groups", "about")
    fields = {name: known[name] for name in names}
    return Study(read_results(path), **fields, final_references=known.get("final_references"))


def headline(study: Study) -> str:
    """The shortest table: how every run of the first group ends, against the baseline."""
    results, baseline = study.results, study.baseline
    runs = study.shown
    others = [run for run in runs if run != baseline]
    head = ["run"]
    columns: list[list[str]] = []
    seeds = [results.seeds(run) for run in runs]
    if any(s != seeds[0] for s in seeds):  # means are then not of the same seeds
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
    """Runs of all groups but the first, each against its own; nothing if there are none."""
    rows = []
    for group in list(study.groups)[1:]:
        found = [study.differences(metric, group) for metric in study.metrics]
        for pairs in zip(*found, strict=True):
            cells = [interval(d.mean, d.low, d.high, 3) for d in pairs]
            rows.append([pairs[0].run, pairs[0].baseline, *cells])
    return aligned(["run", "minus", *study.metrics], rows) if rows else ""


def write_tables(study: Study, folder: str | os.PathLike[str]) -> str:
    """All tables as markdown, in ``tables.md``; returns the text."""
    results = study.results
    seeds = {len(results.seeds(run)) for run in results.runs}
    parts = [
        headline(study),
        f"Seeds of each run: {' or '.join(map(str, sorted(seeds)))}. Differences are taken seed by "
        "seed (the same first model, the same stream of every domain); intervals are 95 %.",
        ablations(study),
    ]
    if study.closer is not None:
        parts += ["## Finished models, a closer look", headline(study.closer)]
        parts.append(ablations(study.closer))
    for metric in study.metrics:
        for group in study.groups:
            found = study.differences(metric, group)
            if found:
                heading = f"{metric}: {group}" if group else metric
                parts += [f"## Final loss, {heading}", markdown_table(found)]
    for metric in study.metrics:
        speedups = [pair for group in study.groups for pair in study.speedups(metric, group)]
        if speedups:
            parts += [f"## Tokens to equal quality, {metric}", markdown_table(speedups)]
    if len(results.tasks):
        parts += _task_tables(study)
    for column, title in (("loss", "loss"), ("weight", "weight"), ("epochs", "epochs")):
        parts += [
            f"## Final {title} of each domain",
            markdown_table(final_spreads(results, column)),
        ]
    missing = {
        group["against"] for group in study.groups.values() if group["against"] not in results.runs
    }
    if missing:
        parts.insert(1, f"Not ended yet, so that nothing is compared with them: {sorted(missing)}")
    text = "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder, "tables.md"), text)
    return text


def _task_tables(study: Study) -> list[str]:
    """Scores on downstream tasks, in per cent, at the last measured checkpoint."""
    results = study.results
    names = list(dict.fromkeys(results.tasks.task.tolist()))
    scored = [run for run in results.runs if results.tasks.seeds(run)]
    rows = []
    for run in scored:
        cells = [run]
        for metric in (TASK_AVERAGE, *(f"task {name}" for name in names)):
            try:
                ends = [results.curve(run, s, metric)[1][-1] for s in results.tasks.seeds(run)]
            except ValueError:  # not all tasks of all runs have been measured
                cells.append("-")
                continue
            spread = f" ± {100 * np.std(ends, ddof=1):.2f}" if len(ends) > 1 else ""
            cells.append(f"{100 * np.mean(ends):.2f}{spread}")
        rows.append(cells)
    parts = [
        "## Downstream tasks, %",
        aligned(["run", "average", *names], rows),
        _how_measured(results.tasks),
    ]
    others = [run for run in scored if run != study.baseline]
    whole = all(row[1] != "-" for row in rows)
    if study.baseline in scored and others and whole:
        found = paired_differences(results, study.baseline, TASK_AVERAGE, runs=others)
        faster = tokens_to_target(results, study.baseline, TASK_AVERAGE, runs=others)
        parts += [markdown_table(found), markdown_table(faster)]
    return parts


def _how_measured(tasks: Tasks) -> str:
    """Shots and documents of each task, and the paper's tasks that were not measured."""
    parts = []
    for name in dict.fromkeys(tasks.task.tolist()):
        mine = tasks.rows(tasks.task == name)
        ways = {
            f"{metric}, {shots} shots, {n} documents ({source})"
            for metric, shots, n, source in zip(
                mine.metric.tolist(), mine.shots.tolist(), mine.n.tolist(), mine.source.tolist(),
                strict=True,
            )
        }  # fmt: skip
        parts.append(f"{name}: {' or '.join(sorted(ways))}")
    missing = [task.name for task in PAPER_TASKS if task.name not in tasks.task.tolist()]
    note = f" Of the paper's tasks, not measured: {', '.join(missing)}." if missing else ""
    return f"Measured by {'; '.join(parts)}.{note}"


def draw_study(study: Study, folder: str | os.PathLike[str], made_by: str = "") -> list[Path]:
    """Draw everything; returns the files."""
    from counterpoise.lm.compare import figures

    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    results, baseline = study.results, study.baseline
    main = next(iter(study.groups))
    runs = study.shown
    others = [run for run in runs if run != baseline]
    drawn: list[Path] = []

    def file(name: str) -> Path:
        drawn.append(path / f"{name}.png")
        return drawn[-1]

    common: dict[str, Any] = {"made_by": made_by}
    against = baseline if baseline in runs else None
    for metric in study.metrics:
        name = metric.replace(" ", "-")
        known = common | {"reference": study.references}
        if runs:
            path_of = file(f"curves-{name}")
            figures.draw_curves(results, metric, path_of, against, runs=runs, **known)
        if baseline in runs and others:
            figures.draw_differences(
                results, baseline, metric, file(f"differences-{name}"), runs=others, start=0.3,
                **known,
            )  # fmt: skip
        forest = {g: d for g in study.groups if g != main and (d := study.differences(metric, g))}
        if forest:
            label = f"{metric}: final loss minus that of the run in bold"
            figures.draw_forest(forest, file(f"ablations-{name}"), label=label, **common)
    scored = [run for run in runs if results.tasks.seeds(run)]
    if scored:
        path_of = file("curves-task-average")
        known = common | {"baseline": baseline if baseline in scored else None}
        figures.draw_curves(results, TASK_AVERAGE, path_of, runs=scored, **known)
    figures.draw_weights(results, runs or None, file("weights"), **common)
    if baseline in runs and others:
        figures.draw_domains(results, baseline, file("domains"), runs=others, **common)
    logger.info("%d figures in %s", len(drawn), path)
    return drawn
