"""Batches of the rows that can be used, with their labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from counterpoise.common.arguments import check_choice
from counterpoise.tabular.cells import BOOLEAN, NOTHING, NUMBER, kind_of
from counterpoise.tabular.columns import UNSEEN, Columns
from counterpoise.tabular.errors import DataError, check_names
from counterpoise.tabular.indicators import (
    encode_into,
    encode_sparse,
    missing_masks,
    refuse_missing,
)
from counterpoise.tabular.labels import group_labels
from counterpoise.tabular.table import ROWS, Table
from counterpoise.tabular.targets import has_weight, target_numbers, weight_numbers

Array = np.ndarray


class Reader:
    """Batches of the rows that can be used, and their labels.

    Rows that miss a value are left out if the columns say so, and rows of weight 0 if they are to
    have labels.
    """

    def __init__(self, table: Table, columns: Columns, labelled: bool, unseen: str) -> None:
        check_choice("unseen", unseen, UNSEEN)
        self.table, self.columns = table, columns
        self.labelled, self.unseen = labelled, unseen
        check_names(columns.inputs, table.names, table.where, "feature")
        if labelled:
            check_names(columns.roles, table.names, table.where)
        there = {field.name: kind_of(field.type) for field in table.schema}
        self.has_target = self._usable(there.get(columns.target))
        self.has_groups = bool(columns.group) and all(name in there for name in columns.group)
        self.has_weight = columns.weight is not None and self._usable(there.get(columns.weight))
        self.names = [
            *columns.inputs,
            *([columns.target] if self.has_target else []),
            *(columns.group if self.has_groups else ()),
            *([columns.weight] if self.has_weight and columns.weight else []),
        ]

    def _usable(self, kind: str | None) -> bool:
        return self.labelled or kind in (NUMBER, BOOLEAN, NOTHING)

    def batches(self, rows: int = ROWS) -> Iterator[tuple[int, int, Array, Any]]:
        """``(start, stop, keep, batch)``: where its rows are in the table, those kept of them, and
        these alone."""
        stop = 0
        for batch in self.table.batches(self.names, rows):
            start, stop = stop, stop + batch.num_rows
            keep = np.arange(batch.num_rows)
            if self.labelled and self.columns.weight is not None:
                keep = np.flatnonzero(has_weight(batch, self.columns.weight))
                if len(keep) < batch.num_rows:
                    batch = batch.take(keep)
            if self.columns.missing == "drop":
                gone = missing_masks(batch, self.names if self.labelled else self.columns.inputs)
                if gone:
                    whole = np.flatnonzero(~np.logical_or.reduce(list(gone.values())))
                    keep, batch = keep[whole], batch.take(whole)
            elif self.labelled:
                self._refuse(batch)
            yield start, stop, keep, batch

    def _refuse(self, batch: Any) -> None:
        columns = self.columns
        needed = {name for name in columns.roles if name not in columns.group}
        if columns.missing == "refuse":
            needed.update(columns.group)
        found = missing_masks(batch, [name for name in columns.roles if name in needed])
        refuse_missing(
            {name: int(mask.sum()) for name, mask in found.items()},
            "leave these rows out, or learn the columns with --missing drop",
        )

    def nothing(self) -> DataError:
        """The error where no row is left."""
        weight = self.columns.weight if self.labelled else None
        why = (
            "misses a value" if weight is None else f"misses a value or has weight 0 in {weight!r}"
        )
        return DataError(f"every row of {self.table.where} {why}; there is nothing to use")

    def encode(self, batch: Any, as_sparse: bool = False) -> Any:
        """The features of a batch, dense or not."""
        if as_sparse:
            return encode_sparse(self.columns, batch, self.unseen)
        out = np.empty((batch.num_rows, self.columns.width))
        encode_into(self.columns, batch, out, self.unseen)
        return out

    def labels(self, batch: Any) -> tuple[Array | None, Array | None, Array | None]:
        """Targets, groups and weights of a batch, None where the table has none."""
        columns = self.columns
        y = target_numbers(batch, columns.target) if self.has_target else None
        groups = group_labels(batch, columns.group, columns.labels) if self.has_groups else None
        weights = None
        if self.has_weight and columns.weight is not None:
            weights = weight_numbers(batch, columns.weight)
        return y, groups, weights


def joined(parts: tuple[Array | None, ...]) -> Array | None:
    """Parts of a column; labels are text if any part of them is."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    if any(part.dtype.kind == "U" for part in found):
        found = [part.astype(str) for part in found]
    return np.concatenate(found)
