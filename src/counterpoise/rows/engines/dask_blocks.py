"""Splitting of Dask collections into blocks of rows, with the matching labels and weights."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import compute, is_dask_collection
from dask.core import flatten
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import is_dataframe_like

from counterpoise.rows.engines.overlapping import few_patterns, too_many
from counterpoise.rows.frames import given
from counterpoise.rows.groups import as_labels
from counterpoise.rows.memberships import as_memberships

Array = np.ndarray


class Columns(NamedTuple):
    """The feature columns of a dataframe, and the type to read them as."""

    names: list[Any]
    dtype: type

    def read(self, frame: Any) -> Array:
        return frame[self.names].to_numpy(dtype=self.dtype, na_value=np.nan)


def plain(values: Any, name: str) -> Array:
    """Return a series or array as an array; missing numbers become NaN."""
    values = given(values, name)
    if name == "groups" or not hasattr(values, "to_numpy"):
        return np.asarray(values)
    return values.to_numpy(dtype=float, na_value=np.nan)


def features(X: Any, named: dict[str, Any]) -> tuple[Any, Columns | None]:
    """Return the rows, each within one block, and the feature columns of a dataframe."""
    is_array = isinstance(X, da.Array)
    if not (is_array or is_dataframe_like(X)) or X.ndim != 2:
        raise ValueError(f"X must be a Dask array or dataframe of two dimensions; got {X!r}")
    own = {name: value for name, value in named.items() if isinstance(value, str)}
    for name, value in own.items():
        if is_array or value not in X.columns:
            has = "is an array, without names" if is_array else f"has {[*X.columns][:20]!r}"
            raise ValueError(f"{name}={value!r} is not a column of X, which {has}; pass an array")
    if is_array:
        return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X, None
    types = {c: t for c, t in X.dtypes.items() if c not in own.values()}
    text = [c for c, t in X.dtypes.items() if t.kind not in "fiub" and c != own.get("groups")]
    if text:
        raise ValueError(f"columns {text[:20]!r} of X do not hold numbers; encode them, or leave "
                         "them out with X.drop(columns=[...])")  # fmt: skip
    single = all(t in (np.float32, np.float16) for t in types.values())
    return X, Columns([*types], np.float32 if single else np.float64)


def blocks(X: Any, named: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the pieces of X and of the other arrays for every block of rows."""
    like = Cuts(X)
    inputs = [X, *[like.cut(value, name) for name, value in named.items()]]
    # Arrays are optimised together, so that common inputs are computed once.
    arrays = [item for item in inputs if isinstance(item, da.Array)]
    merged = HighLevelGraph.merge(*[item.__dask_graph__() for item in arrays])
    graph = dict(da.Array.__dask_optimize__(merged, [item.__dask_keys__() for item in arrays]))

    def pieces(item: Any) -> list[Any]:
        if isinstance(item, da.Array):
            return [Delayed(key, graph) for key in flatten(item.__dask_keys__())]
        return item.to_delayed() if is_dask_collection(item) else item

    return list(zip(*map(pieces, inputs), strict=True))


class Cuts:
    """The borders between blocks of rows in a collection; lengths are computed only if needed."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.is_array = rows, isinstance(rows, da.Array)
        self.count = rows.numblocks[0] if self.is_array else rows.npartitions
        self.known = self.is_array and not np.isnan(rows.chunks[0]).any()

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        if self.known:
            return self.rows.chunks[0]
        blocks = self.rows.to_delayed()
        return compute(*map(delayed(len), blocks.ravel() if self.is_array else blocks))

    def cut(self, values: Any, name: str) -> Any:
        """Split one-dimensional values at these borders, into a collection or a list."""
        if (values is None and name != "y") or isinstance(values, str):
            return [values] * self.count
        if not is_dask_collection(values):
            values = given(values, name)
        theirs = Cuts(values) if is_dask_collection(values) else None
        values = as_labels(values) if theirs is None else values
        if values.ndim != 1 or (name != "groups" and values.dtype.kind not in "fiub"):
            kind = "labels" if name == "groups" else "numbers"
            raise ValueError(f"{name} must be one column of {kind}, or its name; got {values!r}")
        if theirs and not (self.known or theirs.known) and self.count == theirs.count:
            return values  # the workers compare the lengths
        n, m = sum(self.lengths), sum(theirs.lengths) if theirs else len(values)
        if n != m:
            raise ValueError(f"X has {n} rows but {name} has {m}; pass one entry for every row")
        if theirs is None:
            return np.split(values, np.cumsum(self.lengths)[:-1])
        if theirs.lengths == self.lengths:
            return values
        if not theirs.known:
            lazy = values
            if not theirs.is_array:
                lazy = values.map_partitions(plain, name, meta=np.empty(0))
            # Dask has no public name for the empty array that describes a collection.
            meta = lazy._meta  # noqa: SLF001
            values = da.Array(lazy.dask, lazy.name, (theirs.lengths,), meta=meta)
        return values.rechunk((self.lengths,))


def pattern_keys(groups: Any, n_features: int) -> Any:
    """Return memberships, lazy or in memory, as one column of patterns."""
    keys: Any = partial(block_keys, n_features=n_features)
    if not is_dask_collection(groups):
        return keys(groups)
    if isinstance(groups, da.Array):
        whole: Any = groups.rechunk({1: -1}) if groups.numblocks[1] > 1 else groups
        return whole.map_blocks(keys, drop_axis=1, dtype=object, meta=np.empty(0, dtype=object))
    return groups.map_partitions(keys, meta=np.empty(0, dtype=object))


def block_keys(groups: Any, n_features: int) -> Array:
    """Return the patterns of some rows as text, unless there are too many."""
    found = as_memberships(groups)
    if found is None:
        raise ValueError(f"groups must be a membership matrix; got {type(groups).__name__}")
    if len(found) and not few_patterns(found, n_features):
        raise too_many(found.patterns[1].shape[0], "dask")
    return found.keys()
