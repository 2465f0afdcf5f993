"""Figures of a study.

A run keeps its colour in all figures of the same results; choose runs with ``runs=``. Paths end in
.png, .svg or .pdf.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoise.lm.compare.bands import Band, Curve, mean_curve, paired_curve, shared_tokens
from counterpoise.lm.compare.canvas import (
    GREY,
    MARKERS,
    begin_at,
    colour,
    dashes,
    fit_heights,
    grid_shape,
    label_ends,
    panels,
    saved_figure,
    settled_from,
    tokens_axis,
)
from counterpoise.lm.compare.estimates import values_at
from counterpoise.lm.compare.markdown import interval, shared_decimals
from counterpoise.lm.compare.results import Reference, Results
from counterpoise.lm.compare.scores import is_task
from counterpoise.lm.compare.summary import Difference, paired_differences

PathLike = str | os.PathLike[str]


def draw_curves(
    results: Results,
    metric: str,
    ax_or_path: Any,
    baseline: str | None = None,
    *,
    runs: Sequence[str] | None = None,
    reference: Reference | None = None,
    start: float | None = None,
    made_by: str = "",
) -> None:
    """Draw the mean over seeds against tokens, with a shaded 95 % interval for each run.

    Parameters
    ----------
    results : Results
    metric, reference
        See :meth:`Results.curve`.
    ax_or_path : matplotlib axes or path
    baseline : str, optional
        A run to draw thicker, with a dotted line at its final value.
    runs : sequence of str, optional
        Runs to draw; all by default.
    start : float, optional
        Share of training at which the figure begins. By default a quarter for losses, which fall
        before it by far more than rules differ, and 0 for scores of tasks, so that every scored
        checkpoint is shown. The figure says how many evaluations are cut off. Even after it, seeds
        may hide rules; see `draw_differences`.
    made_by : str
        The command, in small print below the figure and in the file.
    """
    if not hasattr(ax_or_path, "plot"):
        with saved_figure(ax_or_path, 8.0, 4.8, made_by) as fig:
            draw_curves(
                results, metric, fig.subplots(), baseline, runs=runs, reference=reference,
                start=start,
            )  # fmt: skip
        return
    if start is None:
        start = 0.0 if is_task(metric) else 0.25
    wanted = _wanted(results, runs)
    bands = {run: mean_curve(results, run, metric, reference=reference) for run in wanted}
    _draw_bands(ax_or_path, results, bands, start, baseline)
    begin_at(ax_or_path, start * max(band.tokens[-1] for band in bands.values()), _longest(bands))
    if baseline is not None:
        height = mean_curve(results, baseline, metric, reference=reference).mean[-1]
        ax_or_path.axhline(height, color=colour(results.runs, baseline), lw=0.8, ls=":", zorder=1)
    ax_or_path.set_ylabel(_title(metric))


def draw_differences(
    results: Results,
    baseline: str,
    metric: str,
    path: PathLike,
    *,
    runs: Sequence[str] | None = None,
    reference: Reference | None = None,
    start: float = 0.1,
    made_by: str = "",
) -> None:
    """Draw the paired difference from the baseline along tokens, with shaded 95 % intervals.

    It shows what `draw_curves` cannot if seeds differ by more than rules do. Arguments are the
    same, but ``start`` only fits the heights: the figure begins where all means stay within them,
    at the latest after this share of training, and says how many evaluations are cut off.
    """
    wanted = _wanted(results, runs, baseline)
    bands = {
        run: paired_curve(results, run, baseline, metric, reference=reference) for run in wanted
    }
    with saved_figure(path, 8.0, 4.8, made_by) as fig:
        ax = fig.subplots()
        ax.axhline(0.0, color="#444444", lw=1.0, zorder=1.5)
        _draw_bands(ax, results, bands, start)
        begin_at(
            ax, settled_from(ax, [(b.tokens, b.mean) for b in bands.values()]), _longest(bands)
        )
        ax.set_ylabel(f"{_title(metric)}\nminus {baseline}, seed by seed")


def draw_weights(
    results: Results,
    runs: Sequence[str] | None,
    path: PathLike,
    *,
    made_by: str = "",
) -> None:
    """Draw weights along tokens, a panel for each run and a colour for each domain.

    Thin lines are seeds, thick ones their mean. All runs are drawn if ``runs`` is None.
    """
    wanted = _wanted(results, runs)
    rows, columns = grid_shape(len(wanted))
    domains = results.domains
    with saved_figure(path, 1.6 + 2.4 * columns, 0.7 + 2.1 * rows, made_by) as fig:
        axes = panels(fig, wanted, "training tokens")
        for ax, run in zip(axes, wanted, strict=True):
            seeds = [results.matrix(run, seed, "weight") for seed in results.seeds(run)]
            for i, domain in enumerate(domains):
                style = {"color": colour(domains, domain), "ls": dashes(domains, domain)}
                curves: list[Curve] = [(tokens, weights[:, i]) for tokens, weights in seeds]
                for curve in curves if len(curves) > 1 else []:
                    ax.plot(*curve, lw=0.6, alpha=0.35, **style)
                tokens = shared_tokens(curves)
                mean = np.mean([values_at(tokens, *curve) for curve in curves], axis=0)
                ax.plot(tokens, mean, lw=1.8, label=domain, **style)
            tokens_axis(ax)
        for ax in axes[::columns]:
            ax.set_ylabel("weight")
        axes[0].set_ylim(bottom=0.0)
        lines = axes[0].get_legend_handles_labels()
        fig.legend(*lines, loc="outside right upper", frameon=False, title="domain")


def draw_domains(
    results: Results,
    baseline: str,
    path: PathLike,
    *,
    runs: Sequence[str] | None = None,
    made_by: str = "",
) -> None:
    """Draw each domain's final paired difference, and the average's, a panel for each run."""
    wanted = _wanted(results, runs, baseline)
    metrics = [*results.domains, "average"]
    found = {m: paired_differences(results, baseline, m, runs=wanted) for m in metrics}
    rows, columns = grid_shape(len(wanted))
    tall = 0.8 + 0.21 * len(metrics)
    with saved_figure(path, 1.2 + 2.3 * columns, 0.5 + tall * rows, made_by) as fig:
        axes = panels(fig, wanted, f"final loss minus {baseline}")
        for i, (ax, run) in enumerate(zip(axes, wanted, strict=True)):
            differences = [found[metric][i] for metric in metrics]
            _whiskers(ax, differences, range(len(metrics)), colour(results.runs, run))
            ax.axhline(len(metrics) - 1.5, color=GREY, lw=0.7)
        axes[0].set_yticks(range(len(metrics)), metrics)
        axes[0].set_ylim(len(metrics) - 0.4, -0.6)


def draw_forest(
    differences: Sequence[Difference] | Mapping[str, Sequence[Difference]],
    path: PathLike,
    *,
    label: str = "",
    made_by: str = "",
) -> None:
    """Draw paired differences of many runs in rows, with 95 % intervals and numbers.

    Parameters
    ----------
    differences : sequence, or mapping from headings to sequences
        From `paired_differences`; each heading may have a baseline of its own.
    path : path
    label : str
        Label of the axis; the metric and the baseline by default.
    made_by : str
        See `draw_curves`.
    """
    groups = differences if isinstance(differences, Mapping) else {"": differences}
    rows: list[Difference | str] = []
    for heading, members in groups.items():
        rows += [heading] * bool(heading) + list(members)
    found = [(i, row) for i, row in enumerate(rows) if isinstance(row, Difference)]
    if not found:
        raise ValueError("differences must hold at least one difference")
    first = found[0][1]
    many = any(d.baseline != first.baseline for _, d in found)
    named = all(len({d.baseline for d in members}) <= 1 for members in groups.values()) and all(
        groups
    )

    def name(row: Difference | str) -> str:
        if isinstance(row, str):
            return f"{row}: minus {groups[row][0].baseline}" if many and named else row
        return f"{row.run} vs {row.baseline}" if many and not named else row.run

    with saved_figure(path, 8.0, 0.9 + 0.27 * len(rows), made_by) as fig:
        ax = fig.subplots()
        ax.grid(axis="y", visible=False)
        _whiskers(ax, [d for _, d in found], [i for i, _ in found], "#0072B2")
        ax.set_yticks(range(len(rows)), [name(row) for row in rows])
        for row, tick in zip(rows, ax.get_yticklabels(), strict=True):
            if isinstance(row, str):
                tick.set_fontweight("bold")
        digits = shared_decimals([d for _, d in found])
        lines = [
            (i, f"{d.below} of {d.n}", interval(d.mean, d.low, d.high, digits)) for i, d in found
        ]
        several = any(d.n > 1 for _, d in found)
        title = "mean [95 % interval]" if several else "one seed"
        for i, *texts in [(-1, "below", title), *lines]:
            for text, points in zip(texts, (10, 48), strict=True):
                ax.annotate(
                    text, (1.0, i), (points, 0), xycoords=ax.get_yaxis_transform(), va="center",
                    textcoords="offset points", fontsize=8, color=GREY if i < 0 else "#222222",
                )  # fmt: skip
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel(
            label or f"{_title(first.metric)}, minus {'baseline' if many else first.baseline}"
        )


def _draw_bands(
    ax: Any, results: Results, bands: Mapping[str, Band], start: float, baseline: str | None = None
) -> None:
    ends = []
    faint = min(0.15, 0.7 / len(bands))  # many on top of each other still let the lines through
    for i, (run, band) in enumerate(bands.items()):
        shade, line = colour(results.runs, run), dashes(results.runs, run)
        ax.fill_between(band.tokens, band.low, band.high, color=shade, alpha=faint, lw=0)
        width = 2.4 if run == baseline else 1.5
        every = max(len(band.tokens) // 8, 1)
        ax.plot(
            band.tokens, band.mean, color=shade, lw=width, ls=line, ms=4, zorder=3,
            marker=MARKERS[results.runs.index(run) % len(MARKERS)],
            markevery=(i * every // len(bands), every),
        )  # fmt: skip
        ends.append((band.tokens[-1], band.mean[-1], run, shade))
    curves = [(b.tokens, bound) for b in bands.values() for bound in (b.mean, b.low, b.high)]
    fit_heights(ax, curves, start)
    ax.margins(x=0.0)
    ax.set_xlim(left=0.0)
    tokens_axis(ax)
    ax.set_xlabel("training tokens")
    label_ends(ax, ends)


def _longest(bands: Mapping[str, Band]) -> np.ndarray:
    """Return the tokens of the run with most evaluations."""
    return max((band.tokens for band in bands.values()), key=len)


def _whiskers(ax: Any, differences: Sequence[Difference], rows: Sequence[int], shade: str) -> None:
    """Draw a dot and an interval for each; the dot is filled if the interval excludes zero."""
    ax.axvline(0.0, color="#444444", lw=1.0, zorder=1.5)
    for row, d in zip(rows, differences, strict=True):
        ax.plot([d.low, d.high], [row, row], color=shade, lw=1.6, solid_capstyle="butt")
        clear = d.low > 0 or d.high < 0
        ax.plot(d.mean, row, "o", ms=5.5, color=shade, mfc=shade if clear else "white", mew=1.3)


def _wanted(results: Results, runs: Sequence[str] | None, baseline: str | None = None) -> list[str]:
    """List the runs to draw, in the order they are named, without the baseline."""
    wanted = [run for run in (results.runs if runs is None else runs) if run != baseline]
    for run in wanted:
        results.seeds(run)  # an unknown one is an error
    if not wanted:
        raise ValueError(f"runs must name at least one run besides {baseline!r}; got {runs!r}")
    return wanted


def _title(metric: str) -> str:
    """Describe a metric in words."""
    words = {
        "average": "loss, average over domains",
        "worst": "loss of the worst domain",
        "average excess": "excess loss, average over domains",
        "worst excess": "excess loss of the worst domain",
        "task average": "score, average over tasks",
    }
    return words.get(metric, metric if metric.startswith("task ") else f"loss on {metric}")
