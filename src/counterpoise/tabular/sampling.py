"""A uniform sample of a table's rows, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.common.arguments import check_whole
from counterpoise.tabular.encoded_rows import EncodedRows
from counterpoise.tabular.labels import group_codes
from counterpoise.tabular.layout import TableLayout
from counterpoise.tabular.row_batches import RowBatches, joined
from counterpoise.tabular.scanning import RowProgress
from counterpoise.tabular.table import as_table

Array = np.ndarray

# Rows of each group to keep, if the limit allows.
LEAST = 16


@dataclass(frozen=True)
class _Pool:
    """Candidate rows, each with a random key; the rows with the smallest keys are the sample."""

    X: Any
    labels: tuple[Array | None, Any, Array | None]
    keys: Array
    codes: Array
    kept: Array

    def take(self, rows: Array) -> _Pool:
        y, groups, weights = (None if part is None else part[rows] for part in self.labels)
        X, own = self.X[rows], (part[rows] for part in (self.keys, self.codes, self.kept))
        return _Pool(X, (y, groups, weights), *own)

    @classmethod
    def of(cls, pools: list[_Pool]) -> _Pool:
        X = [pool.X for pool in pools]
        wide = sparse.issparse(X[0])
        y, groups, weights = map(joined, zip(*(pool.labels for pool in pools), strict=True))
        own = (
            np.concatenate([getattr(pool, name) for pool in pools])
            for name in ("keys", "codes", "kept")
        )
        rows = sparse.vstack(X).tocsr() if wide else np.concatenate(X)
        return cls(rows, (y, groups, weights), *own)


class _Groups:
    """Numbers the groups in order of appearance."""

    def __init__(self, layout: TableLayout, limit: int) -> None:
        self.layout, self.limit = layout, limit
        self.number: dict[str, int] = {}

    def codes(self, batch: Any) -> Array:
        layout = self.layout
        if not layout.has_groups:
            return np.zeros(batch.num_rows, dtype=np.int64)
        labels, codes = group_codes(batch, layout.group, layout.labels, layout.crossed)
        there = np.bincount(codes, minlength=len(labels)) > 0
        place = np.zeros(len(labels), dtype=np.int64)
        for at in np.flatnonzero(there).tolist():
            place[at] = self.number.setdefault(str(labels[at]), len(self.number))
        return place[codes]

    @property
    def least(self) -> int:
        """Rows that every group keeps; 0 if there are more groups than the limit."""
        groups = max(1, len(self.number))
        return min(LEAST, max(self.limit // (2 * groups), int(groups <= self.limit)))


def sample_rows(
    table: Any,
    layout: TableLayout,
    limit: int,
    seed: int = 0,
    *,
    progress: RowProgress | None = None,
) -> EncodedRows:
    """Draw at most ``limit`` rows uniformly; they stay in the order of the table.

    Every group keeps up to 16 rows if half of the limit suffices for that, and one if the limit
    allows it. The same seed draws the same rows, however the table is cut into batches.
    """
    check_whole("limit", limit, 1)
    table = as_table(table)
    reader = RowBatches(table, layout, True, "refuse")
    rng = np.random.default_rng(seed)
    as_sparse = layout.is_sparse(limit)
    groups = _Groups(layout, limit)
    pool: _Pool | None = None
    waiting: list[_Pool] = []
    for start, stop, keep, batch in reader.batches():
        keys, codes = rng.random(stop - start)[keep], groups.codes(batch)
        rows = _candidates(keys, codes, limit, groups.least)
        if pool is not None and len(pool.keys) >= limit:
            rows = rows[_may_enter(pool, keys[rows], codes[rows], limit, groups)]
        if len(rows):
            some = batch.take(rows)
            X, labels = reader.encode(some, as_sparse), reader.labels(some)
            waiting.append(_Pool(X, labels, keys[rows], codes[rows], start + keep[rows]))
        if sum(len(one.keys) for one in waiting) > limit:
            pool, waiting = _pruned(pool, waiting, limit, groups.least), []
        if progress is not None:
            progress(stop, table.n_rows)
    pool = _pruned(pool, waiting, limit, groups.least)
    if pool is None:
        raise reader.nothing()
    rows = _chosen(pool.keys, pool.codes, limit, groups.least)
    chosen = pool.take(rows[np.argsort(pool.kept[rows])])
    return EncodedRows(chosen.X, *chosen.labels, layout.names, chosen.kept)


def _pruned(pool: _Pool | None, waiting: list[_Pool], limit: int, least: int) -> _Pool | None:
    pools = [*([] if pool is None else [pool]), *waiting]
    if not pools:
        return None
    found = _Pool.of(pools)
    return found.take(_candidates(found.keys, found.codes, limit, least))


def _candidates(keys: Array, codes: Array, limit: int, least: int) -> Array:
    """Rows that may still be chosen after more rows: the smallest keys overall and by group.

    With more groups, each keeps fewer rows, never more.
    """
    if len(keys) <= limit:
        return np.arange(len(keys))
    first = np.argpartition(keys, limit - 1)[:limit]
    return np.union1d(first, _of_groups(keys, codes, least))


def _may_enter(
    pool: _Pool, keys: Array, codes: Array, limit: int, groups: _Groups
) -> Array:  # fmt: skip
    """Which rows would replace one of the pool; the others need not be encoded."""
    bars = np.full(max(1, len(groups.number)), np.inf)  # groups with fewer rows take any
    order, place = _ranks(pool.keys, pool.codes)
    last = order[place == groups.least - 1]
    bars[pool.codes[last]] = pool.keys[last]
    smallest = keys < np.partition(pool.keys, limit - 1)[limit - 1]
    return smallest | ((keys < bars[codes]) & (groups.least > 0))


def _chosen(keys: Array, codes: Array, limit: int, least: int) -> Array:
    """A few rows of every group, then the rows with the smallest keys."""
    order, few = np.argsort(keys), _of_groups(keys, codes, least)
    rest = order[~np.isin(order, few)]
    return np.concatenate([few, rest[: limit - len(few)]])


def _of_groups(keys: Array, codes: Array, least: int) -> Array:
    """The rows with the smallest keys of every group."""
    order, place = _ranks(keys, codes)
    return order[place < least]


def _ranks(keys: Array, codes: Array) -> tuple[Array, Array]:
    """Rows ordered by group and key, and the rank of each within its group."""
    order = np.lexsort((keys, codes))
    return order, np.arange(len(order)) - np.searchsorted(codes[order], codes[order])
