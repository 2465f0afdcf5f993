"""What the studies share when they are done: JSON, tables, pictures, slopes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray

# Okabe and Ito's colours, told apart by colour-blind readers too; markers tell them apart again.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999")
MARKERS = "os^vDPX*"


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "axes.titlesize": 10}
    )
    return plt


def save_figure(fig: Any, path: Path) -> None:
    """Write a PNG of 128 colours: half the size, and no line looks different."""
    from PIL import Image

    drawn = io.BytesIO()
    fig.savefig(drawn, dpi=130, bbox_inches="tight")
    pyplot().close(fig)
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)


def plain_numbers(value: Any) -> Any:
    """NumPy's numbers as Python's; what is not finite as a word, since JSON has none for it."""
    if isinstance(value, dict):
        return {str(k): plain_numbers(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain_numbers(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if np.isfinite(value) else str(float(value))
    return value


def write_json(value: Any, path: Path) -> None:
    path.write_text(json.dumps(plain_numbers(value), indent=1) + "\n")


def number(value: Any) -> str:
    """Three digits, or the word."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return f"{value:.3g}" if np.isfinite(value) else "infinite"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(number, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent ``p`` of ``y ~ x^p`` by least squares on logarithms; NaN without two points."""
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    good = (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)
    if len(np.unique(a[good])) < 2:
        return float("nan")
    return float(np.polyfit(np.log(a[good]), np.log(b[good]), 1)[0])


def settled(risks: Array, limit: float, tolerance: float) -> float:
    """The first iteration (from 1) after which the risk stays within ``tolerance`` of ``limit``,
    as a share of it; infinite if it does not."""
    outside = np.flatnonzero(~(np.abs(np.asarray(risks) - limit) <= tolerance * abs(limit)))
    last = int(outside[-1]) + 1 if len(outside) else 0
    return float(last + 1) if last < len(risks) else float("inf")
