"""Thin long curves so that their chart looks the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray

# Most points of a curve, and most curves of a page.
POINTS, CURVES = 400, 40
# Curves that are shown at first.
SHOWN = 8
# Values with a larger ratio than this are drawn on a logarithmic axis.
WIDE = 50.0


def thin(values: Array, most: int = POINTS) -> Array:
    """Choose at most ``most`` indices: both ends, and the extremes of many stretches.

    Stretches are short at the beginning, where a run moves most.

    >>> thin(np.array([3.0, 1.0, 2.0])).tolist()
    [0, 1, 2]
    >>> spike = np.zeros(10_000); spike[1234] = 1.0
    >>> kept = thin(spike)
    >>> len(kept) <= 400, kept[0], kept[-1], 1234 in kept
    (True, np.int64(0), np.int64(9999), True)
    """
    if most < 8:
        raise ValueError(f"most must be at least 8; got {most!r}")
    values = np.asarray(values, dtype=float)
    n = len(values)
    if n <= most:
        return np.arange(n)
    parts = (most - 2) // 4  # of either kind; each gives two points
    steps = np.concatenate([np.geomspace(1, n, parts + 1), np.linspace(0, n, parts + 1)])
    edges = np.unique(np.append(np.floor(steps).astype(int), 0))
    low = np.where(np.isfinite(values), values, np.inf)
    high = np.where(np.isfinite(values), values, -np.inf)
    kept = [0, n - 1]
    for start, end in pairwise(edges.tolist()):
        kept += [start + int(np.argmin(low[start:end])), start + int(np.argmax(high[start:end]))]
    return np.unique(kept)


def curve(
    name: str, x: Array | Sequence[float], y: Array | Sequence[float], **style: Any
) -> dict[str, Any]:
    """One line of a chart of curves.

    ``style`` may name a colour, a dash and the checkbox that shows it (``pick``).
    """
    kept = thin(np.asarray(y, dtype=float))
    return {"name": name, "x": np.asarray(x)[kept], "y": np.asarray(y, dtype=float)[kept]} | style


def foremost(*scores: Array, most: int = CURVES) -> list[int]:
    """Choose the groups that rank highest by any of several scores, taken in turn.

    >>> foremost(np.array([0.1, 0.9, 0.0]), np.array([0.0, 0.0, 5.0]), most=2)
    [1, 2]
    """
    orders = [np.argsort(-np.nan_to_num(np.asarray(s, dtype=float)), kind="stable") for s in scores]
    turns = np.stack(orders, axis=1).ravel().tolist()
    return list(dict.fromkeys(turns))[:most]


def thinned(length: int, most: int = POINTS) -> str:
    """A sentence for the caption if curves of this length are thinned."""
    if length <= most:
        return ""
    return (
        f" Each curve has {length:,} points; at most {most} are drawn, the extremes of every "
        "stretch."
    )


def wide(values: Array) -> bool:
    """Whether values are positive and spread widely enough for a logarithmic axis."""
    known = values[np.isfinite(values)]
    return bool(known.size) and bool(known.min() > 0) and bool(known.max() > WIDE * known.min())
