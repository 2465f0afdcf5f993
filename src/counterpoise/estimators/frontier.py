"""The frontier: average risk against worst-group risk of all candidates."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.common.packages import not_installed
from counterpoise.common.text import text_table

Array = np.ndarray
# Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "oD^vPX*"  # one more than colours, so that pairs repeat late
# Places for a point's name: offsets in points, and how the text is aligned there.
PLACES = [
    (
        dx * far,
        dy * far,
        {-1: "right", 0: "center", 1: "left"}[dx],
        {-1: "top", 0: "center", 1: "bottom"}[dy],
    )
    for far in (12, 20, 32, 48)
    for dx, dy in ((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1))
]


@dataclass(frozen=True)
class Frontier:
    """Held-out average and worst-group risks of all candidates; prints as a table.

    Attributes
    ----------
    family : list of str
        "average", "plain", or the options that distinguish a candidate apart from ``nu``.
    nu, average, worst, error : arrays of shape (C,)
        Strength, held-out mean risk over rows, held-out risk of the worst group and its standard
        error.
    chosen : int
        Index of the chosen candidate.
    plain : int
        Index of the plain average over rows.
    measure : str
        What a risk is: "risk" for squared errors, "log loss", "error", ...
    """

    family: list[str]
    nu: Array
    average: Array
    worst: Array
    error: Array
    chosen: int
    plain: int = 0
    measure: str = "risk"

    @classmethod
    def of(
        cls, results: dict[str, Any], chosen: int, plain: int = 0, measure: str = "risk"
    ) -> Frontier:
        """Make the frontier from ``cv_results_``."""
        return cls(
            family=list(results["family"]),
            nu=results["nu"],
            average=results["average_risk"],
            worst=results["worst_group_risk"],
            error=results["standard_error"],
            chosen=chosen,
            plain=plain,
            measure=measure,
        )

    def __len__(self) -> int:
        return len(self.nu)

    def __str__(self) -> str:
        rows = [
            [
                f"{'*' if i == self.chosen else ' '} {family}",
                *(f"{column[i]:.4g}" for column in (self.nu, self.average, self.worst)),
                f"{self.error[i]:.2g}",
            ]
            for i, family in enumerate(self.family)
        ]
        head = ["  family", "nu", "average", "worst", "+-"]
        return text_table(head, rows, least=(0, 9, 9, 9, 8)) + "\n* chosen"

    def near(self) -> Array:
        """Mark the candidates to plot: at most twice the risks of the main ones."""
        matters = [i for i, name in enumerate(self.family) if name in ("average", "plain")]
        matters += [self.chosen, self.plain]
        ends = [2.0 * float(values[matters].max()) for values in (self.average, self.worst)]
        return (self.average <= ends[0]) & (self.worst <= ends[1])

    def plot(self, ax: Any = None, path: str | Path | None = None) -> Any:
        """Plot the worst group's loss against the average, one line per family. Needs matplotlib.

        The plain average and the chosen candidate have a name and an error bar: one standard error
        of the worst group's loss to either side.

        Parameters
        ----------
        ax : matplotlib axes, optional
            A new figure if None.
        path : str or path, optional
            File to save the figure to.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise not_installed("plotting needs", "matplotlib") from error
        if ax is None:
            ax = Figure(figsize=(7, 4.8), layout="constrained").subplots()
        near = self.near()
        hidden = self._draw_families(ax, near)
        main = list(dict.fromkeys((self.plain, self.chosen)))
        ax.errorbar(
            self.average[main], self.worst[main], yerr=self.error[main], fmt="none", capsize=4,
            ecolor="black", elinewidth=1.4, zorder=5, label="± standard error",
        )  # fmt: skip
        at = self.average[self.chosen], self.worst[self.chosen]
        ax.plot(*at, "o", ms=13, mfc="none", mec="black", mew=1.8, label="chosen", zorder=5)
        what = "mean squared error" if self.measure == "risk" else self.measure
        ax.set(xlabel=f"{what}, average over rows", ylabel=f"{what}, worst group")
        ax.set_title("Worst group against average, held out (lower is better)")
        low, high = float(self.worst[near].min()), float(self.worst[near].max())
        if low > 0 and high > 10 * low:
            ax.set_yscale("log")
        elif high >= 10_000:
            ax.yaxis.set_major_formatter("{x:,.0f}")
        if float(self.average[near].max()) >= 10_000:
            ax.xaxis.set_major_formatter("{x:,.0f}")
        few = int(np.sum(~near)) - sum(self.family.count(name) for name in hidden)
        hidden += [f"{few} more"] if few else []
        note = f"far worse, not shown: {'; '.join(hidden)}" if hidden else ""
        ax.legend(
            frameon=False, fontsize="small", title=textwrap.fill(note, 42) or None,
            title_fontsize="small", alignment="left", labelspacing=0.6,
        )  # fmt: skip
        ax.margins(0.08)
        names = {self.plain: "plain average", self.chosen: f"chosen: {self._chosen_name()}"}
        _name_points(ax, [(self.average[i], self.worst[i], names[i]) for i in main])
        if path is not None:
            ax.figure.savefig(path, dpi=150)
        return ax

    def _chosen_name(self) -> str:
        """Name the choice by its strength, or by its family if that has none."""
        if self.chosen == self.plain:
            return "the plain average"
        nu = float(self.nu[self.chosen])
        return f"nu = {nu:.3g}" if np.isfinite(nu) else self.family[self.chosen]

    def _draw_families(self, ax: Any, near: Array) -> list[str]:
        """Draw a line for each family that has candidates to plot; return the others' names."""
        hidden, looks = [], zip(cycle(COLOURS), cycle(MARKERS), strict=False)
        for name in dict.fromkeys(self.family):
            at = [i for i, family in enumerate(self.family) if family == name and near[i]]
            style = dict(marker="s", ms=8, linestyle="none", color="black", zorder=4)
            style |= {} if name == "average" else {"mfc": "white", "mew": 1.6}
            if not name.startswith("average"):
                colour, marker = next(looks)
                style = dict(marker=marker, ms=5, linewidth=1.5, color=colour)
            if at:
                ax.plot(self.average[at], self.worst[at], label=name, **style)
            else:
                hidden.append(name)
        return hidden


