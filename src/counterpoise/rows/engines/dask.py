"""Rows spread over the workers of a Dask cluster, or over threads where there is no cluster.

Blocks of rows become parts that stay where they were made. A question travels to them as a small
graph, a few parts to a task; sums come back through a tree whose shape depends on
the number of blocks alone, so answers do not depend on who did what.
Everything is made from the user's collections alone: what a lost worker held is made again.
"""

from __future__ import annotations

import copy
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import Delayed, delayed
from dask.sizeof import sizeof
from dask.utils import is_dataframe_like

from counterpoise.activations import Activation
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.chunked import to_part
from counterpoise.rows.engines.dask_blocks import Columns, blocks, features, plain
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.row_part import RowPart
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sample import RowSample
from counterpoise.rows.scan import Scan, check_chunk
from counterpoise.rows.threads import single_threaded_blas

Array = np.ndarray

# How many partial sums one task adds up.
FAN_IN = 16
# How many parts one task asks: a task costs milliseconds. Few, because when a worker is lost they
# are brought together on another.
BUNDLE = 4


class DaskEngine(SumEngine):
    """Sums over the blocks of a Dask array or dataframe.

    ``y``, ``groups`` and ``sample_weight`` are Dask arrays or series, or arrays in memory, and
    belong to the rows of ``X`` by position; where ``X`` is a dataframe they may be names of its
    columns, which are then no features. The active ``distributed.Client`` does the work.
    """

    def __init__(self, X: Any, y: Any, groups: Any, sample_weight: Any, activation: Activation, *,
                 intercept: bool = True, centred: bool = True) -> None:  # fmt: skip
        named = {"y": y, "groups": groups, "sample_weight": sample_weight}
        X, columns = features(X, named)
        self.feature_names = None if columns is None else columns.names
        load = delayed(partial(load_block, columns=columns, intercept=intercept), nout=2)
        loaded = [load(i, *block) for i, block in enumerate(blocks(X, named))]
        scan = _tree([found for _, found in loaded], delayed(merge_scans))
        with _large_graphs():
            scan, *parts = dask.persist(scan, *[part for part, _ in loaded])
        self.scan: Scan = scan.compute()
        labels, place = delayed(getattr)(scan, "labels"), delayed(place_part)
        placed, homes = [], _Homes.of(parts)
        for index, part in enumerate(parts):
            with dask.annotate(**homes.annotation(index)):
                placed.append(place(part, labels))
        # Futures, or the parts themselves where there is no cluster.
        self._parts = [dict(part.dask)[part.key] for part in dask.persist(*placed)]
        self._bundles = homes.bundles(len(parts))
        super().__init__(self.scan.census(intercept=intercept, centred=centred), activation)
        self.counter.count = 1

    def checksum(self) -> Array:
        return np.array([self.scan.checksum])

    def sample(self) -> RowSample:
        return self.scan.sample

    def ask(self, question: Question) -> Array:
        graph: dict[str, Any] = {}
        answer = partial(
            answer_parts, question=question, n_groups=self.n_groups, count=len(self._parts)
        )
        token = uuid.uuid4().hex

        def task(kind: str, *work: Any) -> str:
            key = f"counterpoise-{kind}-{token}-{len(graph)}"
            graph[key] = work
            return key

        answers = [
            task("answer", partial(answer, indices=bundle), *[self._parts[i] for i in bundle])
            for bundle in self._bundles
        ]
        merge = partial(Tally.merge, count=len(self._parts))
        root = _tree(answers, partial(task, "add", merge))
        with _large_graphs():
            tally = Delayed(root, graph).compute()
        self.counter.count += 1
        return np.require(tally.total, requirements="W")


def predict(X: Any, function: Callable[[Array], Array], names: Sequence[Any] | None = None) -> Any:
    """``function`` of the rows of a Dask array or dataframe, block by block: a lazy Dask array.

    Of a dataframe, the columns ``names``, if given.
    """
    if names is not None and is_dataframe_like(X):
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"X has no columns {missing[:20]!r}, which the fit had as features")
        X = X[list(names)]
    X, columns = features(X, {})
    if columns is not None:
        X = X.map_partitions(columns.read, meta=np.empty((0, len(columns.names))))
    return X.map_blocks(function, drop_axis=1, dtype=float, meta=np.empty(0))


