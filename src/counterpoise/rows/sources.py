"""Rows that need not fit in memory: Parquet files, .npy files, or any source of chunks.

Every pass iterates over the source, which must give the same chunks each time. Pass one to
``GroupDRONeuron.fit`` in place of ``X``:

>>> import numpy as np
>>> from counterpoise import GroupDRONeuron
>>> def chunks():
...     for seed in range(3):
...         rng = np.random.default_rng(seed)
...         X = rng.normal(size=(200, 2))
...         yield X, np.maximum(X @ [1.0, -1.0], 0), rng.integers(0, 2, 200)
>>> model = GroupDRONeuron().fit(Chunks(chunks))
>>> model.coef_.round(3).tolist()
[1.0, -1.0]
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.common.packages import not_installed
from counterpoise.common.text import one_line
from counterpoise.rows.frames import given

Array = np.ndarray
Chunk = tuple[Any, ...]
PathLike = str | os.PathLike[str]

# Default size of a chunk: small enough for a processor's last cache, and for the allocator to
# reuse its memory.
CHUNK_BYTES = 1 << 24


class Source:
    """An iterable of chunks ``(X, y, groups, sample_weight)``; the last two are optional."""

    #: names of the features, if known
    feature_names: Sequence[str] | None = None

    def __iter__(self) -> Iterator[Chunk]:
        raise NotImplementedError(type(self).__name__)

    @property
    def n_rows(self) -> int | None:
        """Total number of rows, if known without reading them."""
        return None


class Chunks(Source):
    """A source from a reusable iterable of chunks, or from a function that returns one.

    Parameters
    ----------
    chunks : iterable of tuples, or function without arguments that returns one
        ``(X, y)``, ``(X, y, groups)`` or ``(X, y, groups, sample_weight)``; ``X`` dense or CSR.
        ``groups`` are labels, or memberships in all chunks.
    """

    def __init__(self, chunks: Iterable[Chunk] | Callable[[], Iterable[Chunk]]) -> None:
        if not callable(chunks) and iter(chunks) is chunks:
            raise TypeError(
                f"chunks is a {type(chunks).__name__}, which can be read only once, but a fit "
                "reads the rows many times; pass a list, or the function that makes it"
            )
        self._chunks = chunks

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks() if callable(self._chunks) else self._chunks)


class Npy(Source):
    """A source from arrays in .npy files (or memory maps), read in runs of rows.

    Files are read rather than mapped, so only a few chunks are in memory at a time.

    Parameters
    ----------
    X, y, groups, sample_weight : path of a .npy file, or array
        ``X`` of shape (n, d); the others of shape (n,), or (n, K) for memberships as ``groups``.
    chunk_rows : int, optional
        Rows per chunk; by default 16 MB of them.
    """

    def __init__(
        self,
        X: PathLike | Array,
        y: PathLike | Array,
        groups: PathLike | Array | None = None,
        sample_weight: PathLike | Array | None = None,
        *,
        chunk_rows: int | None = None,
    ) -> None:
        self._arrays = {
            name: None if value is None else _Column.open(value, name)
            for name, value in (
                ("X", X), ("y", y), ("groups", groups), ("sample_weight", sample_weight)
            )
        }  # fmt: skip
        rows = self._arrays["X"]
        assert rows is not None
        if len(rows.shape) != 2:
            raise ValueError(f"X must have two dimensions; its shape is {rows.shape}")
        for name, column in self._arrays.items():
            if column is not None and column.shape[:1] != rows.shape[:1]:
                raise ValueError(
                    f"X has {rows.shape[0]} rows but {name} has {column.length} entries"
                )
        self.chunk_rows = check_chunk_rows(chunk_rows) or rows_per_chunk(rows.row_bytes)

    def __iter__(self) -> Iterator[Chunk]:
        n = self.n_rows
        for lo in range(0, n, self.chunk_rows):
            hi = min(lo + self.chunk_rows, n)
            yield tuple(None if c is None else c.read(lo, hi) for c in self._arrays.values())

    @property
    def n_rows(self) -> int:
        rows = self._arrays["X"]
        assert rows is not None
        return rows.shape[0]


class _Column:
    """An array on disk or in memory, read in runs along its first axis."""

    def __init__(self, array: Array, path: Path | None, start: int) -> None:
        self.array, self.path, self.start = array, path, start
        self.shape, self.dtype = array.shape, array.dtype
        self.length = array.shape[0] if array.ndim else "no list of"
        self.row_bytes = int(array.dtype.itemsize * np.prod(array.shape[1:], dtype=int))

    @classmethod
    def open(cls, value: PathLike | Array, name: str) -> _Column:
        if not isinstance(value, (str, os.PathLike)):
            return cls(np.asanyarray(given(value, name)), None, 0)
        path = Path(value)
        if not path.is_file():
            raise FileNotFoundError(f"{name}: there is no file {str(path)!r}")
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(
                f"{name}: {str(path)!r} is not a .npy file of plain numbers or text ({error})"
            ) from None
        if not isinstance(array, np.memmap):
            raise ValueError(f"{name}: {str(path)!r} holds several arrays; save each as .npy")
        if not array.flags.c_contiguous:
            return cls(array, None, 0)  # Fortran order: rows can only be read through the map
        return cls(array, path, int(array.offset))

    def read(self, lo: int, hi: int) -> Array:
        if self.path is not None:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.start + lo * self.row_bytes)
                out = np.empty((hi - lo, *self.shape[1:]), self.dtype)
                view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
                while len(view):
                    got = file.readinto(view)
                    if not got:
                        raise ValueError(
                            f"{str(self.path)!r} ended early: it was truncated during the fit"
                        )
                    view = view[got:]
            return out
        out = np.array(self.array[lo:hi], order="C")
        _let_go(self.array)
        return out


def _let_go(array: Array) -> None:
    """Release the pages of a read-only memory map; the file keeps them."""
    base = getattr(array, "_mmap", None)
    if base is not None and getattr(array, "mode", None) == "r" and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


class Parquet(Source):
    """A source from columns of Parquet files, read in batches of rows.

    Parameters
    ----------
    path : path of a file or of a folder of ``*.parquet`` files, or a list of paths
    y : str
        Column of the labels.
    groups : str, optional
        Column of the groups.
    features : list of str, optional
        Feature columns; by default all others, which must hold numbers or booleans.
    sample_weight : str, optional
    chunk_rows : int, optional
        Rows per chunk; by default 16 MB of them.
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        *,
        y: str,
        groups: str | None = None,
        features: Sequence[str] | None = None,
        sample_weight: str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        pq = _parquet()
        self.paths = parquet_files(path)
        self.y, self.groups, self.sample_weight = y, groups, sample_weight
        own = [c for c in (y, groups, sample_weight) if c is not None]
        if isinstance(features, str):
            raise TypeError(f"features must be a list of column names; got {features!r}")
        schemas = [parquet_schema(path) for path in self.paths]
        names = schemas[0].names
        self.feature_names = [c for c in names if c not in own] if features is None else [*features]
        if not self.feature_names:
            raise ValueError("there is no feature column; list them with features=[...]")
        for path, schema in zip(self.paths, schemas, strict=True):
            for column in [*own, *self.feature_names]:
                if column not in schema.names:
                    raise ValueError(
                        f"{str(path)!r} has no column {column!r}; it has {schema.names[:20]!r}"
                    )
        dtypes = [_feature_dtype(self.feature_names, schema) for schema in schemas]
        self.dtype = np.result_type(*dtypes)
        row_bytes = np.dtype(self.dtype).itemsize * len(self.feature_names)
        self.chunk_rows = check_chunk_rows(chunk_rows) or rows_per_chunk(row_bytes)
        self._sizes = [pq.read_metadata(p).num_rows for p in self.paths]

    def __iter__(self) -> Iterator[Chunk]:
        own = [c for c in (self.y, self.groups, self.sample_weight) if c is not None]
        columns = list(dict.fromkeys([*self.feature_names, *own]))  # type: ignore[misc]
        for path in self.paths:
            for batch in _batches(path, self.chunk_rows, columns):
                yield self._chunk(batch)

    def _chunk(self, batch: Any) -> Chunk:
        assert self.feature_names is not None
        X = np.empty((batch.num_rows, len(self.feature_names)), self.dtype)
        for j, name in enumerate(self.feature_names):
            X[:, j] = _numbers(batch.column(name), name)
        y = _numbers(batch.column(self.y), self.y)
        groups = weights = None
        if self.groups is not None:
            groups = _labels(batch.column(self.groups))
        if self.sample_weight is not None:
            weights = _numbers(batch.column(self.sample_weight), self.sample_weight)
        return X, y, groups, weights

    @property
    def n_rows(self) -> int:
        return sum(self._sizes)


