"""A uniform sample of a table's rows, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.arguments import check_whole
from counterpoise.tabular.columns import Columns
from counterpoise.tabular.errors import DataError
from counterpoise.tabular.learning import RowProgress
from counterpoise.tabular.reader import Reader, joined
from counterpoise.tabular.rows import Rows
from counterpoise.tabular.table import as_table

Array = np.ndarray

# Rows of a group that are kept where there is room for them.
LEAST = 16


@dataclass(frozen=True)
class _Pool:
    """Rows that may be in the sample: each has drawn a key, and the smallest keys win."""

    X: Any
    labels: tuple[Array | None, Array | None, Array | None]
    keys: Array
    kept: Array

    def take(self, rows: Array) -> _Pool:
        labels = tuple(None if part is None else part[rows] for part in self.labels)
        return _Pool(self.X[rows], labels, self.keys[rows], self.kept[rows])  # type: ignore[arg-type]

    @classmethod
    def of(cls, pools: list[_Pool]) -> _Pool:
        matrices = [pool.X for pool in pools]
        X = (
            sparse.vstack(matrices).tocsr()
            if sparse.issparse(matrices[0])
            else np.concatenate(matrices)
        )
        labels = tuple(joined(part) for part in zip(*(pool.labels for pool in pools), strict=True))
        keys, kept = (np.concatenate([getattr(p, n) for p in pools]) for n in ("keys", "kept"))
        return cls(X, labels, keys, kept)  # type: ignore[arg-type]


def sample_rows(
    table: Any,
    columns: Columns,
    limit: int,
    seed: int = 0,
    *,
    progress: RowProgress | None = None,
) -> Rows:
    """At most so many rows, drawn uniformly; in the order of the table.

    Every group keeps a few rows, up to 16, if half of the limit suffices for that. The same seed
    draws the same rows, wherever the table is cut into batches.
    """
    check_whole("limit", limit, 1)
    table = as_table(table)
    reader = Reader(table, columns, True, "refuse")
    rng = np.random.default_rng(seed)
    as_sparse = columns.is_sparse(limit)
    pool: _Pool | None = None
    waiting: list[_Pool] = []
    seen: set[Any] = set()
    least = LEAST
    for start, stop, keep, batch in reader.batches():
        keys = rng.random(stop - start)[keep]
        labels = reader.labels(batch)
        if labels[1] is not None:
            seen.update(np.unique(labels[1]).tolist())
            least = _least(len(seen), limit)
        rows = _candidates(keys, labels[1], limit, least)
        if pool is not None and len(pool.keys) >= limit:
            groups = None if labels[1] is None else labels[1][rows]
            rows = rows[_may_enter(pool, keys[rows], groups, limit, least)]
        if len(rows):
            some = tuple(None if part is None else part[rows] for part in labels)
            X = reader.encode(batch.take(rows), as_sparse)
            waiting.append(_Pool(X, some, keys[rows], start + keep[rows]))  # type: ignore[arg-type]
        if sum(len(one.keys) for one in waiting) > limit:
            pool = _pruned(pool, waiting, limit, least)
            waiting = []
        if progress is not None:
            progress(stop, table.n_rows)
    pool = _pruned(pool, waiting, limit, least)
    if pool is None:
        raise DataError(f"every row of {table.where} misses a value; there is nothing to use")
    rows = _chosen(pool.keys, pool.labels[1], limit, least)
    chosen = pool.take(rows[np.argsort(pool.kept[rows])])
    y, groups, weights = chosen.labels
    return Rows(chosen.X, y, groups, weights, columns.names, chosen.kept)


def _least(n_groups: int, limit: int) -> int:
    """Rows that every group keeps; none where there are more groups than rows may be."""
    return min(LEAST, max(limit // (2 * n_groups), int(n_groups <= limit))) if n_groups else LEAST


def _pruned(pool: _Pool | None, waiting: list[_Pool], limit: int, least: int) -> _Pool | None:
    pools = [*([] if pool is None else [pool]), *waiting]
    if not pools:
        return None
    found = _Pool.of(pools)
    return found.take(_candidates(found.keys, found.labels[1], limit, least))


def _candidates(keys: Array, groups: Array | None, limit: int, least: int) -> Array:
    """Rows that can still be chosen when more come: the smallest keys, and those of each group.

    More groups may come, so that each keeps fewer; never more."""
    first = np.argsort(keys)[:limit]
    if groups is None:
        return np.sort(first)
    return np.union1d(first, _of_groups(keys, groups, least))


def _may_enter(
    pool: _Pool, keys: Array, groups: Array | None, limit: int, least: int
) -> Array:  # fmt: skip
    """Which rows would take the place of another of the pool; others need not be encoded."""
    enter = keys < np.partition(pool.keys, limit - 1)[limit - 1]
    known = pool.labels[1]
    if groups is None or known is None or not least:
        return enter
    names, codes = np.unique(known, return_inverse=True)
    order, place = _ranks(pool.keys, codes)
    bars = np.full(len(names), np.inf)
    last = order[place == least - 1]
    bars[codes[last]] = pool.keys[last]
    at = np.minimum(np.searchsorted(names, groups), len(names) - 1)
    return enter | (keys < np.where(names[at] == groups, bars[at], np.inf))


def _chosen(keys: Array, groups: Array | None, limit: int, least: int) -> Array:
    """The rows of the smallest keys, after a few of every group."""
    order = np.argsort(keys)
    if groups is None:
        return order[:limit]
    few = _of_groups(keys, groups, least)
    rest = order[~np.isin(order, few)]
    return np.concatenate([few, rest[: limit - len(few)]])


def _of_groups(keys: Array, groups: Array, least: int) -> Array:
    """Rows of the smallest keys of every group."""
    order, place = _ranks(keys, np.unique(groups, return_inverse=True)[1])
    return order[place < least]


def _ranks(keys: Array, codes: Array) -> tuple[Array, Array]:
    """Rows in the order of group and key, and the place of each within its group."""
    order = np.lexsort((keys, codes))
    return order, np.arange(len(order)) - np.searchsorted(codes[order], codes[order])
