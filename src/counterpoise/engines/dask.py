"""Rows spread over the workers of a Dask cluster, or over threads where there is no cluster.

Blocks of rows become parts that stay where they were made. A question travels to them as a small
graph; sums come back through a tree of fixed shape, so answers do not depend on who did what.
Everything is made from the user's collections alone: what a lost worker held is made again.
"""

from __future__ import annotations

import copy
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.core import flatten
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof
from dask.utils import is_dataframe_like

from counterpoise.activations import Activation
from counterpoise.engines.base import SumEngine
from counterpoise.engines.chunked import to_part
from counterpoise.engines.parts import RowPart
from counterpoise.engines.questions import Question
from counterpoise.engines.scan import Scan, check_chunk
from counterpoise.engines.threads import single_threaded_blas
from counterpoise.groups import GroupedData, _as_labels

Array = np.ndarray

# How many partial sums one task adds up.
FAN_IN = 16


class DaskEngine(SumEngine):
    """Sums over the blocks of a Dask array or dataframe.

    ``y``, ``groups`` and ``sample_weight`` are Dask arrays or series, or arrays in memory, and
    belong to the rows of ``X`` by position; where ``X`` is a dataframe they may be names of its
    columns, which are then no features. The active ``distributed.Client`` does the work.
    """

    def __init__(self, X: Any, y: Any, groups: Any, sample_weight: Any, activation: Activation, *,
                 intercept: bool = True, centred: bool = True) -> None:  # fmt: skip
        named = {"y": y, "groups": groups, "sample_weight": sample_weight}
        X, columns = _features(X, named)
        self.feature_names = None if columns is None else columns.names
        load = delayed(partial(load_block, columns=columns, intercept=intercept), nout=2)
        loaded = [load(i, *block) for i, block in enumerate(_blocks(X, named))]
        scan = _tree([found for _, found in loaded], delayed(merge_scans))
        with _large_graphs():
            scan, *parts = dask.persist(scan, *[part for part, _ in loaded])
        self.scan: Scan = scan.compute()
        labels, place = delayed(getattr)(scan, "labels"), delayed(place_part)
        placed = []
        for part, home in zip(parts, _homes(parts), strict=True):
            with dask.annotate(**home):
                placed.append(place(part, labels))
        # Futures, or the parts themselves where there is no cluster.
        self._parts = [dict(part.dask)[part.key] for part in dask.persist(*placed)]
        super().__init__(self.scan.census(intercept=intercept, centred=centred), activation)
        self.counter.count = 1

    def checksum(self) -> Array:
        return np.array([self.scan.checksum])

    def ask(self, question: Question) -> Array:
        graph: dict[str, Any] = {}
        answer = partial(answer_part, question=question, n_groups=self.n_groups)
        token = uuid.uuid4().hex

        def task(kind: str, *work: Any) -> str:
            key = f"counterpoise-{kind}-{token}-{len(graph)}"
            graph[key] = work
            return key

        answers = [task("answer", answer, part) for part in self._parts]
        root = _tree(answers, partial(task, "add", add_answers))
        with _large_graphs():
            total = Delayed(root, graph).compute()
        self.counter.count += 1
        return np.require(total, requirements="W")


def predict(X: Any, function: Callable[[Array], Array], names: Sequence[Any] | None = None) -> Any:
    """``function`` of the rows of a Dask array or dataframe, block by block: a lazy Dask array.

    Of a dataframe, the columns ``names``, if given.
    """
    if names is not None and is_dataframe_like(X):
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"X has no columns {missing[:20]!r}, which the fit had as features")
        X = X[list(names)]
    X, columns = _features(X, {})
    if columns is not None:
        X = X.map_partitions(columns.read, meta=np.empty((0, len(columns.names))))
    return X.map_blocks(function, drop_axis=1, dtype=float, meta=np.empty(0))


# -- what workers do ---------------------------------------------------------------------------


class Columns(NamedTuple):
    """The feature columns of a dataframe, and as what type they are read."""

    names: list[Any]
    dtype: type

    def read(self, frame: Any) -> Array:
        return frame[self.names].to_numpy(dtype=self.dtype, na_value=np.nan)


