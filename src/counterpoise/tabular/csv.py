"""CSV files as Arrow tables: types are inferred, labels stay as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from counterpoise.tabular.errors import DataError, listed

DELIMITERS = (",", ";", "\t", "|")
# Bytes read together; one row must fit.
BLOCK = 1 << 23
# How much of a file is looked at for its first line.
HEAD = 1 << 20
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"


def read_csv(
    file: Path, text: Sequence[str], words: Sequence[str], delimiter: str | None, decimal: str
) -> Any:
    """See :func:`counterpoise.tabular.open_table`."""
    head = _head(file)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{str(file)!r} is written in UTF-16; save it as UTF-8")
    options = pacsv.ConvertOptions(
        column_types=dict.fromkeys((*text, *words), pa.string()),
        strings_can_be_null=False,  # told below, for each column by itself
        decimal_point=decimal,
    )
    if delimiter is None:
        delimiter = "\t" if ".tsv" in file.suffixes else sniffed(head)
    data = pacsv.read_csv(
        file,
        read_options=pacsv.ReadOptions(block_size=BLOCK),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=options,
    )
    if len(set(data.column_names)) < data.num_columns:
        return data  # refused by the table
    foreign = [field.name for field in data.schema if pa.types.is_binary(field.type)]
    if foreign:
        raise DataError(
            f"{str(file)!r} has text that is not UTF-8 in the columns {listed(foreign)}; save it "
            "as UTF-8"
        )
    nulls = pa.array(options.null_values)
    for at, field in enumerate(data.schema):
        if pa.types.is_string(field.type):
            column = data.column(at)
            column = _labels(column) if field.name in text else _without(column, nulls)
            data = data.set_column(at, field.name, column)
    return data


def sniffed(head: bytes) -> str:
    """The delimiter that the first line has most, outside of quotes.

    >>> sniffed(b'"a,b,c";d;e\\n1;2,5;3\\n')
    ';'
    """
    counts = dict.fromkeys(DELIMITERS, 0)
    quoted = False
    for letter in head.decode("utf-8", errors="replace"):
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "\r\n":
            if any(counts.values()):
                break
        elif not quoted and letter in counts:
            counts[letter] += 1
    return max(counts, key=lambda delimiter: counts[delimiter])


def _head(file: Path) -> bytes:
    with pa.input_stream(str(file), compression="detect") as stream:
        return stream.read(HEAD)


def _without(column: Any, nulls: Any) -> Any:
    return pc.if_else(pc.is_in(column, value_set=nulls), pa.scalar(None, column.type), column)


def _labels(column: Any) -> Any:
    """Text as it is written, or integers if it is nothing else."""
    column = _without(column, pa.array([""]))
    whole = pc.all(pc.match_substring_regex(column, WHOLE)).as_py()  # None if there is no value
    return pc.cast(column, pa.int64()) if whole else column
