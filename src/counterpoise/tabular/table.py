"""Tables: named columns that can be read repeatedly in batches of rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa

from counterpoise.common.text import one_line
from counterpoise.rows.sources import open_parquet, parquet_schema
from counterpoise.storage.files import probed
from counterpoise.tabular.errors import (
    DataError,
    check_names,
    in_columns,
    listed,
    no_memory,
)
from counterpoise.tabular.parquet_folders import parts_of

# Rows per batch, by default.
ROWS = 1 << 16


@dataclass(frozen=True)
class Table:
    """Named columns.

    Attributes
    ----------
    path : Path or None
        As given; None for columns in memory.
    format : str, "csv", "parquet", "arrow", "npz" or "memory"
    schema : pyarrow.Schema
    n_rows : int
    files : tuple of Path
    """

    path: Path | None
    format: str
    schema: Any
    n_rows: int
    files: tuple[Path, ...]

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.schema.names).items() if count > 1]
        if twice:
            raise DataError(
                f"{self.where} has several columns called {listed(twice)}; give each its own name"
            )
        if not self.n_rows:
            raise DataError(f"{self.where} has no rows; give a table with at least one")

    @property
    def where(self) -> str:
        """What messages call the table."""
        return "the table" if self.path is None else repr(str(self.path))

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    @property
    def types(self) -> dict[str, str]:
        """The Arrow type of every column."""
        return {field.name: str(field.type) for field in self.schema}

    @cached_property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.files)

    @cached_property
    def digest(self) -> str:
        """Identifies the content of the files; empty for a table in memory."""
        return probed(self.files) if self.files else ""

    def batches(self, columns: Sequence[str] | None = None, rows: int = ROWS) -> Iterator[Any]:
        """Yield the rows in order, as record batches with these columns."""
        wanted = self.names if columns is None else list(dict.fromkeys(columns))
        check_names(wanted, self.names, self.where)
        return self._batches(wanted, rows)

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True)
class HeldTable(Table):
    """Columns in memory, or memory-mapped."""

    data: Any

    @classmethod
    def of(cls, data: Any, path: Path | None = None, format: str = "memory") -> HeldTable:
        files = () if path is None else (path,)
        return cls(path, format, data.schema, data.num_rows, files, data)

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        data = self.data.select(columns)
        for start in range(0, self.n_rows, rows):
            part = data.slice(start, rows)
            arrays = [_joined(part.column(name)) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)


@dataclass(frozen=True)
class ParquetTable(Table):
    """Columns of Parquet files, read in batches.

    Attributes
    ----------
    parts : mapping column -> array with a value per file
        Columns in the names of folders.
    """

    parts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, files: Sequence[Path]) -> ParquetTable:
        import pyarrow.parquet as pq

        schemas, n_rows = [], 0
        for file in files:
            if not file.stat().st_size:
                raise DataError(f"{str(file)!r} is empty; write it again, or remove it")
            try:
                schemas.append(parquet_schema(file).remove_metadata())
                n_rows += pq.read_metadata(file).num_rows
            except (ValueError, OSError, MemoryError, pa.ArrowException) as error:
                if isinstance(error, PermissionError):
                    raise
                why = one_line(error)
                where = "" if str(file) in why else f"{str(file)!r} cannot be read as Parquet: "
                raise DataError(f"{where}{why}; write it again, or give another file") from None
        for file, schema in zip(files, schemas, strict=True):
            other = set(schema.names) ^ set(schemas[0].names)
            if other:
                raise DataError(
                    f"{str(file)!r} and {str(files[0])!r} differ {in_columns(sorted(other))}; "
                    "all files of a table must have the same columns"
                )
        schema = _unified(schemas, path)
        parts = parts_of(path, files)
        for name in parts.keys() & set(schema.names):
            del parts[name]  # the files have this column, too
        for name, values in parts.items():
            schema = schema.append(pa.field(name, values.type))
        return cls(path, "parquet", schema, n_rows, tuple(files), parts)

    @cached_property
    def digest(self) -> str:
        if not self.parts:
            return probed(self.files)
        told = repr({name: values.to_pylist() for name, values in self.parts.items()})
        return hashlib.sha256((probed(self.files) + told).encode()).hexdigest()[:16]

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        total = 0
        for at, path in enumerate(self.files):
            try:
                for batch in self._read(at, columns, rows):
                    total += batch.num_rows
                    yield batch
            except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
                if isinstance(error, (DataError, FileNotFoundError, PermissionError)):
                    raise
                if isinstance(error, MemoryError):  # of a page, which is not read in parts
                    raise no_memory(path) from None
                raise _damaged(path, one_line(error)) from None
        if total != self.n_rows:
            raise _damaged(self.path, f"it has {total:,} rows and claims {self.n_rows:,}")

    def _read(self, at: int, columns: list[str], rows: int) -> Iterator[Any]:
        """The batches of one file."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        held = [name for name in columns if name not in self.parts]
        with open_parquet(self.files[at]) as file:
            for batch in file.iter_batches(rows, columns=held):
                batch.validate(full=True)  # Parquet may hold text that is not UTF-8
                arrays = [
                    pa.repeat(self.parts[name][at], batch.num_rows)
                    if name in self.parts
                    else batch.column(name)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(
                    [
                        array if array.type == kind else array.cast(kind)
                        for array, kind in zip(arrays, schema.types, strict=True)
                    ],
                    names=columns,
                )


def _damaged(path: Path | None, why: str) -> DataError:
    return DataError(f"{str(path)!r} is truncated or damaged ({why}); write it again")


def as_table(data: Any) -> Table:
    """Make a table from a data frame, an Arrow table or batch, or a mapping from names to columns.

    Any frame that narwhals knows is read (pandas, polars, modin, ...); a lazy one is collected.
    """
    if isinstance(data, Table):
        return data
    try:
        found = _as_arrow(data)
    except (pa.ArrowException, nw.exceptions.NarwhalsError) as error:
        raise DataError(
            f"the columns cannot be read ({one_line(error)}); each needs its own name and values "
            "of one type"
        ) from None
    if found is None:
        raise TypeError(
            "rows must be a data frame, a Table, an Arrow table or a mapping from names to "
            f"columns; got {type(data).__name__}"
        )
    return HeldTable.of(found)


def _as_arrow(data: Any) -> Any:
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = _collected(frame)
    if isinstance(frame, nw.DataFrame):
        return frame.to_arrow().select(range(len(frame.columns)))  # an index of pandas comes last
    return pa.table(data) if hasattr(data, "__arrow_c_stream__") else None


def _collected(frame: Any) -> Any:
    try:
        return frame.collect(backend="pyarrow")
    except Exception as error:  # every package has its own
        raise DataError(
            f"the lazy frame cannot be collected ({one_line(error)}); collect it first to see "
            "where it fails"
        ) from error


def _joined(column: Any) -> Any:
    found = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _unified(schemas: list[Any], path: Path) -> Any:
    """One schema for all files, whose types may differ as integers do from floats."""
    if len(schemas) == 1:
        return schemas[0]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowException, ValueError) as error:
        raise DataError(
            f"the files in {str(path)!r} have columns of the same name and different types "
            f"({one_line(error)}); write them with the same types"
        ) from None
