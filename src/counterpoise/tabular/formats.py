"""Open files as tables: the format, and errors that name the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from counterpoise.common.text import one_line
from counterpoise.tabular.bounded import budget
from counterpoise.tabular.csv import read_csv
from counterpoise.tabular.errors import DataError, no_memory
from counterpoise.tabular.parquet_folders import parquet_in
from counterpoise.tabular.requests import check_file
from counterpoise.tabular.table import HeldTable, ParquetTable, Table


def open_table(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    text: Sequence[str] = (),
    words: Sequence[str] = (),
    numbers: Sequence[str] = (),
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
) -> Table:
    """Open the table in a file.

    Parameters
    ----------
    path : path
        A CSV file (``.csv``, ``.tsv``, ``.txt``, also with ``.gz``, ``.bz2``, ``.zst`` or
        ``.lz4``), a Parquet file or a folder of ``*.parquet``, an Arrow file or stream
        (``.arrow``, ``.feather``, ``.ipc``), or an ``.npz`` file of numpy arrays. If a folder has
        its Parquet files in sub-folders ``column=value``, these are columns, too.
    format : {"csv", "parquet", "arrow", "npz"}, optional
        By default, the format of the suffix.
    text : list of str
        Columns of a CSV file to read exactly as written: ``NA`` and ``01`` are labels, and only an
        empty cell is missing. A column of whole numbers becomes integers. Names that the file does
        not have are ignored.
    words : list of str
        Columns of a CSV file to read as text in which ``NA`` and the like are missing.
    numbers : list of str
        Columns of a CSV file whose leading zeros mean nothing. Whole numbers of which one has
        leading zeros, such as 00123, are otherwise codes and read as text.
    delimiter : str, optional
        Delimiter of a CSV file. By default, the most frequent one in its first line among comma,
        semicolon, tab and bar, or that of a line such as ``sep=;`` before it.
    decimal : str
        The decimal mark of a CSV file.
    encoding : str
        Encoding of a CSV file: "utf-8", "utf-16", "cp1252", ...

    Returns
    -------
    Table
        Parquet is read in batches when the rows are needed; other formats are read at once.
    """
    file, kind, known = check_file(
        path, format=format, delimiter=delimiter, decimal=decimal, encoding=encoding
    )
    if kind == "parquet":
        return ParquetTable.of(file, parquet_in(file) if file.is_dir() else [file])
    with reading(file, kind):
        if kind == "csv":
            data = read_csv(file, text, words, numbers, delimiter, decimal, known)
            return HeldTable.of(data, file, kind)
        if kind == "npz":
            from counterpoise.tabular.npz import read_npz

            return HeldTable.of(read_npz(file), file, kind)
        return HeldTable.of(_read_arrow(file), file, kind)


@contextmanager
def reading(file: Path, kind: str) -> Iterator[None]:
    """Turn whatever is wrong with a file into an error that names it."""
    try:
        yield
    except (DataError, FileNotFoundError, PermissionError):
        raise
    except MemoryError:  # Arrow's is also one of its exceptions
        raise no_memory(file) from None
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        name = {"csv": "a CSV", "arrow": "an Arrow", "npz": "an .npz"}[kind]
        raise DataError(
            f"{str(file)!r} cannot be read as {name} file ({one_line(error)}); repair it or write "
            "it again, or give its format if it has another",
            argument="format",
        ) from None


def _read_arrow(file: Path) -> Any:
    data = _mapped(file)
    data.validate(full=True)  # a damaged offset would read any memory
    return data


def _mapped(file: Path) -> Any:
    source = pa.memory_map(str(file))
    try:
        reader = pa.ipc.open_file(source)
        return _held(reader, map(reader.get_batch, range(reader.num_record_batches)))
    except pa.ArrowInvalid as error:
        source.seek(0)
        try:
            reader = pa.ipc.open_stream(source)
            return _held(reader, reader)
        except pa.ArrowException as other:
            if isinstance(other, MemoryError):
                raise
            raise error from None


def _held(reader: Any, batches: Iterable[Any]) -> Any:
    """All batches, if they fit in memory; compressed ones may be small in the file."""
    most, found = pa.total_allocated_bytes() + budget(), []
    for batch in batches:
        found.append(batch)
        if pa.total_allocated_bytes() > most:
            raise MemoryError
    return pa.Table.from_batches(found, schema=reader.schema)
