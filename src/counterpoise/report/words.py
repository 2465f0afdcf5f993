"""Group labels and settings as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from counterpoise.rows.groups import label_list

Array = np.ndarray


def names_of(labels: Array) -> list[str]:
    """Group labels as text; an empty label becomes "(empty)"."""
    return [str(label) or "(empty)" for label in label_list(np.asarray(labels))]


def setting(value: Any) -> str:
    """An option as the user would write it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return setting(value.tolist())
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 300 else shown[:297] + "..."


def settings(table: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Flatten nested tables of settings.

    >>> settings({"train": {"seed": 0}, "out": "runs"})
    {'train.seed': '0', 'out': 'runs'}
    """
    out: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            out |= settings(value, f"{path}{key}.")
        else:
            out[f"{path}{key}"] = setting(value)
    return out
