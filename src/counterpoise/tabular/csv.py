"""CSV files as Arrow tables: types are inferred, labels stay as written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from counterpoise.common.text import size
from counterpoise.tabular.bounded import Bounded
from counterpoise.tabular.errors import DataError, in_columns
from counterpoise.tabular.foreign import check_content

DELIMITERS = (",", ";", "\t", "|")
# Bytes per block; a row must fit.
BLOCK = 1 << 23
# Bytes of the blocks that Arrow may hold at once.
BLOCKS = 8 * BLOCK
# Bytes in which the first line must end.
HEAD = 1 << 20
# The line in which Excel names the delimiter.
SEPARATOR = re.compile(r'"?sep=(.)"?\r?(?:\n|$)', re.IGNORECASE)
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
# Codes: digits alone, and some of them with leading zeros.
DIGITS, ZEROS = r"^\s*[0-9]+\s*$", r"^\s*0[0-9]"
# Cells without a value.
NULLS = pacsv.ConvertOptions().null_values


def read_csv(
    file: Path,
    text: Sequence[str],
    words: Sequence[str],
    numbers: Sequence[str],
    delimiter: str | None,
    decimal: str,
    encoding: str,
) -> Any:
    """See :func:`counterpoise.tabular.open_table`."""
    head = _head(file, encoding)
    said = SEPARATOR.match(head)
    if delimiter is None:
        tabs = "\t" if ".tsv" in file.suffixes else None
        delimiter = said[1] if said else tabs or sniffed(head)
    options = {
        "read_options": pacsv.ReadOptions(
            block_size=BLOCK, encoding=encoding, skip_rows=int(said is not None)
        ),
        "parse_options": pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    }
    as_text = list(dict.fromkeys((*text, *words)))
    try:
        data = _read(file, as_text, decimal, options)
        if len(set(data.column_names)) == data.num_columns:
            codes = _codes(file, data, numbers, options)
            if codes:
                del data  # before the file is held a second time
                data = _read(file, [*as_text, *codes], decimal, options)
    except (UnicodeError, pa.ArrowInvalid) as error:
        if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
            raise _foreign(file, encoding) from None
        if "straddl" in str(error):
            raise DataError(
                f"{str(file)!r} has a row of more than {size(BLOCK)}; repair it (a quote may be "
                "missing), or give its delimiter"
            ) from None
        raise
    if len(set(data.column_names)) < data.num_columns:
        return data  # refused by the table
    foreign = [field.name for field in data.schema if pa.types.is_binary(field.type)]
    if foreign:
        raise _foreign(file, encoding, foreign)
    nulls = pa.array(NULLS)
    for at, field in enumerate(data.schema):
        if pa.types.is_string(field.type):
            column = data.column(at)
            column = _labels(column) if field.name in text else _without(column, nulls)
            data = data.set_column(at, field.name, column)
    return data


def _read(file: Path, as_text: Sequence[str], decimal: str, options: dict[str, Any]) -> Any:
    convert = pacsv.ConvertOptions(
        column_types=dict.fromkeys(as_text, pa.string()),
        strings_can_be_null=False,  # decided column by column
        decimal_point=decimal,
    )
    with Bounded(file, BLOCKS) as stream:
        data = pacsv.read_csv(stream, convert_options=convert, **options)
        stream.check()
    data.column_names  # noqa: B018  decoded only now
    return data


def _codes(file: Path, data: Any, numbers: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Columns of whole numbers of which some have leading zeros, so that they are codes."""
    maybe = [
        field.name
        for at, field in enumerate(data.schema)
        if field.name not in numbers and _may_be_codes(data.column(at))
    ]
    if not maybe:
        return []
    found, plain = dict.fromkeys(maybe, False), set(maybe)
    convert = pacsv.ConvertOptions(
        include_columns=maybe,
        column_types=dict.fromkeys(maybe, pa.string()),
        null_values=NULLS,
        strings_can_be_null=True,
    )
    with (
        Bounded(file, BLOCKS) as stream,
        pacsv.open_csv(stream, convert_options=convert, **options) as batches,
    ):
        for batch in batches:
            for name in list(plain):
                column = batch.column(name)
                if pc.all(pc.match_substring_regex(column, DIGITS)).as_py() is False:
                    plain.discard(name)
                elif not found[name]:
                    zeros = pc.any(pc.match_substring_regex(column, ZEROS)).as_py()
                    found[name] = bool(zeros)
    return [name for name in maybe if name in plain and found[name]]


def _may_be_codes(column: Any) -> bool:
    """Whether the numbers are whole; long codes are read as floats."""
    if pa.types.is_integer(column.type):
        return True
    if not pa.types.is_floating(column.type) or not len(column):
        return False
    return (pc.max(column).as_py() or 0.0) >= 2.0**63


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


def _head(file: Path, encoding: str) -> str:
    with pa.input_stream(str(file), compression="detect") as stream:
        head = stream.read(HEAD)
    check_content(file, head)
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
