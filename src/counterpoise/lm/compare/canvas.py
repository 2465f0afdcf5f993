"""The look of all figures: colours, labels, axes and files."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.common.packages import not_installed
from counterpoise.common.text import short
from counterpoise.storage.files import write_bytes

Array = np.ndarray
# Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow. When they
# repeat, the dashes change.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.5, 1.5)))
MARKERS = "osDv^PXh"
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#222222",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "font.size": 9,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a dollar is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "counterpoise",
}
DPI = 150
GREY = "#8c8c8c"
DARK_GREY = "#555555"  # for words to be read
# Where each format stores the command that made a figure. No dates, so that the same results give
# the same bytes.
METADATA: dict[str, tuple[str, dict[str, Any]]] = {
    ".png": ("Description", {}),
    ".svg": ("Description", {"Date": None}),
    ".pdf": ("Subject", {"CreationDate": None}),
}


def colour(names: Sequence[str], name: str) -> str:
    """Choose a colour by the position among all names, so that it is the same in every figure."""
    return COLOURS[list(names).index(name) % len(COLOURS)]


def dashes(names: Sequence[str], name: str) -> Any:
    return DASHES[list(names).index(name) // len(COLOURS) % len(DASHES)]


@contextmanager
def saved_figure(path: Any, width: float, height: float, made_by: str) -> Iterator[Any]:
    """Open a figure that is saved when all is drawn, whole or not at all."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise not_installed("figures need", "matplotlib") from error
    path = Path(path)
    if path.suffix not in METADATA:
        raise ValueError(f"path must end in one of {', '.join(METADATA)}; got {str(path)!r}")
    with matplotlib.rc_context(STYLE):
        fig = Figure(figsize=(width, height), layout="constrained")
        yield fig
        key, metadata = METADATA[path.suffix]
        if made_by:
            # a last line below all axes, for which the layout leaves room
            small_print = textwrap.fill(made_by, int(20 * width))
            fig.supxlabel(small_print, x=0.004, ha="left", fontsize=5.5, color=GREY)
            metadata = metadata | {key: made_by}
        drawn = io.BytesIO()
        fig.savefig(drawn, format=path.suffix[1:], dpi=DPI, metadata=metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, drawn.getvalue())


def grid_shape(panels: int) -> tuple[int, int]:
    """Choose rows and columns of a grid that leaves few panels empty.

    >>> grid_shape(3), grid_shape(5), grid_shape(7)
    ((1, 3), (2, 3), (2, 4))
    """
    if panels <= 4:
        return 1, panels
    columns = min((4, 3), key=lambda n: -panels % n)
    return -(-panels // columns), columns


def panels(fig: Any, titles: Sequence[str], label: str) -> list[Any]:
    """Make axes of one scale, a panel for each title, row by row."""
    rows, columns = grid_shape(len(titles))
    grid = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes = list(grid.flat)
    for ax, title in zip(axes, titles, strict=False):
        ax.set_title(title)
    for ax in axes[len(titles) :]:
        ax.set_axis_off()
    for ax in axes[len(titles) - columns : len(titles)]:  # those with none below them
        ax.xaxis.set_tick_params(labelbottom=True)
    for ax in axes[(rows - 1) * columns : len(titles)]:
        ax.set_xlabel(label)
    return axes[: len(titles)]


def tokens_axis(ax: Any) -> None:
    ax.xaxis.set_major_formatter(lambda value, _: short(value))


def fit_heights(ax: Any, curves: Sequence[tuple[Array, Array]], start: float) -> None:
    """Fit the y axis to what comes after a share ``start`` of the tokens.

    Before that, losses fall by more than rules ever differ.
    """
    end = max(float(tokens[-1]) for tokens, _ in curves)
    late = np.concatenate([values[tokens >= start * end] for tokens, values in curves])
    late = late[np.isfinite(late)]
    if len(late):
        low, high = float(late.min()), float(late.max())
        room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        ax.set_ylim(low - room, high + room)


def settled_from(ax: Any, curves: Sequence[tuple[Array, Array]]) -> float:
    """Find the first tokens from which on all curves stay within the heights shown; 0 if always."""
    low, high = ax.get_ylim()
    begin = 0.0
    for tokens, values in curves:
        off = np.flatnonzero((values < low) | (values > high))
        if len(off):
            begin = max(begin, float(tokens[min(off[-1] + 1, len(tokens) - 1)]))
    return begin


def begin_at(ax: Any, begin: float, tokens: Array) -> None:
    """Begin the x axis at these tokens, and write above it how many evaluations are cut off."""
    ax.set_xlim(left=begin)
    cut = int(np.sum(tokens < begin))
    if cut:
        note = (
            f"not shown: the first {cut} of {len(tokens)} evaluations, before {short(begin)} tokens"
        )
        ax.set_title(note, loc="right", fontsize=8.5, fontweight="normal", color=DARK_GREY)


def label_ends(ax: Any, ends: Sequence[tuple[float, float, str, str]], size: float = 8.5) -> None:
    """Write names to the right of where lines end, apart from each other.

    A thin line connects those that moved. ``ends`` holds x, y, name and colour of each.
    """
    height = ax.get_window_extent().height / ax.figure.dpi * 72
    bottom, top = ax.get_ylim()
    wanted = np.array([(y - bottom) / (top - bottom) for _, y, _, _ in ends])
    order = [i for i in np.argsort(wanted, kind="stable") if np.isfinite(wanted[i])]
    # the figure shrinks a little when its labels are laid out
    heights = spread_out(np.clip(wanted[order], 0.0, 1.0), 1.4 * size / height, 0.02, 1.0)
    for i, spot in zip(order, heights, strict=True):
        x, y, name, shade = ends[i]
        ax.annotate(
            name, (x, np.clip(y, bottom, top)), (1.03, spot), xycoords="data",
            textcoords="axes fraction", color=shade, fontsize=size, va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": shade, "lw": 0.6, "alpha": 0.6, "shrinkA": 1,
                        "shrinkB": 1, "relpos": (0.0, 0.5)},
        )  # fmt: skip


def spread_out(wanted: Array, gap: float, low: float, high: float) -> Array:
    """Spread positions at least ``gap`` apart, within bounds, near the wanted ones.

    Least squares, which pools neighbours that are too near. The wanted positions must increase. If
    the bounds leave too little room, the gaps shrink.
    """
    n = len(wanted)
    gap = min(gap, (high - low) / max(n - 1, 1))
    blocks: list[tuple[float, int]] = []  # sums of heights less their gaps, and how many
    for i, position in enumerate(wanted):
        total, count = float(position) - i * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    pooled = np.array([total / count for total, count in blocks for _ in range(count)])
    return np.clip(pooled, low, high - (n - 1) * gap) + gap * np.arange(n)
