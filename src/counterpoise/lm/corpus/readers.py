"""Readers of documents: each reads one file or one dataset, row by row, from any row on."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from counterpoise.common.packages import not_installed
from counterpoise.rows.sources import open_parquet, parquet_schema

LINES = (".jsonl", ".json", ".ndjson")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# Table rows that are decoded together.
TABLE_ROWS = 256


class DatasetLike(Protocol):
    """What is used of a ``datasets.Dataset`` or ``IterableDataset``."""

    @property
    def column_names(self) -> list[str] | None: ...
    @property
    def info(self) -> Any: ...
    @property
    def split(self) -> Any: ...
    def select_columns(self, column_names: list[str]) -> Any: ...
    def iter(self, batch_size: int) -> Iterator[Any]: ...


class Reader(ABC):
    """Reads the documents of one file or dataset.

    Attributes
    ----------
    name : str
        The name in messages.
    within : str
        The name in the folder that was given. It decides the order of files.
    size : int or None
        Bytes, if known.
    """

    name: str
    within: str
    size: int | None = None

    @property
    def done(self) -> int:
        """Bytes read so far."""
        return 0

    @abstractmethod
    def identity(self) -> list[Any]:
        """Return JSON that changes when the documents may have changed."""

    @abstractmethod
    def rows(self, skip: int) -> Iterator[str]:
        """Yield the texts of all rows after the first ``skip``, empty ones included."""


class FileReader(Reader):
    """Reads one file."""

    def __init__(self, path: Path, text: str, within: str) -> None:
        self.path, self.text, self.within, self.name = path, text, within, str(path)
        self.size = path.stat().st_size
        self._raw: BinaryIO | None = None
        self._done = 0

    @property
    def done(self) -> int:
        if self._raw is not None and not self._raw.closed:
            self._done = self._raw.tell()
        return min(self._done, self.size or 0)

    def identity(self) -> list[Any]:
        found = self.path.stat()
        return [self.within, found.st_size, found.st_mtime_ns]

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file decompressed; errors name a damaged file."""
        with open(self.path, "rb") as raw:
            self._raw = raw
            try:
                with _uncompressed(raw, self.path) as file:
                    yield file
            except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
                raise ValueError(_damaged(self.name, error)) from error
            except OSError as error:
                if error.errno is not None:  # an error of the disk, not of the file
                    raise
                raise ValueError(_damaged(self.name, error)) from error


class JsonLinesReader(FileReader):
    """Reads one JSON object per line; blank lines do not count as rows."""

    def rows(self, skip: int) -> Iterator[str]:
        with self.open() as file:
            lines = ((i, line) for i, line in enumerate(file, start=1) if not line.isspace())
            for number, line in islice(lines, skip, None):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ValueError(
                        f"{self.name!r}, line {number}, is not JSON ({error}); every line must "
                        "hold one object"
                    ) from None
                if not isinstance(row, dict):
                    raise ValueError(
                        f"{self.name!r}, line {number}, holds a {type(row).__name__}; every line "
                        "must hold one object"
                    )
                yield text_of(row, self.text, f"{self.name!r}, line {number},")


class TextReader(FileReader):
    """Reads a text file as one document."""

    def rows(self, skip: int) -> Iterator[str]:
        if skip:
            return
        with self.open() as file:
            data = file.read()
        try:
            yield data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.name!r} is not UTF-8 ({error}); convert it, or leave it out"
            ) from None


