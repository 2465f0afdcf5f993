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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from counterpoise.common.packages import not_installed
from counterpoise.common.text import one_line
from counterpoise.rows.sources import open_parquet, parquet_schema

LINES = (".jsonl", ".json", ".ndjson")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# Table rows that are decoded together, and about how many bytes of them.
TABLE_ROWS = 256
TABLE_BYTES = 1 << 25
# Most bytes of a document, unless the caller says otherwise; see `TextReader` for its own.
MAX_DOCUMENT_BYTES = 64_000_000


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
    text : str
        The field or column that holds the text.
    size : int or None
        Bytes, if known.
    """

    name: str
    within: str
    text: str
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

    def labelled(self, skip: int, field: str) -> Iterator[tuple[Any, str]]:
        """Yield what each row after the first ``skip`` holds in a field, and its text.

        The field may be a dotted path into objects; None stands for a missing value.
        """
        raise ValueError(
            f"{self.name!r} has no fields, so its documents have no {field!r}; give JSON lines, "
            "Parquet or a dataset, or leave by out"
        )


class FileReader(Reader):
    """Reads one file."""

    def __init__(self, path: Path, text: str, within: str, most: int | None = None) -> None:
        self.path, self.text, self.within, self.name = path, text, within, str(path)
        self.most = MAX_DOCUMENT_BYTES if most is None else most
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
            except MemoryError as error:  # its header asks for more than there is
                raise ValueError(_damaged(self.name, "too large to unpack")) from error
            except OSError as error:
                if error.errno is not None:  # an error of the disk, not of the file
                    raise
                raise ValueError(_damaged(self.name, error)) from error


class JsonLinesReader(FileReader):
    """Reads one JSON object per line; blank lines do not count as rows."""

    def rows(self, skip: int) -> Iterator[str]:
        for where, row in self.objects(skip):
            yield text_of(row, self.text, where)

    def labelled(self, skip: int, field: str) -> Iterator[tuple[Any, str]]:
        for where, row in self.objects(skip):
            yield value_at(row, field), text_of(row, self.text, where)

    def objects(self, skip: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield where each object stands, and the object."""
        with self.open() as file:
            lines = ((i, line) for i, line in self._lines(file) if not line.isspace())
            for number, line in islice(lines, skip, None):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ValueError(
                        f"{self.name!r}, line {number}, is not JSON ({error}); every line must "
                        "hold one object"
                    ) from None
                if not isinstance(row, dict):
                    raise ValueError(
                        f"{self.name!r}, line {number}, holds a {type(row).__name__}; every line "
                        "must hold one object"
                    )
                yield f"{self.name!r}, line {number},", row

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield numbered lines; a longer one than allowed is refused before it is read whole."""
        number = 0
        while line := file.readline(self.most + 2):  # a line end may follow
            number += 1
            if len(line.rstrip(b"\r\n")) > self.most:
                raise ValueError(too_long(f"{self.name!r}, line {number},", self.most))
            yield number, line


class TextReader(FileReader):
    """Reads a text file as one document, of any size by default if it is not compressed."""

    def __init__(self, path: Path, text: str, within: str, most: int | None = None) -> None:
        if most is None and path.suffix.lower() not in COMPRESSED:
            most = max(path.stat().st_size, 1)
        super().__init__(path, text, within, most)

    def rows(self, skip: int) -> Iterator[str]:
        if skip:
            return
        with self.open() as file:
            data = file.read(self.most + 1)
        if len(data) > self.most:
            raise ValueError(too_long(repr(self.name), self.most))
        try:
            yield data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.name!r} is not UTF-8 ({error}); convert it, or leave it out"
            ) from None


class ParquetReader(FileReader):
    """Reads one column of a Parquet file, and another for labels."""

    def rows(self, skip: int) -> Iterator[str]:
        return (text for _, text in self.labelled(skip, self.text))

    def labelled(self, skip: int, field: str) -> Iterator[tuple[Any, str]]:
        self._done = 0
        schema = parquet_schema(self.path)  # raises if it is not a Parquet file
        import pyarrow as pa

        try:
            if self.text not in schema.names:
                raise ValueError(missing(self.text, schema.names, repr(self.name)))
            _check_type(schema.field(self.text).type, self.text, repr(self.name))
            yield from self._rows(skip, field, column_of(field, schema.names, repr(self.name)))
        except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ValueError(_damaged(self.name, str(error) or "too large to unpack")) from error

    def _rows(self, skip: int, field: str, column: str) -> Iterator[tuple[Any, str]]:
        # Dictionaries stay as they are: unpacked, a small file may be larger than memory.
        options = {"read_dictionary": [self.text], "page_checksum_verification": True}
        with open_parquet(self.path, **options) as file:
            meta, row = file.metadata, 0
            for group in range(meta.num_row_groups):
                about = meta.row_group(group)
                if row + about.num_rows <= skip:
                    row += about.num_rows
                    continue
                size = self._mean_bytes(about, row)
                some = max(1, min(TABLE_ROWS, TABLE_BYTES // max(1, size)))
                wanted = list(dict.fromkeys([self.text, column]))
                for batch in file.iter_batches(some, row_groups=[group], columns=wanted):
                    texts = self._values(batch.column(self.text), row)
                    for value, label in zip(texts, self._labels(batch, field, column), strict=True):
                        row += 1
                        if row > skip:
                            yield label, checked(value, self.text, f"{self.name!r}, row {row},")
                    self._done = (self.size or 0) * row // max(1, meta.num_rows)

    def _labels(self, batch: Any, field: str, column: str) -> Iterable[Any]:
        """Return the labels of a batch; none are needed where the texts alone are."""
        if column == self.text:
            return repeat(None, batch.num_rows)
        return (value_at({column: value}, field) for value in batch.column(column).to_pylist())

    def _mean_bytes(self, group: Any, row: int) -> int:
        """Return the mean size of the rows of a group; refuse it if a text must be too long.

        Sizes of single columns are not asked for: pyarrow ends the process if they are damaged.
        """
        mean = int(group.total_byte_size) // max(1, int(group.num_rows))
        if group.num_columns == 1 and mean > self.most:  # one of its texts is at least as long
            where = f"{self.name!r}, a row from {row + 1} to {row + group.num_rows},"
            raise ValueError(too_long(where, self.most))
        return mean

    def _values(self, column: Any, row: int) -> Iterator[Any]:
        """Yield the texts of a column, one at a time if it has a dictionary."""
        import pyarrow as pa
        import pyarrow.compute as pc

        coded = pa.types.is_dictionary(column.type)
        texts = column.dictionary if coded else column
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            longest = pc.max(pc.binary_length(texts)).as_py() or 0
            if longest > self.most:
                at = (
                    f", row {row + 1} or later,"
                    if coded
                    else f", row {row + 1} to {row + len(column)},"
                )
                raise ValueError(too_long(f"{self.name!r}{at}", self.most))
        if not coded:
            yield from column.to_pylist()
            return
        for index in column.indices.to_pylist():
            if index is not None and not 0 <= index < len(texts):
                raise ValueError(_damaged(self.name, f"a text has the number {index}"))
            yield None if index is None else texts[index].as_py()


class DatasetReader(Reader):
    """Reads a dataset of the package datasets, in memory or streamed."""

    def __init__(
        self,
        data: DatasetLike,
        text: str,
        name: str | None = None,
        most: int | None = None,
    ) -> None:
        self._data, self.text = data, text
        self.most = MAX_DOCUMENT_BYTES if most is None else most
        self.within = self.name = name or f"{type(data).__name__} {data.split or ''}".rstrip()
        if data.column_names is not None and text not in data.column_names:
            raise ValueError(missing(text, data.column_names, self.name))

    def identity(self) -> list[Any]:
        info = self._data.info
        known = (info.dataset_name, info.config_name, str(self._data.split or ""))
        return [self.name, *known, getattr(self._data, "_fingerprint", None)]

    def rows(self, skip: int) -> Iterator[str]:
        return (text for _, text in self.labelled(skip, self.text))

    def labelled(self, skip: int, field: str) -> Iterator[tuple[Any, str]]:
        data: Any = self._data
        if data.column_names is not None:
            column = column_of(field, data.column_names, self.name)
            data = data.select_columns(list(dict.fromkeys([self.text, column])))
        if skip and hasattr(data, "select"):
            if skip >= len(data):
                return
            data = data.select(range(skip, len(data)))
        elif skip:
            data = data.skip(skip)
        row = skip
        for batch in self._batches(data):
            if self.text not in batch:
                raise ValueError(missing(self.text, list(batch), f"{self.name}, row {row + 1},"))
            column = column_of(field, list(batch), f"{self.name}, row {row + 1},")
            for value, label in zip(batch[self.text], batch[column], strict=True):
                row += 1
                where = f"{self.name}, row {row},"
                if isinstance(value, str) and len(value) > self.most:
                    raise ValueError(too_long(where, self.most))
                yield value_at({column: label}, field), checked(value, self.text, where)

    def _batches(self, data: Any) -> Iterator[Mapping[str, Any]]:
        return data.iter(batch_size=self._batch_rows())

    def _batch_rows(self) -> int:
        """Return how many rows to decode together; fewer if they are large."""
        table, rows = getattr(self._data, "data", None), getattr(self._data, "num_rows", None)
        size = getattr(table, "nbytes", None)
        if not size or not rows:  # a stream
            return TABLE_ROWS
        return max(1, min(TABLE_ROWS, TABLE_BYTES * rows // size))


class SavedDatasetReader(DatasetReader):
    """Reads a dataset that ``save_to_disk`` wrote to a folder."""

    def __init__(self, folder: Path, text: str, most: int | None = None) -> None:
        try:
            from datasets import load_from_disk
        except ImportError as error:
            raise not_installed(f"reading {str(folder)!r} needs", "datasets") from error
        self.folder = folder
        try:
            data = load_from_disk(os.fspath(folder))
        except Exception as error:  # of any kind, if a file in it is damaged
            said = f"{type(error).__name__}: {error}"
            raise ValueError(_damaged(str(folder), said)) from error
        super().__init__(data, text, str(folder), most)

    def _batches(self, data: Any) -> Iterator[Mapping[str, Any]]:
        """Check every batch before its texts are read: damaged offsets would end the process."""
        import pyarrow as pa

        for table in data.with_format("arrow").iter(batch_size=self._batch_rows()):
            try:
                table.validate(full=True)
            except pa.ArrowInvalid as error:
                raise ValueError(_damaged(self.name, error)) from error
            yield table.to_pydict()

    def identity(self) -> list[Any]:
        files = sorted(path for path in self.folder.iterdir() if path.suffix in (".arrow", ".json"))
        stats = [(path.name, path.stat()) for path in files]
        return [[name, found.st_size, found.st_mtime_ns] for name, found in stats]


def text_of(row: dict[str, Any], text: str, where: str) -> str:
    """Return the text of a row; errors say where it is."""
    if text not in row:
        raise ValueError(missing(text, list(row), where))
    return checked(row[text], text, where)


def value_at(row: Mapping[str, Any], field: str) -> Any:
    """Return what a row holds in a field or at a dotted path; None if there is nothing.

    >>> value_at({"meta": {"source": "arxiv"}}, "meta.source"), value_at({"a.b": 1}, "a.b")
    ('arxiv', 1)
    """
    if field in row:
        return row[field]
    found: Any = row
    for part in field.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def column_of(field: str, names: list[str], where: str) -> str:
    """Return the column that holds a field or the beginning of its dotted path."""
    column = field if field in names else field.split(".")[0]
    if column not in names:
        raise ValueError(
            f"{where} has no field {field!r}, only {names[:20]!r}; name the right one with by=..."
        )
    return column


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


def too_long(where: str, most: int) -> str:
    """Return the message about a document that is too long."""
    return (
        f"{where} is longer than {most:,} bytes, the most for a document; remove it, split it, or "
        "raise max_document_bytes=... (corpus.max_document_bytes in a configuration)"
    )


def _check_type(kind: Any, text: str, where: str) -> None:
    """Refuse columns that hold no texts before anything is read."""
    import pyarrow.types as types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_nested(inner):
        raise ValueError(
            f"{where} has a column {text!r} of type {str(inner)[:60]}, which holds no texts; name "
            "the right one with text=..."
        )


def _damaged(name: str, error: Exception | str) -> str:
    return f"{name!r} is truncated or damaged ({one_line(error)}); replace it"


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
