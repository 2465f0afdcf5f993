"""The engine for rows on the workers of a Dask cluster, or on threads without a cluster.

Blocks of rows become parts that stay on their workers. A question is sent to them as a small
graph, with a few parts per task. The sums are added in a tree whose shape depends only on the
number of blocks, so answers do not depend on the scheduling. If a worker is lost, its parts are
computed again from the user's collections.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import annotate, persist
from dask.delayed import Delayed, delayed
from dask.sizeof import sizeof
from dask.utils import is_dataframe_like

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.classes import class_numbers, encode_classes
from counterpoise.rows.engines.chunked import to_part
from counterpoise.rows.engines.dask_blocks import Columns, blocks, features, plain
from counterpoise.rows.engines.dask_homes import Homes, load_in_runs
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.row_part import RowPart
from counterpoise.rows.engines.scanned import ClusterEngine
from counterpoise.rows.engines.tally import Tally, answer_parts, merge_scans, place_part
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sample import RowSample
from counterpoise.rows.scan import Scan, check_chunk

Array = np.ndarray

# Number of partial sums that one task adds up.
FAN_IN = 16


class DaskEngine(ClusterEngine):
    """Sums over the blocks of a Dask array or dataframe.

    ``y``, ``groups`` and ``sample_weight`` are Dask arrays or series, or arrays in memory, in the
    order of the rows of ``X``. If ``X`` is a dataframe, they may be names of its columns, which
    are then not features. The active ``distributed.Client`` does the work.
    """

    def __init__(self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation, *,
                 intercept: bool = True, centred: bool = True,
                 cut: FoldCut | None = None) -> None:  # fmt: skip
        named = {"y": y, "groups": groups, "sample_weight": sample_weight}
        X, columns = features(X, named)
        self.feature_names = None if columns is None else columns.names
        load = delayed(partial(load_block, columns=columns, intercept=intercept, cut=cut), nout=2)
        lazy = [tuple(load(i, *block)) for i, block in enumerate(blocks(X, named))]
        loaded = load_in_runs(lazy, [X, *named.values()])
        lazy_scan = _tree([found for _, found in loaded], delayed(merge_scans))
        with _large_graphs():
            lazy_scan, *parts = persist(lazy_scan, *[part for part, _ in loaded])
        self.scan: Scan = lazy_scan.compute()
        labels, place = delayed(getattr)(lazy_scan, "labels"), delayed(place_part)
        scan, size = self.scan, self.scan.n_features + 2
        homes = Homes.of(parts, scan.n_rows * size / len(parts), len(scan.labels) * size)
        placed = []
        for index, part in enumerate(parts):
            with annotate(**homes.annotation(index)):
                placed.append(place(part, labels))
        # Futures, or the parts themselves without a cluster.
        self._parts = [dict(part.dask)[part.key] for part in persist(*placed)]
        self._bundles = homes.bundles(len(parts))
        super().__init__(self.scan.census(intercept=intercept, centred=centred), loss)
        self.counter.count = 1

    def _sum(self, question: Question) -> Any:
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
        return tally.total


def predict(
    X: Any,
    function: Callable[[Array], Array],
    names: Sequence[Any] | None = None,
    empty: Array | None = None,
) -> Any:
    """Apply ``function`` to the blocks of a Dask array or dataframe, as a lazy Dask array.

    ``names`` selects columns of a dataframe; ``empty`` is the result for no rows.
    """
    empty = np.empty(0) if empty is None else empty
    if names is not None and is_dataframe_like(X):
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(
                f"X has no columns {missing[:20]!r}, which were features of the fit; add them"
            )
        X = X[list(names)]
    X, columns = features(X, {})
    if columns is not None:
        X = X.map_partitions(columns.read, meta=np.empty((0, len(columns.names))))
    if empty.ndim == 1:
        return X.map_blocks(function, drop_axis=1, dtype=empty.dtype, meta=empty)
    X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
    chunks = (X.chunks[0], (empty.shape[1],))
    return X.map_blocks(function, chunks=chunks, dtype=empty.dtype, meta=empty)


def number_classes(X: Any, y: Any) -> tuple[Any, Any, Array]:
    """Replace labels by numbers of classes, lazily; the classes take a pass over the labels."""
    labels = X[y] if isinstance(y, str) else y
    if not hasattr(labels, "dask"):
        classes, codes = encode_classes(np.asarray(labels))
        return X, codes, classes
    if is_dataframe_like(labels) or hasattr(labels, "drop_duplicates"):
        distinct = np.asarray(labels.drop_duplicates().compute())
    else:
        distinct = np.asarray(da.unique(labels).compute())
    classes = encode_classes(distinct.ravel())[0]
    number = partial(class_numbers, classes=classes)
    if hasattr(labels, "map_partitions"):
        codes = labels.map_partitions(number_series, classes, meta=(labels.name, float))
        return (X.assign(**{y: codes}), y, classes) if isinstance(y, str) else (X, codes, classes)
    return X, labels.map_blocks(number, dtype=float, meta=np.empty(0)), classes


def number_series(labels: Any, classes: Array) -> Any:
    """Return a series of class numbers with the index of the labels."""
    return type(labels)(class_numbers(np.asarray(labels), classes), index=labels.index,
                        name=labels.name)  # fmt: skip


# -- on the workers ----------------------------------------------------------------------------


def load_block(
    index: int,
    X: Any,
    *others: Any,
    columns: Columns | None,
    intercept: bool,
    cut: FoldCut | None = None,
) -> tuple[RowPart | None, Scan]:
    """Check one block, sort it by group, and scan it."""
    where, given = f"block {index}", []
    for name, values in zip(("y", "groups", "sample_weight"), others, strict=True):
        values = X[values] if isinstance(values, str) else values
        if values is not None and len(values) != X.shape[0]:
            raise ValueError(
                f"{where}: X has {X.shape[0]} rows but {name} has {len(values)}; split both into "
                "the same blocks, or pass all as columns of one dataframe"
            )
        given.append(None if values is None else plain(values, name))
    y, groups, weights = given
    X = X if columns is None else columns.read(X)
    rows = check_chunk(X, y, groups, weights, where, cut=cut)
    part = to_part(rows, rows.labels, intercept, where) if len(rows.y) else None
    return part, Scan.of(rows)


def _size(rows: Any) -> int:
    """Return the size in bytes; by default the scheduler would underestimate and move parts."""
    return sum(map(sizeof, vars(rows).values()))


sizeof.register((RowPart, RowSample, GroupedData, Scan, Tally), _size)


# -- on the client -----------------------------------------------------------------------------


def _tree(items: list[Any], combine: Callable[..., Any]) -> Any:
    """Combine neighbours until one is left, in a shape that depends only on their number."""
    while len(items) > 1:
        runs = [items[i : i + FAN_IN] for i in range(0, len(items), FAN_IN)]
        items = [combine(*run) if len(run) > 1 else run[0] for run in runs]
    return items[0]


def _large_graphs() -> AbstractContextManager[Any]:
    """Disable Dask's warning about large graphs, which hold arrays and questions."""
    if "distributed" not in sys.modules:  # else the settings of a later import would be lost
        return nullcontext()
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})