def load_block(
    index: int, X: Any, *others: Any, columns: Columns | None, intercept: bool
) -> tuple[RowPart | None, Scan]:
    """One block, checked and sorted by group, with the first look at it."""
    where, given = f"block {index}", []
    for name, values in zip(("y", "groups", "sample_weight"), others, strict=True):
        values = X[values] if isinstance(values, str) else values
        if values is not None and len(values) != X.shape[0]:
            raise ValueError(
                f"{where}: X has {X.shape[0]} rows but {name} has {len(values)}; cut both into "
                "the same blocks, or give all as columns of one dataframe"
            )
        given.append(None if values is None else plain(values, name))
    y, groups, weights = given
    rows = check_chunk(X if columns is None else columns.read(X), y, groups, weights, where)
    part = to_part(rows, rows.labels, intercept, where) if len(rows.y) else None
    return part, Scan.of(rows)


def plain(values: Any, name: str) -> Array:
    """A series or array as an array; numbers that are missing become NaN."""
    if name == "groups" or not hasattr(values, "to_numpy"):
        return np.asarray(values)
    return values.to_numpy(dtype=float, na_value=np.nan)


def merge_scans(*scans: Scan) -> Scan:
    return reduce(Scan.merge, scans)


def place_part(part: RowPart | None, labels: Array) -> RowPart | None:
    """The same rows, which now know the problem's numbers for their groups."""
    placed = copy.copy(part)
    if placed is not None:
        placed.codes = np.searchsorted(labels, placed.data.labels)
    return placed


def answer_part(part: RowPart | None, question: Question, n_groups: int) -> Array | None:
    """A part's sums, with zeros for groups it does not have; None where there are no rows."""
    if part is None:
        return None
    with single_threaded_blas():
        sums = part.answer(question)
    if question.pooled or len(part.codes) == n_groups:
        return sums
    wide = np.zeros((n_groups, *sums.shape[1:]))
    wide[part.codes] = sums
    return wide


def add_answers(*sums: Array | None) -> Array | None:
    there = [s for s in sums if s is not None]
    return reduce(np.add, there) if there else None


@sizeof.register((RowPart, GroupedData, Scan))
def _size(rows: Any) -> int:
    """Without this the scheduler takes a part for a few bytes, and sends it about."""
    return sum(map(sizeof, vars(rows).values()))


# -- what the client does ----------------------------------------------------------------------


def _tree(items: list[Any], combine: Callable[..., Any]) -> Any:
    """Neighbours combined until one is left: a shape that depends on their number alone."""
    while len(items) > 1:
        runs = [items[i : i + FAN_IN] for i in range(0, len(items), FAN_IN)]
        items = [combine(*run) if len(run) > 1 else run[0] for run in runs]
    return items[0]


def _homes(parts: list[Any]) -> list[dict[str, Any]]:
    """Where parts should be, as annotations: where they are, but in no place more than its share.

    They stay for the whole fit, and a pass takes as long as the worker that holds most.
    """
    if "distributed" not in sys.modules or dask.get_annotations():
        return [{}] * len(parts)
    from distributed import futures_of, wait

    futures = futures_of(parts)
    if not futures:
        return [{}] * len(parts)
    wait(futures)
    client, homes = futures[0].client, {}
    threads, found = client.nthreads(), client.who_has(futures)
    share = -(-len(parts) // sum(threads.values()))
    room = {worker: share * count for worker, count in threads.items()}
    for stay in (True, False):
        for key in [part.key for part in parts if part.key not in homes]:
            near = [worker for worker in found[key] if room.get(worker)] if stay else [*room]
            if near:
                homes[key] = max(near, key=lambda worker: room[worker])
                room[homes[key]] -= 1
    return [{"workers": [homes[part.key]], "allow_other_workers": True} for part in parts]


def _large_graphs() -> AbstractContextManager[Any]:
    """Arrays in memory and questions travel in the graph: no warning about its size."""
    if "distributed" not in sys.modules:  # its settings, read on import, would be lost on leaving
        return nullcontext()
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})


