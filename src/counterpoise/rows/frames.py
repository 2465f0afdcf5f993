"""Data frames that are not evaluated yet."""

from __future__ import annotations

from typing import Any


def collected(X: Any) -> Any:
    """Collect a lazy data frame (polars, DuckDB, ...); return anything else unchanged."""
    if not hasattr(X, "collect"):
        return X
    import narwhals

    frame = narwhals.from_native(X, pass_through=True)
    return frame.collect().to_native() if isinstance(frame, narwhals.LazyFrame) else X
