"""Batches of the usable rows of a table, with their targets, groups and weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from counterpoise.common.arguments import check_choice
from counterpoise.tabular.cells import BOOLEAN, NOTHING, NUMBER, kind_of
from counterpoise.tabular.errors import DataError, check_names
from counterpoise.tabular.indicators import (
    encode_into,
    encode_sparse,
    missing_masks,
    refuse_missing,
)
from counterpoise.tabular.labels import group_codes, joined_memberships, memberships
from counterpoise.tabular.layout import UNSEEN, TableLayout
from counterpoise.tabular.table import ROWS, Table
from counterpoise.tabular.targets import (
    class_codes,
    class_labels,
    has_weight,
    target_numbers,
    weight_numbers,
)

Array = np.ndarray


class RowBatches:
    """Batches of the usable rows of a table, and their targets, groups and weights.

    Rows with a missing value are left out if the layout says so, and rows of weight 0 if
    ``labelled``.
    """

    def __init__(self, table: Table, layout: TableLayout, labelled: bool, unseen: str) -> None:
        check_choice("unseen", unseen, UNSEEN)
        self.table, self.layout = table, layout
        self.labelled, self.unseen = labelled, unseen
        check_names(layout.inputs, table.names, table.where, "feature")
        if labelled:
            check_names(layout.roles, table.names, table.where)
        there = {field.name: kind_of(field.type) for field in table.schema}
        self.has_target = layout.target is not None and (
            layout.target in there if layout.classes else self._usable(there.get(layout.target))
        )
        self.has_groups = layout.has_groups and all(name in there for name in layout.grouping)
        self.has_weight = layout.weight is not None and self._usable(there.get(layout.weight))
        self.names = [
            *layout.inputs,
            *([layout.target] if self.has_target and layout.target else []),
            *(layout.group if self.has_groups else ()),
            *([layout.weight] if self.has_weight and layout.weight else []),
        ]

    def _usable(self, kind: str | None) -> bool:
        return self.labelled or kind in (NUMBER, BOOLEAN, NOTHING)

    def batches(self, rows: int = ROWS) -> Iterator[tuple[int, int, Array, Any]]:
        """Yield ``(start, stop, keep, batch)`` for every batch.

        These are the range of rows read, the positions of those kept within it, and the kept rows.
        """
        stop = 0
        for batch in self.table.batches(self.names, rows):
            start, stop = stop, stop + batch.num_rows
            keep = np.arange(batch.num_rows)
            if self.labelled and self.layout.weight is not None:
                keep = np.flatnonzero(has_weight(batch, self.layout.weight))
                if len(keep) < batch.num_rows:
                    batch = batch.take(keep)
            if self.layout.missing == "drop":
                gone = missing_masks(batch, self.names if self.labelled else self.layout.inputs)
                if gone:
                    whole = np.flatnonzero(~np.logical_or.reduce(list(gone.values())))
                    keep, batch = keep[whole], batch.take(whole)
            elif self.labelled:
                self._refuse(batch)
            yield start, stop, keep, batch

    def _refuse(self, batch: Any) -> None:
        layout = self.layout
        needed = {name for name in layout.roles if name not in layout.group}
        if layout.missing == "refuse":
            needed.update(layout.group)
        found = missing_masks(batch, [name for name in layout.roles if name in needed])
        refuse_missing(
            {name: int(mask.sum()) for name, mask in found.items()},
            "leave these rows out, or use missing='drop'",
        )

    def nothing(self) -> DataError:
        """The error for a table without usable rows."""
        weight = self.layout.weight if self.labelled else None
        why = "" if weight is None else f" or weight 0 in {weight!r}"
        return DataError(
            f"every row of {self.table.where} has a missing value{why}; use other rows"
        )

    def encode(self, batch: Any, as_sparse: bool = False) -> Any:
        """The encoded features of a batch, dense or CSR."""
        if as_sparse:
            return encode_sparse(self.layout, batch, self.unseen)
        out = np.empty((batch.num_rows, self.layout.width))
        encode_into(self.layout, batch, out, self.unseen)
        return out

    def labels(self, batch: Any) -> tuple[Array | None, Any, Array | None]:
        """Targets, groups and weights of a batch; None for those that the table lacks."""
        layout = self.layout
        y = groups = None
        if self.has_target and layout.target is not None:
            if layout.classes:
                codes = class_codes(batch, layout.target, layout.classes)
                y = class_labels(codes, layout.classes)
            else:
                y = target_numbers(batch, layout.target)
        if self.has_groups:
            groups = batch_groups(batch, layout)
        weights = None
        if self.has_weight and layout.weight is not None:
            weights = weight_numbers(batch, layout.weight)
        return y, groups, weights


def batch_groups(batch: Any, layout: TableLayout) -> Any:
    """The groups of the rows of a batch, as the layout makes them of their columns."""
    if layout.overlapping:
        return memberships(batch, layout.group, layout.crossed)
    labels, places = group_codes(batch, layout.group, layout.labels, layout.crossed)
    return labels[places]


def joined(parts: tuple[Any, ...]) -> Any:
    """Join parts of a column; labels are text if any part of them is."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    if not isinstance(found[0], Array):
        return joined_memberships(found)
    kinds = {part.dtype.kind for part in found}
    if "U" in kinds and "O" not in kinds:
        found = [part.astype(str) for part in found]
    return np.concatenate(found)
