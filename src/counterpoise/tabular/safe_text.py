"""Text of a stranger's table without what terminals obey and spreadsheets run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from counterpoise.common.text import harmless
from counterpoise.tabular.cells import WORD, kind_of

# First characters of a cell that spreadsheets take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def shown(batch: Any) -> Any:
    """The rows of a batch, with control characters in names and text written as escapes."""
    return _changed(batch, harmless)


def protected(batch: Any) -> Any:
    """The same for a spreadsheet, with an apostrophe before text that begins like a formula.

    Numbers stay numbers.
    """
    return _changed(batch, lambda text: harmless(f"'{text}" if _runs(text) else text))


def _runs(text: str) -> bool:
    return text.lstrip(" ").startswith(FORMULA)


def _changed(batch: Any, change: Callable[[str], str]) -> Any:
    columns = [
        _column(column, change) if kind_of(column.type) == WORD else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=[change(name) for name in batch.schema.names])


def _column(column: Any, change: Callable[[str], str]) -> Any:
    """Text, or a dictionary of anything, as changed text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind_of(column.type) != WORD:
        return column
    found = column.cast(pa.large_string()).dictionary_encode()
    values = pa.array([change(value) for value in found.dictionary.to_pylist()], pa.large_string())
    return values.take(found.indices)