def _parquet() -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise not_installed("reading Parquet files needs", "pyarrow") from error
    return pq


def open_parquet(path: Path, **options: Any) -> Any:
    """Open a file to read in batches; by default, Arrow would load all of it first.

    Pages with checksums are checked.
    """
    options = {"page_checksum_verification": True, "pre_buffer": False, **options}
    return _parquet().ParquetFile(path, **options)


def _batches(path: Path, rows: int, columns: list[str]) -> Iterator[Any]:
    """Read a file in batches; an error names it."""
    import pyarrow as pa

    try:
        with open_parquet(path) as file:
            yield from file.iter_batches(rows, columns=columns)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise ValueError(
            f"{str(path)!r} is truncated or damaged ({error}); write it again"
        ) from error


def parquet_files(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """List the given files, and the files in the given folders."""
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    files: list[Path] = []
    for item in map(Path, given):
        if item.is_dir():
            files.extend(sorted(item.glob("*.parquet")))
        elif item.is_file():
            files.append(item)
        else:
            raise FileNotFoundError(f"there is no file or folder {str(item)!r}")
    if not files:
        raise FileNotFoundError(f"there are no *.parquet files in {str(path)!r}")
    return files


def parquet_schema(path: Path) -> Any:
    """Read the names and types of a file's columns; an error names a file of another format."""
    pq = _parquet()
    import pyarrow as pa

    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{str(path)!r} is not a Parquet file ({one_line(error)})") from None


def _feature_dtype(names: Sequence[str], schema: Any) -> type:
    import pyarrow.types as kinds

    types = [schema.field(name).type for name in names]
    for name, kind in zip(names, types, strict=True):
        if not (kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_boolean(kind)):
            raise ValueError(
                f"feature column {name!r} holds {kind}, not numbers; encode it, or leave it out "
                "with features=[...]"
            )
    single = all(kinds.is_float32(kind) or kinds.is_float16(kind) for kind in types)
    return np.float32 if single else np.float64


def _numbers(column: Any, name: str) -> Array:
    if column.null_count:
        raise ValueError(
            f"column {name!r} has missing values; impute them, or leave out the rows or the column"
        )
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"column {name!r} holds {values.dtype}, not numbers")
    return values


def _labels(column: Any) -> Array:
    """Return group labels as an array; missing labels are kept, and rejected later."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    values = column.to_numpy(zero_copy_only=False)
    return values.astype(str) if values.dtype == object else values


def rows_per_chunk(row_bytes: int) -> int:
    return max(1024, CHUNK_BYTES // max(1, row_bytes))


def check_chunk_rows(chunk_rows: Any) -> int | None:
    if chunk_rows is None:
        return None
    if not isinstance(chunk_rows, (int, np.integer)) or isinstance(chunk_rows, bool):
        raise TypeError(f"chunk_rows must be a positive integer; got {chunk_rows!r}")
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be a positive integer; got {chunk_rows!r}")
    return int(chunk_rows)