# -- what workers do ---------------------------------------------------------------------------


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


def merge_scans(*scans: Scan) -> Scan:
    return reduce(Scan.merge, scans)


def place_part(part: RowPart | None, labels: Array) -> RowPart | None:
    """The same rows, which now know the problem's numbers for their groups."""
    placed = copy.copy(part)
    if placed is not None:
        placed.codes = np.searchsorted(labels, placed.data.labels)
    return placed


def answer_parts(
    *parts: RowPart | None, indices: list[int], question: Question, n_groups: int, count: int
) -> Tally:
    """The sums of these of ``count`` parts, added up as far as neighbours are among them."""
    tally = Tally(count)
    for index, part in zip(indices, parts, strict=True):
        tally.add(0, index, None if part is None else answer_part(part, question, n_groups))
    return tally


def answer_part(part: RowPart, question: Question, n_groups: int) -> Array:
    """A part's sums, with zeros for groups it does not have."""
    with single_threaded_blas():
        sums = part.answer(question)
    if question.pooled or len(part.codes) == n_groups:
        return sums
    wide = np.zeros((n_groups, *sums.shape[1:]))
    wide[part.codes] = sums
    return wide


class Tally:
    """Some answers of ``count`` parts, on their way up a binary tree over all of them.

    A node ``(level, i)`` is the sum over its two children on the level below; a last one without
    neighbour moves up alone. Which two numbers are added never depends on who holds which parts.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.nodes: dict[tuple[int, int], Array | None] = {}

    def add(self, level: int, index: int, sums: Array | None) -> None:
        """Put a node in its place, and up as far as neighbours are there."""
        width = -(-self.count // (1 << level))
        while width > 1:
            neighbour = index ^ 1
            if neighbour < width:
                if (level, neighbour) not in self.nodes:
                    break
                sums = _plus(sums, self.nodes.pop((level, neighbour)))
            index, level, width = index // 2, level + 1, -(-width // 2)
        self.nodes[level, index] = sums

    @classmethod
    def merge(cls, *tallies: Tally, count: int) -> Tally:
        merged = cls(count)
        for tally in tallies:
            for (level, index), sums in tally.nodes.items():
                merged.add(level, index, sums)
        return merged

    @property
    def total(self) -> Array:
        """The root, once all are in."""
        (total,) = self.nodes.values()
        assert total is not None  # some part has rows
        return total


def _plus(a: Array | None, b: Array | None) -> Array | None:
    """The sum of two answers (in either order, to the bit); None is that of no rows."""
    return b if a is None else a if b is None else a + b


@sizeof.register((RowPart, RowSample, GroupedData, Scan, Tally))
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


class _Homes(NamedTuple):
    """Where parts should be: where they are, but in no place more than its share.

    They stay for the whole fit, and a pass takes as long as the worker that holds most. Without a
    cluster, or where the user's own annotations decide, nothing is known.
    """

    workers: list[str]
    threads: dict[str, int]

    @classmethod
    def of(cls, parts: list[Any]) -> _Homes:
        if "distributed" not in sys.modules or dask.get_annotations():
            return cls([], {})
        from distributed import futures_of, wait

        futures = futures_of(parts)
        if not futures:
            return cls([], {})
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
        return cls([homes[part.key] for part in parts], threads)

    def annotation(self, index: int) -> dict[str, Any]:
        if not self.workers:
            return {}
        return {"workers": [self.workers[index]], "allow_other_workers": True}

    def bundles(self, count: int) -> list[list[int]]:
        """Parts that are asked together: those of a worker, shared among its threads."""
        if not self.workers:
            return [[index] for index in range(count)]
        found = []
        for worker, threads in self.threads.items():
            mine = [index for index, home in enumerate(self.workers) if home == worker]
            # As many tasks for every thread, as even as can be.
            count = min(len(mine), threads * -(-len(mine) // (BUNDLE * threads)))
            found += [mine[len(mine) * i // count : len(mine) * (i + 1) // count]
                      for i in range(count)]  # fmt: skip
        return sorted(found)  # neighbours meet early on the way up


def _large_graphs() -> AbstractContextManager[Any]:
    """Arrays in memory and questions travel in the graph: no warning about its size."""
    if "distributed" not in sys.modules:  # its settings, read on import, would be lost on leaving
        return nullcontext()
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})