def _name_points(ax: Any, points: list[tuple[float, float, str]]) -> None:
    """Write names next to points, each at the first place that covers neither marks nor names."""
    figure = ax.figure.canvas.figure  # the whole, where the axes are in a part of a figure
    figure.draw_without_rendering()
    frame = ax.get_window_extent()
    legend = ax.get_legend()
    taken = [] if legend is None else [legend.get_window_extent()]
    marks = np.concatenate([_marks(ax, line) for line in ax.get_lines()])
    bars = [
        (low[0], *sorted((low[1], high[1])))
        for collection in ax.collections
        if hasattr(collection, "get_segments")
        for low, high in (ax.transData.transform(segment) for segment in collection.get_segments())
    ]
    pad = 3.0 * figure.dpi / 72

    def covers(box: Any) -> bool:
        wide = box.padded(pad)
        inside = (marks > [wide.x0, wide.y0]) & (marks < [wide.x1, wide.y1])
        crossed = any(
            wide.x0 < x < wide.x1 and low < wide.y1 and high > wide.y0 for x, low, high in bars
        )
        return bool(inside.all(axis=1).any()) or crossed or any(wide.overlaps(t) for t in taken)

    for x, y, name in points:
        text = ax.annotate(name, (x, y), (0, 0), textcoords="offset points", fontweight="bold")
        ranked = []
        for place, (dx, dy, across, up) in enumerate(PLACES):
            text.set(position=(dx, dy), ha=across, va=up)
            box = text.get_window_extent()
            outside = (
                box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
            )
            ranked.append((covers(box) + 2 * outside, place))
        dx, dy, across, up = PLACES[min(ranked)[1]]
        text.set(position=(dx, dy), ha=across, va=up)
        taken.append(text.get_window_extent())


def _marks(ax: Any, line: Any) -> Array:
    """Return the pixels of a line's points, and of some between those that it connects."""
    corners: Array = ax.transData.transform(np.asarray(line.get_xydata(), dtype=float))
    if line.get_linestyle() == "None":
        return corners
    along = np.linspace(0.0, 1.0, 33)[:, None]
    between = [(1 - along) * a + along * b for a, b in pairwise(corners)]
    return np.concatenate([corners, *between])
