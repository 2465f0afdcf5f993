"""Labels of groups, from one column or several crossed columns, and from classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.types as kinds
from scipy import sparse

from counterpoise.assessment.record import CROSSED
from counterpoise.tabular.cells import (
    BOOLEAN,
    LARGEST_WHOLE,
    NUMBER,
    WORD,
    described,
    kind_of,
    numbers,
    words,
)
from counterpoise.tabular.errors import DataError
from counterpoise.tabular.layout import NONE

Array = np.ndarray

# Joins the values of crossed columns.
BETWEEN = CROSSED


def check_group_type(name: str, kind: Any) -> None:
    """Check that a group column holds text, whole numbers, booleans or categories."""
    if kind_of(kind) not in (WORD, NUMBER, BOOLEAN):
        remedy = (
            "derive a text column from it, such as the month or the year"
            if kinds.is_temporal(kind)
            else "use a column of text or whole numbers"
        )
        raise DataError(f"group column {name!r} holds {described(kind)}; {remedy}")


def group_codes(
    batch: Any, group: Sequence[str], labels: str = "text", target: str | None = None
) -> tuple[Array, Array]:
    """Labels, and for every row the position of its label; some labels may have no row.

    With ``labels="integer"``, integers, unless a row has something else. The columns are crossed
    with the classes of the ``target``, if one is given. A row without a value has
    ``"(missing)"``.
    """
    if labels == "integer":
        found = _integers(batch.column(group[0]), group[0])
        if found is not None:
            return np.unique(found, return_inverse=True)
    crossed = len(group) + (target is not None) > 1
    parts = [_texts(words(batch.column(name)), name, crossed) for name in group]
    if target is not None:
        told = class_texts(batch.column(target), target)
        parts.append(_texts(told, target, crossed, "target"))
    codes, values = parts[0]
    for more, others in parts[1:]:
        there, codes = np.unique(codes * len(others) + more, return_inverse=True)
        values = [
            f"{values[at // len(others)]}{BETWEEN}{others[at % len(others)]}"
            for at in there.tolist()
        ]
    return np.array(values, dtype=str), codes.reshape(-1)


def side_by_side_codes(
    batch: Any, group: Sequence[str], target: str | None = None
) -> Iterator[tuple[Array, Array]]:
    """For each column, labels such as ``sex=f`` and the position of every row's label."""
    for name in group:
        labels, codes = group_codes(batch, [name], "text", target)
        yield np.array([f"{name}={label}" for label in labels.tolist()], dtype=str), codes


def memberships(batch: Any, group: Sequence[str], target: str | None = None) -> Any:
    """The groups of every row, one for each column, as :class:`counterpoise.Memberships`."""
    from counterpoise.rows.memberships import Memberships

    blocks, names, n = [], [], batch.num_rows
    for labels, codes in side_by_side_codes(batch, group, target):
        there, places = np.unique(codes, return_inverse=True)
        shape = (n, len(there))
        blocks.append(sparse.csr_matrix((np.ones(n), places.ravel(), np.arange(n + 1)), shape))
        names += labels[there].tolist()
    return Memberships(sparse.hstack(blocks, format="csr"), names)


def joined_memberships(parts: Sequence[Any]) -> Any:
    """The memberships of rows in parts, which may differ in their groups."""
    from counterpoise.rows.memberships import Memberships

    names = sorted({name for part in parts for name in part.labels.tolist()})
    place = {name: k for k, name in enumerate(names)}
    blocks = []
    for part in parts:
        found = part.matrix.tocoo()
        at = np.array([place[name] for name in part.labels.tolist()], dtype=np.int64)
        entries = (found.data, (found.row, at[found.col]))
        blocks.append(sparse.csr_matrix(entries, (found.shape[0], len(names))))
    return Memberships(sparse.vstack(blocks, format="csr"), names)


def check_whole_labels(column: Any, name: str) -> None:
    """Check that numbers that name groups are whole."""
    if kinds.is_floating(column.type) or kinds.is_decimal(column.type):
        found = numbers(column, name)
        wrong = found[~np.isnan(found) & ((found != np.rint(found)) | (abs(found) > LARGEST_WHOLE))]
        if len(wrong):
            raise not_whole(name, f"{wrong[0]:g}")


def not_whole(name: str, example: str) -> DataError:
    return DataError(
        f"group column {name!r} holds numbers that are not whole, such as {example}; put them into "
        f"a few bins first (for example '{name}_bin' with 'low', 'middle', 'high'), or use another "
        "column"
    )


def may_be_integers(kind: Any) -> bool:
    """Whether the numbers of a column can serve as labels unchanged."""
    return kind_of(kind) == NUMBER and not kinds.is_uint64(kind)


def _integers(column: Any, name: str) -> Array | None:
    if column.null_count or not may_be_integers(column.type):
        return None
    if kinds.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    found = numbers(column, name)
    whole = (found == np.rint(found)).all() and (abs(found) <= LARGEST_WHOLE).all()
    return found.astype(np.int64) if whole else None


def class_texts(column: Any, name: str) -> tuple[Array, list[str]]:
    """For every row the code of its class, -1 if missing; and the classes as text."""
    kind = kind_of(column.type)
    if kind not in (NUMBER, BOOLEAN):
        return words(column)
    found = numbers(column, name)
    values, codes = np.unique(found, return_inverse=True)
    texts = [str(bool(value)) if kind == BOOLEAN else f"{value:.0f}" for value in values.tolist()]
    if len(values) and np.isnan(values[-1]):
        texts.pop()
        codes = np.where(np.isnan(found), -1, codes)
    return codes, texts


def _texts(
    found: tuple[Array, list[str]], name: str, crossed: bool, role: str = "group"
) -> tuple[Array, list[str]]:
    codes, values = found
    clash = next((value for value in values if BETWEEN in value), None) if crossed else None
    if clash is not None:
        raise DataError(
            f"{role} column {name!r} has the value {clash!r}, and labels of crossed groups are "
            f"joined with {BETWEEN!r}; replace it in the column"
        )
    cut = next((value for value in values if value.endswith("\0")), None)
    if cut is not None:
        raise DataError(
            f"{role} column {name!r} has the value {cut!r}, which ends in a NUL character that "
            "labels cannot keep; remove it"
        )
    return np.where(codes < 0, len(values), codes), [*values, NONE]
