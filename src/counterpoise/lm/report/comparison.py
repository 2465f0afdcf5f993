"""The page about a comparison of training runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from counterpoise.common.text import count, figure, listed
from counterpoise.lm.compare.bands import mean_curve
from counterpoise.lm.compare.scores import TASK_AVERAGE
from counterpoise.lm.compare.study import Study, load_study
from counterpoise.lm.compare.summary import Difference, final_spreads
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import CURVES, SHOWN, thin
from counterpoise.report.page import Page
from counterpoise.report.words import settings

UNIT = "nats per token"
# What is measured, for readers.
NAMES = {
    "average": "average over domains",
    "worst": "worst domain",
    "worst excess": "worst excess over the reference",
}


def study_page(folder: str | os.PathLike[str]) -> str:
    """Build the page about a comparison: one HTML file that needs nothing else.

    Parameters
    ----------
    folder : path
        The results of ``counterpoise lm compare`` (``losses.csv``, ``study.json``).

    Returns
    -------
    str
        The text of the file.
    """
    study = load_study(folder)
    found = {metric: _ends(study, metric) for metric in study.metrics}
    return Page(
        kind="comparison",
        title=_title(found["worst"]),
        subject=f"Comparison of {_runs(study)}",
        lead=_lead(study),
        figures=[_best(metric, ends) for metric, ends in found.items()],
        sections=[
            _curves(study),
            _differences(study),
            _domains(study),
            *([_tasks(study)] if len(study.results.tasks) else []),
            _repeat(study),
        ],
    ).html()


def _title(ends: dict[str, float]) -> str:
    """Which run does best for its worst domain."""
    run = min(ends, key=lambda name: ends[name])
    return f"Lowest loss in the worst domain: {run}, {figure(ends[run])} {UNIT}"


def _runs(study: Study) -> str:
    results = study.results
    return f"{count(len(results.runs), 'run')} on {count(len(results.domains), 'domain')}"


def _lead(study: Study) -> list[str]:
    """Which runs end lower or higher than the baseline, for each metric."""
    first = next(iter(study.groups))
    against = study.groups[first]["against"]
    seeds = sorted({len(study.results.seeds(run)) for run in study.results.runs})
    differences = {metric: study.differences(metric, first) for metric in study.metrics}
    if seeds == [1]:
        head = (
            f"Final losses compared with {against}, one seed each. One seed gives no interval: "
            "these differences may be chance."
        )
        said = [_one_seed(metric, found) for metric, found in differences.items()]
    else:
        head = (
            f"Final losses compared with {against}: paired differences over "
            f"{' or '.join(map(str, seeds))} seeds, with 95% intervals."
        )
        said = [_many_seeds(metric, found) for metric, found in differences.items()]
    return [" ".join([head, *said])]


def _one_seed(metric: str, found: Sequence[Difference]) -> str:
    lowest = sorted(found, key=lambda d: d.mean)
    return f"{_capital(metric)} loss: {listed([f'{d.run} {d.mean:+.4f}' for d in lowest], most=8)}."


def _many_seeds(metric: str, found: Sequence[Difference]) -> str:
    lower = listed([d.run for d in found if d.high < 0], most=8)
    higher = listed([d.run for d in found if d.low > 0], most=8)
    if not (lower or higher):
        return f"{_capital(metric)} loss: no run differs clearly."
    parts = [f"lower for {lower}"] if lower else []
    parts += [f"higher for {higher}"] if higher else []
    return f"{_capital(metric)} loss: {'; '.join(parts)}."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _ends(study: Study, metric: str) -> dict[str, float]:
    """Final values of the runs' mean curves."""
    return {
        run: float(mean_curve(study.results, run, metric, reference=study.references).mean[-1])
        for run in study.results.runs
    }


def _best(metric: str, ends: dict[str, float]) -> Block:
    run = min(ends, key=lambda name: ends[name])
    return b.key_figure(
        f"Lowest loss, {NAMES.get(metric, metric)}",
        figure(ends[run]),
        f"{UNIT}; {run}, best of {count(len(ends), 'run')}",
    )


