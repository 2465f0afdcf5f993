"""Partitions on the executors of a Spark cluster: read once, stored in files, and asked there.

An executor runs several Python processes, and Spark gives a task to any of them. So a partition is
a file in the executor's own folder, which all of them map into memory: they share one copy, and
the system may drop it under pressure. Spark keeps a small record of every file, knows which
executor has it, and makes the file again from the user's data frame if that executor is lost.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from counterpoise.rows.engines.chunked import to_part
from counterpoise.rows.engines.memory import make_part
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.row_part import RowPart
from counterpoise.rows.engines.spark_columns import FEATURES, GROUPS, LABELS, WEIGHTS
from counterpoise.rows.engines.tally import Tally, answer_part
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.scan import Rows, Scan, check_chunk

Array = np.ndarray

FOLDER = "counterpoise-"
# Stands for the number of a partition in an error, until the number is known.
UNKNOWN = "partition \0"


@dataclass(frozen=True)
class StoredPart:
    """Sorted rows in a file: labels, weights, then features. ``codes`` are as in a part."""

    path: str
    shape: tuple[int, int]
    dtype: str
    weighted: bool
    offsets: Array
    labels: Array
    codes: Array
    intercept: bool

    def open(self) -> RowPart:
        """Map the file; FileNotFoundError means that another machine has it."""
        n, d = self.shape
        raw = np.memmap(self.path, dtype=np.uint8, mode="r").view(np.ndarray)
        first = 8 * n * (1 + self.weighted)
        data = GroupedData(
            X=raw[first:].view(self.dtype).reshape(n, d),
            y=raw[: 8 * n].view(float),
            labels=self.labels,
            offsets=self.offsets,
            row_weights=raw[8 * n : first].view(float),
            intercept=self.intercept,
        )
        return make_part(data, self.codes)


@dataclass(frozen=True)
class Loaded:
    """A partition that was read: its file and scan, or why it was refused.

    Without rows there is no ``part``. ``digest`` is equal for the same rows in any order.
    """

    error: str = ""
    part: StoredPart | None = None
    scan: Scan | None = None
    digest: int = 0


@dataclass(frozen=True)
class Placed:
    """A partition with the indices of its groups in the whole problem."""

    index: int
    part: StoredPart | None = None
    error: str = ""


@dataclass(frozen=True)
class Reply:
    """Sums of some partitions; those whose files were not found; and what went wrong."""

    tally: Tally
    missing: tuple[int, ...] = ()
    error: str = ""

    def merge(self, other: Reply) -> Reply:
        tally = Tally.merge(self.tally, other.tally, count=self.tally.count)
        return Reply(tally, self.missing + other.missing, self.error or other.error)


# -- reading ------------------------------------------------------------------------------------


def load_partition(
    batches: Iterator[pa.RecordBatch],
    *,
    intercept: bool,
    fit: str,
    alive: Sequence[str],
    cut: FoldCut | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a partition and store its part; the result is one cell, a pickled `Loaded`.

    Files of fits that ended before this one began are removed.
    """
    try:
        remove_ended(fit, alive)
        loaded = _load(list(batches), intercept, fit, cut)
    except (TypeError, ValueError) as error:
        loaded = Loaded(error=str(error))
    yield pa.RecordBatch.from_pydict({"loaded": pa.array([pickle.dumps(loaded)], pa.binary())})


def _load(batches: list[pa.RecordBatch], intercept: bool, fit: str, cut: FoldCut | None) -> Loaded:
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return Loaded()
    table = pa.Table.from_batches(batches)
    y, groups, weights = (
        table[name].to_numpy() if name in table.column_names else None
        for name in (LABELS, GROUPS, WEIGHTS)
    )
    rows = check_chunk(matrix(table[FEATURES]), y, groups, weights, UNKNOWN, cut=cut)
    scan = Scan.of(rows)
    if not len(rows.y):
        return Loaded(scan=scan)
    part = to_part(rows, rows.labels, intercept, UNKNOWN)
    return Loaded(part=store(part, fit), scan=scan, digest=digest(rows))


def matrix(column: pa.ChunkedArray) -> Array:
    """Return a column of arrays of equal lengths as a matrix; missing numbers become NaN."""
    if column.null_count:
        raise ValueError(f"{UNKNOWN}: X has missing values; impute or leave out these rows")
    found = []
    for chunk in column.chunks:
        lengths = np.unique(chunk.value_lengths().to_numpy(zero_copy_only=False))
        values = chunk.flatten().to_numpy(zero_copy_only=False)
        found.append(values.reshape(len(chunk), -1) if len(lengths) == 1 else values[None, :])
        if len(lengths) > 1 or found[0].shape[1] != found[-1].shape[1]:
            raise ValueError(
                f"{UNKNOWN}: the vectors or arrays of X differ in length; give all rows the same "
                "number of features"
            )
    return np.concatenate(found)


