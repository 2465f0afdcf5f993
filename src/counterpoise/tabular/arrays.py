"""Rows as arrays: all at once, in chunks, or a sample of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.common.machine import memory
from counterpoise.rows.sources import Chunk, Source, check_chunk_rows, rows_per_chunk
from counterpoise.tabular.columns import Columns
from counterpoise.tabular.indicators import encode_into
from counterpoise.tabular.reader import Reader, joined
from counterpoise.tabular.scanning import RowProgress
from counterpoise.tabular.table import Table, as_table

Array = np.ndarray

# The share of the machine's memory that encoded rows may take, and what is taken for its memory
# where it does not tell.
MEMORY_SHARE, SOME_MEMORY = 0.25, 4e9
# Bytes of a row's label, more or less.
LABEL_BYTES = 64


@dataclass(frozen=True)
class Rows:
    """Rows that are ready to fit or predict.

    Attributes
    ----------
    X : float64 array or CSR matrix of shape (n, width)
    y : array of shape (n,) or None
    groups : array of shape (n,) or None
    sample_weight : array of shape (n,) or None
    feature_names : tuple of str
    kept : array of shape (n,), the numbers of these rows in the table
    """

    X: Any
    y: Array | None
    groups: Array | None
    sample_weight: Array | None
    feature_names: tuple[str, ...]
    kept: Array

    def __len__(self) -> int:
        return len(self.kept)


def read_rows(
    table: Any,
    columns: Columns,
    *,
    labelled: bool = True,
    unseen: str = "refuse",
    progress: RowProgress | None = None,
) -> Rows:
    """All rows of a table, in memory; without those that have weight 0.

    Parameters
    ----------
    table : Table, or a frame that Arrow reads
    columns : Columns
    labelled : bool
        Whether target, group and weight must be there. If not, those that are there are given,
        NaN or ``"(missing)"`` where they have no value, and rows of weight 0 are as others.
    unseen : {"refuse", "base"}
        See :meth:`Columns.encode`.
    progress : function of (rows read, rows in all), optional

    Returns
    -------
    Rows
    """
    table = as_table(table)
    reader = Reader(table, columns, labelled, unseen)
    as_sparse = columns.is_sparse(table.n_rows)
    X = None if as_sparse else np.empty((table.n_rows, columns.width))
    matrices, parts, kept, done = [], [], [], 0
    for start, stop, keep, batch in reader.batches():
        if X is None:
            matrices.append(reader.encode(batch, as_sparse=True))
        else:
            encode_into(columns, batch, X[done : done + batch.num_rows], unseen)
        parts.append(reader.labels(batch))
        kept.append(start + keep)
        done += batch.num_rows
        if progress is not None:
            progress(stop, table.n_rows)
    if not done:
        raise reader.nothing()
    y, groups, weights = (joined(part) for part in zip(*parts, strict=True))
    return Rows(
        X=sparse.vstack(matrices).tocsr() if X is None else X[:done],
        y=y,
        groups=groups,
        sample_weight=weights,
        feature_names=columns.names,
        kept=np.concatenate(kept),
    )


class RowSource(Source):
    """The rows of a table in chunks, for fits of more than memory holds.

    Parameters
    ----------
    table : Table
    columns : Columns
    n_rows : int, optional
        Rows that are used, if known; needed only where rows may be left out: with missing values,
        or of weight 0.
    chunk_rows : int, optional
        Rows per chunk; by default 16 MB of them.
    """

    def __init__(
        self,
        table: Table,
        columns: Columns,
        *,
        n_rows: int | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self.table, self.columns = as_table(table), columns
        self.feature_names = list(columns.names)
        self.chunk_rows = check_chunk_rows(chunk_rows) or rows_per_chunk(8 * columns.width)
        self._reader = Reader(self.table, columns, True, "refuse")
        self._sparse = columns.is_sparse(self.table.n_rows)
        self._n_rows = n_rows

    def __iter__(self) -> Iterator[Chunk]:
        for _, _, _, batch in self._reader.batches(self.chunk_rows):
            if batch.num_rows:
                X = self._reader.encode(batch, self._sparse)
                yield X, *self._reader.labels(batch)

    @property
    def n_rows(self) -> int | None:
        if self._n_rows is None and self.columns.missing != "drop" and self.columns.weight is None:
            return self.table.n_rows
        return self._n_rows


def fits_in_memory(table: Table, columns: Columns, budget: float | None = None) -> bool:
    """Whether the encoded rows take at most so many bytes; by default a quarter of the memory."""
    if budget is None:
        budget = MEMORY_SHARE * (memory() or SOME_MEMORY)
    per_row = 8 * columns.width
    if columns.is_sparse(table.n_rows):
        per_row = 12 * len(columns.features) + 8
    labels = 8 + 8 * (columns.weight is not None) + LABEL_BYTES * bool(columns.group)
    return table.n_rows * (per_row + labels) <= budget