def _features(X: Any, named: dict[str, Any]) -> tuple[Any, Columns | None]:
    """The rows, each whole in one block; of a dataframe, the columns that are features."""
    is_array = isinstance(X, da.Array)
    if not (is_array or is_dataframe_like(X)) or X.ndim != 2:
        raise ValueError(f"X must be a Dask array or dataframe of two dimensions; got {X!r}")
    own = {name: value for name, value in named.items() if isinstance(value, str)}
    for name, value in own.items():
        if is_array or value not in X.columns:
            has = "is an array, without names" if is_array else f"has {[*X.columns][:20]!r}"
            raise ValueError(f"{name}={value!r} is no column of X, which {has}; give an array")
    if is_array:
        return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X, None
    types = {c: t for c, t in X.dtypes.items() if c not in own.values()}
    text = [c for c, t in X.dtypes.items() if t.kind not in "fiub" and c != own.get("groups")]
    if text:
        raise ValueError(f"columns {text[:20]!r} of X do not hold numbers; encode them, or leave "
                         "them out with X.drop(columns=[...])")  # fmt: skip
    single = all(t in (np.float32, np.float16) for t in types.values())
    return X, Columns([*types], np.float32 if single else np.float64)


def _blocks(X: Any, named: dict[str, Any]) -> list[tuple[Any, ...]]:
    """For every block of rows: its piece of X and of the others."""
    like = _Cuts(X)
    inputs = [X, *[like.cut(value, name) for name, value in named.items()]]
    # Arrays are optimised together, so that what several are made from is made once.
    arrays = [item for item in inputs if isinstance(item, da.Array)]
    graph = HighLevelGraph.merge(*[item.__dask_graph__() for item in arrays])
    graph = dict(da.Array.__dask_optimize__(graph, [item.__dask_keys__() for item in arrays]))

    def pieces(item: Any) -> list[Any]:
        if isinstance(item, da.Array):
            return [Delayed(key, graph) for key in flatten(item.__dask_keys__())]
        return item.to_delayed() if is_dask_collection(item) else item

    return list(zip(*map(pieces, inputs), strict=True))


class _Cuts:
    """Where a collection is cut into blocks of rows; their lengths are computed only if asked."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.is_array = rows, isinstance(rows, da.Array)
        self.count = rows.numblocks[0] if self.is_array else rows.npartitions
        self.known = self.is_array and not np.isnan(rows.chunks[0]).any()

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        if self.known:
            return self.rows.chunks[0]
        blocks = self.rows.to_delayed()
        return dask.compute(*map(delayed(len), blocks.ravel() if self.is_array else blocks))

    def cut(self, values: Any, name: str) -> Any:
        """One-dimensional values in these blocks: a collection, or a list of pieces."""
        if (values is None and name != "y") or isinstance(values, str):
            return [values] * self.count
        theirs = _Cuts(values) if is_dask_collection(values) else None
        values = _as_labels(values) if theirs is None else values
        if values.ndim != 1 or (name != "groups" and values.dtype.kind not in "fiub"):
            kind = "labels" if name == "groups" else "numbers"
            raise ValueError(f"{name} must be one column of {kind}, or its name; got {values!r}")
        if theirs and not (self.known or theirs.known) and self.count == theirs.count:
            return values  # lengths are compared where the rows are
        n, m = sum(self.lengths), sum(theirs.lengths) if theirs else len(values)
        if n != m:
            raise ValueError(f"X has {n} rows but {name} has {m}; give one entry for every row")
        if theirs is None:
            return np.split(values, np.cumsum(self.lengths)[:-1])
        if theirs.lengths == self.lengths:
            return values
        if not theirs.known:
            lazy = values
            if not theirs.is_array:
                lazy = values.map_partitions(plain, name, meta=np.empty(0))
            values = da.Array(lazy.dask, lazy.name, (theirs.lengths,), meta=lazy._meta)
        return values.rechunk((self.lengths,))