def _curves(study: Study) -> Block:
    """Means over seeds, by tokens."""
    results = study.results
    runs = [*study.shown, *(run for run in results.runs if run not in study.shown)][:CURVES]
    parts = [b.choice("runs", "run", runs, range(min(len(study.shown), SHOWN)))]
    for metric in [*study.metrics, *([TASK_AVERAGE] if len(results.tasks) else [])]:
        series = [_band(study, run, metric, k) for k, run in enumerate(runs)]
        task = metric == TASK_AVERAGE
        what = "score" if task else f"loss, {UNIT}"
        parts.append(
            b.chart(
                f"curves-{metric.replace(' ', '-')}",
                "curves",
                f"{_capital(metric)}{'' if task else ' loss'}",
                f"{count(len(runs), 'run')}, mean over seeds.",
                "Mean over seeds; bands are 95% intervals of the mean.",
                x="tokens",
                y=what,
                choice="runs",
                series=[one for one in series if one],
            )
        )
    return b.section("curves", "Losses during training", *parts)


def _band(study: Study, run: str, metric: str, pick: int) -> dict[str, Any] | None:
    try:
        band = mean_curve(study.results, run, metric, reference=study.references)
    except ValueError:  # some tasks of some runs were not measured
        return None
    kept = thin(band.mean)
    known: dict[str, Any] = {"name": run, "pick": pick, "x": band.tokens[kept]}
    known["y"] = band.mean[kept]
    if np.isfinite(band.low).all() and np.isfinite(band.high).all():
        known |= {"low": band.low[kept], "high": band.high[kept]}
    return known


def _differences(study: Study) -> Block:
    """Final differences from the baseline, seed by seed."""
    columns = [
        ("Run", "text"),
        ("Baseline", "text"),
        ("Metric", "text"),
        ("Difference", "interval"),
    ]
    columns += [("Seeds below", "text"), ("p (Holm)", "number")]
    rows = []
    for group in study.groups:
        for metric in study.metrics:
            rows += [_row(d) for d in study.differences(metric, group)]
    table = b.table(
        "difference-table",
        f"Final loss minus the baseline's, in {UNIT}, paired by seed, with 95% intervals. Negative "
        "is better.",
        columns,
        rows,
        search=True,
    )
    return b.section("differences", "Differences at the end", table)


def _row(d: Difference) -> list[Any]:
    return [d.run, d.baseline, d.metric, [d.mean, d.low, d.high], f"{d.below} of {d.n}", d.p_holm]


def _domains(study: Study) -> Block:
    """Final losses, weights and epochs by domain."""
    results = study.results
    parts = []
    for column, kind in (("loss", "number"), ("weight", "share"), ("epochs", "number")):
        spreads = {(s.run, s.domain): s.mean for s in final_spreads(results, column)}
        rows = [[run, *(spreads[run, d] for d in results.domains)] for run in results.runs]
        unit = f", in {UNIT}" if column == "loss" else ""
        caption = f"Final {column} of each domain{unit}; means over seeds."
        columns = [("Run", "text"), *((domain, kind) for domain in results.domains)]
        parts.append(b.table(f"{column}-table", caption, columns, rows, search=True))
    return b.section("domains", "By domain", *parts)


def _tasks(study: Study) -> Block:
    tasks = study.results.tasks
    names = list(dict.fromkeys(tasks.task.tolist()))
    rows = []
    for run in study.results.runs:
        mine = tasks.rows(tasks.run == run)
        if not len(mine):
            continue
        last = mine.rows(mine.tokens == mine.tokens.max())
        means = [last.score[last.task == n].mean() if n in last.task else np.nan for n in names]
        rows.append([run, *means])
    columns = [("Run", "text"), *((name, "share") for name in names)]
    caption = "Scores at the last measured checkpoint; means over seeds."
    return b.section("tasks", "Tasks", b.table("task-table", caption, columns, rows))


def _repeat(study: Study) -> Block:
    about = study.about
    return b.section(
        "repeat",
        "How to repeat it",
        b.code(about.get("command") or "counterpoise lm compare CONFIG"),
        b.fold("Settings", b.facts(settings(about.get("settings", {})).items())),
    )
