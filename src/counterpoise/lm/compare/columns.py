"""Tables of named columns as CSV: the same bytes for the same table, checked when read."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
# Type of a column: str, int or float. In a file, an empty cell is an unknown float.
Kinds = Mapping[str, type]

DIGITS = 6


def as_columns(kinds: Kinds, values: Mapping[str, Any]) -> dict[str, Array]:
    """Convert columns to arrays of these kinds and of one length."""
    columns = {name: _as_array(name, values[name], kind) for name, kind in kinds.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have one length; got {lengths!r}")
    return columns


def csv_text(kinds: Kinds, columns: Mapping[str, Array]) -> str:
    """Write a line of names and a line for each row; numbers with six significant digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kinds)
    cells = [
        [_cell(value) for value in columns[name].tolist()] if kind is float else columns[name]
        for name, kind in kinds.items()
    ]
    writer.writerows(zip(*cells, strict=True))
    return text.getvalue()


def read_csv(path: Path, kinds: Kinds) -> dict[str, Array]:
    """Read what `csv_text` wrote; columns may be in another order."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; write it with write_results")
    found: dict[str, list[Any]] = {name: [] for name in kinds}
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            head = next(reader, [])
            if sorted(head) != sorted(kinds):
                raise ValueError(f"the columns must be {', '.join(kinds)}; got {', '.join(head)}")
            for row in reader:
                if len(row) != len(head):
                    raise ValueError(f"{len(head)} cells are needed; got {len(row)}")
                for name, cell in zip(head, row, strict=True):
                    found[name].append(_value(name, cell, kinds[name]))
        except (ValueError, csv.Error) as error:
            line = max(reader.line_num, 1)
            raise ValueError(f"{str(path)!r}, line {line}: {error}") from None
    return as_columns(kinds, found)


def _as_array(name: str, values: Any, kind: type) -> Array:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension; got shape {array.shape}")
    if not len(array):
        return np.empty(0, dtype=kind)
    if kind is str and (array.dtype.kind == "U" or all(isinstance(v, str) for v in array)):
        return array.astype(str)
    if kind is int and array.dtype.kind in "iu":
        return array.astype(np.int64)
    if kind is float and array.dtype.kind in "iuf":
        return array.astype(np.float64)
    raise TypeError(f"column {name!r} must hold {kind.__name__} values; got {array[:3].tolist()!r}")


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.{DIGITS}g}"


def _value(name: str, cell: str, kind: type) -> Any:
    if kind is float and not cell:
        return float("nan")
    try:
        if not cell:
            raise ValueError
        return kind(cell)
    except ValueError:
        needed = {str: "a name", int: "a whole number", float: "a number or nothing"}[kind]
        raise ValueError(f"{name} must be {needed}; got {cell!r}") from None
