"""Arguments that hold rows, before they become arrays: lazy data frames, and masks."""

from __future__ import annotations

from typing import Any

import numpy as np


def given(values: Any, name: str) -> Any:
    """Return the argument ``name`` with nothing left to evaluate and nothing hidden.

    A lazy data frame is collected; one column of it is a column, except for ``X``. Entries that a
    numpy mask hides are missing, so they are refused.
    """
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values, name)
    found = collected(values)
    if found is not values and name != "X" and len(found.columns) == 1:
        found = found[found.columns[0]]
    return found


def collected(X: Any) -> Any:
    """Collect a lazy data frame (polars, DuckDB, ...); return anything else unchanged."""
    if not hasattr(X, "collect"):
        return X
    import narwhals

    frame = narwhals.from_native(X, pass_through=True)
    return frame.collect().to_native() if isinstance(frame, narwhals.LazyFrame) else X


def _unmasked(values: np.ma.MaskedArray[Any, Any], name: str) -> Any:
    mask = np.ma.getmaskarray(values)
    if not mask.any():
        return values.data
    rows = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1)) if mask.ndim else [0]
    remedy = "give these rows a label" if name == "groups" else "impute"
    raise ValueError(
        f"{name} has masked (missing) values in {len(rows)} row(s), first in row {int(rows[0])}; "
        f"{remedy} or leave out these rows"
    )