class ParquetReader(FileReader):
    """Reads one column of a Parquet file."""

    def rows(self, skip: int) -> Iterator[str]:
        self._done = 0
        parquet_schema(self.path)  # raises if it is not a Parquet file
        with open_parquet(self.path) as file:
            schema, meta = file.schema_arrow, file.metadata
            if self.text not in schema.names:
                raise ValueError(missing(self.text, schema.names, repr(self.name)))
            groups, row = 0, 0
            while groups < meta.num_row_groups and (row + meta.row_group(groups).num_rows <= skip):
                row += meta.row_group(groups).num_rows
                groups += 1
            left = list(range(groups, meta.num_row_groups))
            for batch in file.iter_batches(TABLE_ROWS, row_groups=left, columns=[self.text]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    if row > skip:
                        yield checked(value, self.text, f"{self.name!r}, row {row},")
                self._done = (self.size or 0) * row // max(1, meta.num_rows)


class DatasetReader(Reader):
    """Reads a dataset of the package datasets, in memory or streamed."""

    def __init__(self, data: DatasetLike, text: str, name: str | None = None) -> None:
        self._data, self.text = data, text
        self.within = self.name = name or f"{type(data).__name__} {data.split or ''}".rstrip()
        if data.column_names is not None and text not in data.column_names:
            raise ValueError(missing(text, data.column_names, self.name))

    def identity(self) -> list[Any]:
        info = self._data.info
        known = (info.dataset_name, info.config_name, str(self._data.split or ""))
        return [self.name, *known, getattr(self._data, "_fingerprint", None)]

    def rows(self, skip: int) -> Iterator[str]:
        data: Any = self._data
        if data.column_names is not None:
            data = data.select_columns([self.text])
        if skip and hasattr(data, "select"):
            if skip >= len(data):
                return
            data = data.select(range(skip, len(data)))
        elif skip:
            data = data.skip(skip)
        row = skip
        for batch in data.iter(batch_size=TABLE_ROWS):
            if self.text not in batch:
                raise ValueError(missing(self.text, list(batch), f"{self.name}, row {row + 1},"))
            for value in batch[self.text]:
                row += 1
                yield checked(value, self.text, f"{self.name}, row {row},")


class SavedDatasetReader(DatasetReader):
    """Reads a dataset that ``save_to_disk`` wrote to a folder."""

    def __init__(self, folder: Path, text: str) -> None:
        try:
            from datasets import load_from_disk
        except ImportError as error:
            raise not_installed(f"reading {str(folder)!r} needs", "datasets") from error
        self.folder = folder
        super().__init__(load_from_disk(os.fspath(folder)), text, str(folder))

    def identity(self) -> list[Any]:
        files = sorted(path for path in self.folder.iterdir() if path.suffix in (".arrow", ".json"))
        stats = [(path.name, path.stat()) for path in files]
        return [[name, found.st_size, found.st_mtime_ns] for name, found in stats]


def text_of(row: dict[str, Any], text: str, where: str) -> str:
    """Return the text of a row; errors say where it is."""
    if text not in row:
        raise ValueError(missing(text, list(row), where))
    return checked(row[text], text, where)


def checked(value: Any, text: str, where: str) -> str:
    """Return a text; raise ValueError if it is something else."""
    if not isinstance(value, str):
        raise ValueError(
            f"{where} has {value!r:.60} in {text!r}, which is not a text; fix or remove the row"
        )
    return value


def missing(text: str, names: list[str], where: str) -> str:
    """Return the message about a field that is not there."""
    return f"{where} has no field {text!r}, only {names[:20]!r}; name the right one with text=..."


def _damaged(name: str, error: Exception) -> str:
    return f"{name!r} is truncated or damaged ({error}); replace it"


@contextmanager
def _uncompressed(raw: BinaryIO, path: Path) -> Iterator[IO[bytes]]:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=raw) as file:
            yield io.BufferedReader(file)
    elif suffix == ".bz2":
        with bz2.BZ2File(raw) as unpacked:
            yield io.BufferedReader(unpacked)
    elif suffix == ".xz":
        with lzma.LZMAFile(raw) as plain:
            yield io.BufferedReader(plain)
    elif suffix == ".zst":
        zstandard = zstandard_for(path)
        try:
            with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
                yield io.BufferedReader(stream)
        except zstandard.ZstdError as error:
            raise ValueError(_damaged(str(path), error)) from error
    else:
        yield raw


def zstandard_for(path: Path) -> Any:
    """Import the package that reads ``.zst`` files."""
    try:
        import zstandard
    except ImportError as error:
        raise not_installed(f"reading {str(path)!r} needs", "zstandard") from error
    return zstandard
