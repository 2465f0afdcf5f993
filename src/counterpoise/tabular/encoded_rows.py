"""Encoded rows of a table: all in memory, or in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.common.machine import memory
from counterpoise.rows.sources import Chunk, Source, check_chunk_rows, rows_per_chunk
from counterpoise.tabular.indicators import encode_into
from counterpoise.tabular.layout import TableLayout
from counterpoise.tabular.row_batches import RowBatches, joined
from counterpoise.tabular.scanning import RowProgress
from counterpoise.tabular.table import as_table

Array = np.ndarray

# The share of the machine's memory that encoded rows may take, and the memory assumed if it cannot
# be determined.
MEMORY_SHARE, SOME_MEMORY = 0.25, 4e9
# Approximate bytes of a row's label.
LABEL_BYTES = 64


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a table, ready to fit or predict.

    Attributes
    ----------
    X : float64 array or CSR matrix of shape (n, width)
    y : array of shape (n,) or None
        Numbers, or classes as text, integers or booleans.
    groups : array of shape (n,), Memberships or None
    sample_weight : array of shape (n,) or None
    feature_names : tuple of str
    kept : array of shape (n,), the positions of these rows in the table
    """

    X: Any
    y: Array | None
    groups: Any
    sample_weight: Array | None
    feature_names: tuple[str, ...]
    kept: Array

    def __len__(self) -> int:
        return len(self.kept)


def read_rows(
    table: Any,
    layout: TableLayout,
    *,
    labelled: bool = True,
    unseen: str = "refuse",
    progress: RowProgress | None = None,
) -> EncodedRows:
    """Read all rows of a table into memory, except those of weight 0.

    Parameters
    ----------
    table : Table, data frame or mapping of columns
    layout : TableLayout
    labelled : bool
        Whether the table must have the target, group and weight columns. If False, those that it
        has are returned, with NaN, None (for classes) or ``"(missing)"`` for missing values, and
        rows of weight 0 are kept.
    unseen : {"refuse", "base"}
        Categories that the layout does not know are an error, or count as the base level.
    progress : function of (rows read, rows in all), optional

    Returns
    -------
    EncodedRows
    """
    table = as_table(table)
    reader = RowBatches(table, layout, labelled, unseen)
    as_sparse = layout.is_sparse(table.n_rows)
    X = None if as_sparse else np.empty((table.n_rows, layout.width))
    matrices, parts, kept, done = [], [], [], 0
    for start, stop, keep, batch in reader.batches():
        if X is None:
            matrices.append(reader.encode(batch, as_sparse=True))
        else:
            encode_into(layout, batch, X[done : done + batch.num_rows], unseen)
        parts.append(reader.labels(batch))
        kept.append(start + keep)
        done += batch.num_rows
        if progress is not None:
            progress(stop, table.n_rows)
    if not done:
        raise reader.nothing()
    y, groups, weights = (joined(part) for part in zip(*parts, strict=True))
    return EncodedRows(
        X=sparse.vstack(matrices).tocsr() if X is None else X[:done],
        y=y,
        groups=groups,
        sample_weight=weights,
        feature_names=layout.names,
        kept=np.concatenate(kept),
    )


class TableSource(Source):
    """The rows of a table in chunks, for fits to more rows than fit in memory.

    Parameters
    ----------
    table : Table, data frame or mapping of columns
    layout : TableLayout
    n_rows : int, optional
        Rows used, if known. Needed only if rows may be left out, because of missing values or
        weight 0.
    chunk_rows : int, optional
        Rows per chunk; by default 16 MB of them.
    """

    def __init__(
        self,
        table: Any,
        layout: TableLayout,
        *,
        n_rows: int | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self.table, self.layout = as_table(table), layout
        self.chunk_rows = check_chunk_rows(chunk_rows) or rows_per_chunk(8 * layout.width)
        self._reader = RowBatches(self.table, layout, True, "refuse")
        self._sparse = layout.is_sparse(self.table.n_rows)
        self._n_rows = n_rows

    def __iter__(self) -> Iterator[Chunk]:
        for _, _, _, batch in self._reader.batches(self.chunk_rows):
            if batch.num_rows:
                X = self._reader.encode(batch, self._sparse)
                yield X, *self._reader.labels(batch)

    @property
    def n_rows(self) -> int | None:
        if self._n_rows is None and self.layout.missing != "drop" and self.layout.weight is None:
            return self.table.n_rows
        return self._n_rows


def fits_in_memory(table: Any, layout: TableLayout, budget: float | None = None) -> bool:
    """Whether the encoded rows fit in a budget of bytes; by default a quarter of the memory."""
    table = as_table(table)
    if budget is None:
        budget = MEMORY_SHARE * (memory() or SOME_MEMORY)
    per_row = 8 * layout.width
    if layout.is_sparse(table.n_rows):
        per_row = 12 * len(layout.features) + 8
    texts = layout.has_groups + bool(layout.classes)
    labels = 8 + 8 * (layout.weight is not None) + LABEL_BYTES * texts
    return table.n_rows * (per_row + labels) <= budget
