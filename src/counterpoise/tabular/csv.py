"""CSV files as Arrow tables: types are inferred, labels stay as written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from counterpoise.tabular.errors import DataError, in_columns

DELIMITERS = (",", ";", "\t", "|")
# Bytes per block; a row must fit.
BLOCK = 1 << 23
# Bytes in which the first line must end.
HEAD = 1 << 20
# The line in which Excel names the delimiter.
SEPARATOR = re.compile(r'"?sep=(.)"?\r?(?:\n|$)', re.IGNORECASE)
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"


def read_csv(
    file: Path,
    text: Sequence[str],
    words: Sequence[str],
    delimiter: str | None,
    decimal: str,
    encoding: str,
) -> Any:
    """See :func:`counterpoise.tabular.open_table`."""
    head = _head(file, encoding)
    said = SEPARATOR.match(head)
    options = pacsv.ConvertOptions(
        column_types=dict.fromkeys((*text, *words), pa.string()),
        strings_can_be_null=False,  # decided below, column by column
        decimal_point=decimal,
    )
    if delimiter is None:
        tabs = "\t" if ".tsv" in file.suffixes else None
        delimiter = said[1] if said else tabs or sniffed(head)
    try:
        data = pacsv.read_csv(
            file,
            read_options=pacsv.ReadOptions(
                block_size=BLOCK, encoding=encoding, skip_rows=int(said is not None)
            ),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=options,
        )
        names = data.column_names  # decoded only now
    except (UnicodeError, pa.ArrowInvalid) as error:
        if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
            raise _foreign(file, encoding) from None
        raise
    if len(set(names)) < len(names):
        return data  # refused by the table
    foreign = [field.name for field in data.schema if pa.types.is_binary(field.type)]
    if foreign:
        raise _foreign(file, encoding, foreign)
    nulls = pa.array(options.null_values)
    for at, field in enumerate(data.schema):
        if pa.types.is_string(field.type):
            column = data.column(at)
            column = _labels(column) if field.name in text else _without(column, nulls)
            data = data.set_column(at, field.name, column)
    return data


def sniffed(head: str) -> str:
    """The most frequent delimiter of the first line, outside of quotes.

    >>> sniffed('"a,b,c";d;e\\n1;2,5;3\\n')
    ';'
    """
    counts = dict.fromkeys(DELIMITERS, 0)
    quoted = False
    for letter in head:
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "\r\n":
            if any(counts.values()):
                break
        elif not quoted and letter in counts:
            counts[letter] += 1
    return max(counts, key=lambda delimiter: counts[delimiter])


def known_encoding(encoding: str) -> str:
    """Arrow's name of an encoding."""
    try:
        found = codecs.lookup(encoding)
        "".encode(found.name)  # some codecs map bytes to bytes
    except (LookupError, ValueError):
        raise ValueError(
            f"encoding must be one that Python knows, such as utf-8, utf-16 or cp1252; "
            f"got {encoding!r}"
        ) from None
    return "utf8" if found.name in ("utf-8", "utf-8-sig") else found.name


def _head(file: Path, encoding: str) -> str:
    with pa.input_stream(str(file), compression="detect") as stream:
        head = stream.read(HEAD)
    if encoding == "utf8" and head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(
            f"{str(file)!r} is encoded in UTF-16; open it with encoding='utf-16', or save it as "
            "UTF-8",
            argument="encoding",
        )
    return head.decode(encoding, errors="replace").removeprefix("\ufeff")


def _foreign(file: Path, encoding: str, columns: Sequence[str] = ()) -> DataError:
    where = f" {in_columns(columns)}" if columns else ""
    name = "UTF-8" if encoding == "utf8" else encoding
    return DataError(
        f"{str(file)!r} has text that is not {name}{where}; give its encoding, for example "
        "encoding='cp1252' for many Excel exports, or save it as UTF-8",
        argument="encoding",
    )


def _without(column: Any, nulls: Any) -> Any:
    return pc.if_else(pc.is_in(column, value_set=nulls), pa.scalar(None, column.type), column)


def _labels(column: Any) -> Any:
    """Text as written, or integers if all of it is whole numbers."""
    column = _without(column, pa.array([""]))
    whole = pc.all(pc.match_substring_regex(column, WHOLE)).as_py()  # None if there is no value
    return pc.cast(column, pa.int64()) if whole else column
