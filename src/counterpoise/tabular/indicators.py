"""Features as numbers: categories by an indicator for every level but the base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.common.arguments import check_choice
from counterpoise.tabular.cells import is_missing, numbers, words
from counterpoise.tabular.dates import date_parts
from counterpoise.tabular.errors import DataError, check_names, listed
from counterpoise.tabular.layout import NONE, UNSEEN, Feature, TableLayout
from counterpoise.tabular.table import as_table

Array = np.ndarray


def encode(layout: TableLayout, data: Any, unseen: str = "refuse") -> Any:
    """Encode the features of rows as numbers.

    Parameters
    ----------
    layout : TableLayout
    data : Table, data frame, Arrow table or batch, or mapping of columns
    unseen : {"refuse", "base"}
        Categories that the layout does not know are an error, or count as the base level.

    Returns
    -------
    float64 array of shape (n, width), or a CSR matrix if that is much smaller
    """
    check_choice("unseen", unseen, UNSEEN)
    table = as_table(data)
    check_names(layout.inputs, table.names, table.where, "feature")
    if layout.is_sparse(table.n_rows):
        parts = [encode_sparse(layout, b, unseen) for b in table.batches(layout.inputs)]
        return sparse.vstack(parts).tocsr()
    out, start = np.empty((table.n_rows, layout.width)), 0
    for batch in table.batches(layout.inputs):
        encode_into(layout, batch, out[start : start + batch.num_rows], unseen)
        start += batch.num_rows
    return out


def encode_into(layout: TableLayout, batch: Any, out: Array, unseen: str) -> None:
    """Encode the rows of a batch into the rows of an array."""
    _refuse_missing(layout, batch)
    at = 0
    for feature, column in feature_columns(layout, batch):
        if feature.kind == "category":
            levels = level_codes(feature, column, unseen)
            here = out[:, at : at + len(feature.levels) - 1]
            here[:] = 0.0
            rows = np.flatnonzero(levels)
            here[rows, levels[rows] - 1] = 1.0
        else:
            out[:, at] = filled(feature, column)
        at += len(feature.names)


def encode_sparse(layout: TableLayout, batch: Any, unseen: str) -> Any:
    """Encode the rows of a batch as CSR."""
    _refuse_missing(layout, batch)
    at = 0
    rows, places, values = [], [], []
    for feature, column in feature_columns(layout, batch):
        if feature.kind == "category":
            levels = level_codes(feature, column, unseen)
            there = np.flatnonzero(levels)
            places.append(at + levels[there] - 1)
            values.append(np.ones(len(there)))
        else:
            found = filled(feature, column)
            there = np.flatnonzero(found)
            places.append(np.full(len(there), at))
            values.append(found[there])
        rows.append(there)
        at += len(feature.names)
    entries = (np.concatenate(rows), np.concatenate(places))
    return sparse.csr_matrix((np.concatenate(values), entries), (batch.num_rows, layout.width))


def feature_columns(layout: TableLayout, batch: Any) -> Iterator[tuple[Feature, Any]]:
    """Every feature with its values: a column of the batch, or the part of a date."""
    parts = {name: date_parts(batch.column(name), name) for name in layout.dates}
    for feature in layout.features:
        if feature.part is None:
            yield feature, batch.column(feature.name)
        else:
            yield feature, parts[feature.name][feature.part]


def filled(feature: Feature, column: Any) -> Array:
    """The numbers of a feature, with missing ones filled in."""
    found = numbers(column, feature.title)
    if feature.kind == "boolean":
        wrong = found[~(np.isnan(found) | (found == 0) | (found == 1))]
        if len(wrong):
            raise DataError(
                f"column {feature.name!r} was true or false in the fit and has {wrong[0]:g} now; "
                "write true, false, 1 or 0"
            )
    if feature.fill is not None:
        found = np.where(np.isnan(found), feature.fill, found)
    return found


def level_codes(feature: Feature, column: Any, unseen: str) -> Array:
    """The position of every row's level.

    It is 0, the base level, for unseen values with ``unseen="base"``, and for missing values if no
    level stands for them.
    """
    codes, values = words(column)
    number = {level: i for i, level in enumerate(feature.levels)}
    place = np.array([*(number.get(value, -1) for value in values), number.get(NONE, 0)])
    found = place[codes]
    if unseen == "refuse" and (found < 0).any():
        strange = [values[code] for code in dict.fromkeys(codes[found < 0].tolist())]
        raise DataError(
            f"column {feature.title!r} has values that the fit never saw: {listed(strange, 5)}; it "
            f"knows {listed(feature.levels)}. Correct them, fit again with such rows, or count "
            f"them as the base level {feature.levels[0]!r} with unseen='base'",
            argument="unseen",
        )
    return np.maximum(found, 0)


def missing_masks(batch: Any, names: Sequence[str]) -> dict[str, Array]:
    """Where values are missing, for the columns in which some are."""
    found = {name: is_missing(batch.column(name)) for name in dict.fromkeys(names)}
    return {name: mask for name, mask in found.items() if mask.any()}


def missing_message(counts: dict[str, int], remedy: str) -> str:
    where = ", ".join(f"{name!r} ({count:,})" for name, count in counts.items())
    return f"values are missing in the column{'s' * (len(counts) > 1)} {where}; {remedy}"


def refuse_missing(counts: dict[str, int], remedy: str) -> None:
    if counts:
        raise DataError(missing_message(counts, remedy), argument="missing")


def _refuse_missing(layout: TableLayout, batch: Any) -> None:
    if layout.missing == "impute":
        return
    found = missing_masks(batch, layout.inputs)
    refuse_missing(
        {name: int(mask.sum()) for name, mask in found.items()},
        "leave these rows out or fill them in, or fit again with missing='impute'",
    )