def digest(rows: Rows) -> int:
    """Return a checksum of the rows that does not depend on their order."""
    seed = np.random.default_rng(0)
    size = rows.X.dtype.itemsize
    bits = rows.X.view(np.uint32 if size == 4 else np.uint64)
    odd = seed.integers(1 << 63, size=rows.X.shape[1] + 3, dtype=np.uint64) * np.uint64(2)
    odd += np.uint64(1)
    sums = bits @ odd[3:] + rows.y.view(np.uint64) * odd[0] + rows.codes.astype(np.uint64) * odd[1]
    if rows.weights is not None:
        sums += rows.weights.view(np.uint64) * odd[2]
    sums += np.uint64(zlib.crc32(repr(label_list(rows.labels)).encode()))
    for _ in range(2):  # linear sums alone would not notice numbers that change places
        sums = (sums ^ (sums >> np.uint64(32))) * odd[0]
    return int(sums.sum())


# -- files --------------------------------------------------------------------------------------


def store(part: RowPart, fit: str) -> StoredPart:
    """Write the rows of a part to a new file of this executor."""
    folder = Path(local_folder()) / f"{FOLDER}{fit}"
    folder.mkdir(mode=0o700, exist_ok=True)
    data = part.data
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".rows", delete=False) as file:
        for array in (data.y, data.row_weights, data.X):
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return StoredPart(
        path=file.name,
        shape=data.X.shape,
        dtype=data.X.dtype.str,
        weighted=bool(data.row_weights.size),
        offsets=data.offsets,
        labels=data.labels,
        codes=part.codes,
        intercept=data.intercept,
    )


def local_folder() -> str:
    """Return the folder that Spark gives this executor, and removes with it."""
    found = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not found:
        raise ValueError(
            "Spark gives its Python workers no folder (SPARK_LOCAL_DIRS); set spark.local.dir"
        )
    return found


def remove_ended(fit: str, alive: Sequence[str]) -> None:
    """Remove the files of fits before this one that were not ``alive`` when it began.

    Names are those of a process and in the order of its fits; files of other processes that share
    the application stay. A partition may be read again when later fits have begun.
    """
    process = fit.rpartition("-")[0]
    for folder in Path(local_folder()).glob(f"{FOLDER}{process}-*"):
        name = folder.name.removeprefix(FOLDER)
        if name < fit and name not in alive:
            shutil.rmtree(folder, ignore_errors=True)


# -- asking -------------------------------------------------------------------------------------


def place(index: int, loaded: Iterable[Loaded], *, labels: Array, digests: dict[int, int]) -> Any:
    """Find the indices of a partition's groups; refuse rows other than at first."""
    for found in loaded:
        part = found.part
        if digests.get(index, 0) != found.digest or found.error:
            yield Placed(index, error=found.error or (
                f"partition {index} of X was computed again and has other rows than at first; a "
                "fit needs the same rows every time. Write X to storage and read it back, or sort "
                "it before any random or limiting step"
            ))  # fmt: skip
        elif part is None:
            yield Placed(index)
        else:
            codes = np.searchsorted(labels, part.labels)
            yield Placed(index, replace(part, codes=codes, labels=np.arange(len(codes))))


def answer(
    placed: Iterable[Placed],
    *,
    question: Question,
    n_groups: int,
    count: int,
    only: frozenset[int] | None = None,
) -> Iterator[Reply]:
    """Yield the sums of these partitions, or of those among them that ``only`` names."""
    tally, missing, error = Tally(count), [], ""
    for item in placed:
        if only is not None and item.index not in only:
            continue
        error = error or item.error
        try:
            part = None if item.part is None else opened(item.part)
        except FileNotFoundError:
            missing.append(item.index)
            continue
        sums = None if part is None else answer_part(part, question, n_groups)
        tally.add(0, item.index, sums)
    yield Reply(tally, tuple(missing), error)


_open: dict[str, RowPart] = {}


def opened(stored: StoredPart) -> RowPart:
    """Return the part in a file, which stays mapped while this process answers for its fit."""
    part = _open.get(stored.path)
    if part is None:
        folder = os.path.dirname(stored.path)
        for path in [path for path in _open if os.path.dirname(path) != folder]:
            del _open[path]
        part = _open[stored.path] = stored.open()
    return part
