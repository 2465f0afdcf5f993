"""The engine for rows on the executors of a Spark cluster.

Every partition of the data frame is read once and stays in a file of its executor. A question goes
to the executors as a job of one task per core. The sums are added in a tree whose shape depends
only on the number of partitions, so answers do not depend on the scheduling. If an executor is
lost, Spark computes its partitions again from the data frame.
"""

from __future__ import annotations

import pickle
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import count as counting
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pyspark import RDD, StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BooleanType, DoubleType, FloatType, IntegralType, StringType

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.classes import encode_classes
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.scanned import ClusterEngine
from counterpoise.rows.engines.spark_columns import (
    by_name,
    check_frame,
    chosen_columns,
)
from counterpoise.rows.engines.spark_parts import (
    UNKNOWN,
    Loaded,
    Placed,
    Reply,
    answer,
    load_partition,
    place,
)
from counterpoise.rows.engines.tally import Tally, merge_scans
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.scan import Scan

Array = np.ndarray

# Number of scans that one task merges; each has a sample of the rows.
FAN_IN = 16
# With more tasks than this, executors add up sums before the driver does.
MANY_TASKS = 64
# Types of classes, which predictions have, too.
CLASS_TYPES = (StringType, BooleanType, IntegralType, FloatType, DoubleType)
# Names of the columns that predictions are put in, as in Spark ML.
OUTPUTS = {
    "predict": "prediction",
    "scores": "rawPrediction",
    "probabilities": "probability",
    "log_probabilities": "logProbability",
}
# Fits have names of this process and a number, in the order in which they start.
_TOKEN = secrets.token_hex(8)
_numbers = counting()


class SparkEngine(ClusterEngine):
    """Sums over the partitions of a Spark data frame.

    ``y``, ``groups`` and ``sample_weight`` are names of columns of ``X``; the other columns are
    the features.
    """

    def __init__(self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation, *,
                 intercept: bool = True, centred: bool = True,
                 cut: FoldCut | None = None) -> None:  # fmt: skip
        named = {"y": y, "groups": groups, "sample_weight": sample_weight}
        self._rows = SparkRows(chosen_columns(check_frame(X), named), intercept=intercept, cut=cut)
        self.scan = self._rows.scan
        super().__init__(self.scan.census(intercept=intercept, centred=centred), loss)
        self.counter.count = 1

    def _sum(self, question: Question) -> Any:
        total = self._rows.ask(question, self.n_groups)
        self.counter.count += 1
        return total


class SparkRows:
    """The partitions of a data frame on the executors, until nobody refers to them.

    Their files are removed when this process starts its next fit, or with the application.
    """

    _alive: ClassVar[weakref.WeakSet[SparkRows]] = weakref.WeakSet()
    _naming: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, frame: DataFrame, *, intercept: bool, cut: FoldCut | None = None) -> None:
        with self._naming:
            self.name = f"{_TOKEN}-{next(_numbers):08}"
            self._alive.add(self)
            alive = [rows.name for rows in self._alive]
        load = partial(load_partition, intercept=intercept, fit=self.name, alive=alive, cut=cut)
        cells = frame.mapInArrow(load, "loaded binary").rdd
        loaded = _kept(cells.mapPartitionsWithIndex(unpack))
        self.count = loaded.getNumPartitions()
        self.scan, digests = _look(loaded, self.count)
        puts = partial(place, labels=self.scan.labels, digests=digests)
        self._placed = _kept(loaded.mapPartitionsWithIndex(puts))
        self._placed.count()
        loaded.unpersist()
        self._tasks = self._group()

    def _group(self) -> RDD[Placed]:
        """Group partitions on the same machine into one task per core."""
        cores = self._placed.context.defaultParallelism
        return self._placed.coalesce(cores) if self.count > cores else self._placed

    def ask(self, question: Question, n_groups: int) -> Any:
        """Return the answer, summed over all partitions.

        A file is missing where a task ran on a machine that does not have it, since the one that
        does was busy. Then the task is tried again, and in the end all partitions are read again.
        """
        ask = partial(answer, question=question, n_groups=n_groups, count=self.count)
        reply = self._run(ask)
        for again in (False, True):
            if not reply.missing:
                break
            if again:
                self._placed.unpersist(blocking=True)
                self._placed = _kept(self._placed)
            self._tasks = self._group()
            missing, known = frozenset(reply.missing), replace(reply, missing=())
            reply = known.merge(self._run(partial(ask, only=missing)))
        if reply.error:
            raise ValueError(reply.error)
        if reply.missing:
            raise OSError(
                f"the rows of partition {min(reply.missing)} of X were stored again, and the file "
                "is still missing; check the local disks of the executors (spark.local.dir)"
            )
        return reply.tally.total

    def _run(self, ask: Callable[[Iterable[Placed]], Iterable[Reply]]) -> Reply:
        replies = self._tasks.mapPartitions(ask)
        if replies.getNumPartitions() > MANY_TASKS:
            return replies.treeReduce(Reply.merge)
        return reduce(Reply.merge, replies.collect(), Reply(Tally(self.count)))


def _kept(rdd: RDD[Any]) -> RDD[Any]:
    """Have Spark keep small records, on disk rather than not at all."""
    return rdd.persist(StorageLevel.MEMORY_AND_DISK)


def unpack(index: int, cells: Iterable[Any]) -> Iterator[Loaded]:
    """Read the cells that executors packed, and say in errors which partition it is."""
    for (cell,) in cells:
        found: Loaded = pickle.loads(bytes(cell))
        if found.error:
            found = Loaded(error=found.error.replace(UNKNOWN, f"partition {index}"))
        yield found


def _look(loaded: RDD[Loaded], count: int) -> tuple[Scan, dict[int, int]]:
    """Return the scan of all rows and the digests of partitions; raise their first error.

    Scans merge in the order of partitions, in a shape that depends only on their number.
    """
    pairs = loaded.mapPartitionsWithIndex(_scans)
    if count > FAN_IN:
        digests = _digests(pairs.mapValues(_without_scan).collect())
        while count > FAN_IN:
            count = -(-count // FAN_IN)
            pairs = pairs.map(_to_parent).groupByKey(count).mapValues(_merge_in_order)
        found = pairs.collect()
    else:
        found = pairs.collect()
        digests = _digests(found)
    scan = _merge_in_order(found).scan
    if scan is None:
        raise ValueError("there are no rows (with positive weight) to fit")
    return scan, digests


def _scans(index: int, loaded: Iterable[Loaded]) -> Iterator[tuple[int, Loaded]]:
    return ((index, replace(found, part=None)) for found in loaded)


def _without_scan(found: Loaded) -> Loaded:
    return replace(found, scan=None)


def _digests(found: list[tuple[int, Loaded]]) -> dict[int, int]:
    for _, item in sorted(found, key=lambda pair: pair[0]):
        if item.error:
            raise ValueError(item.error)
    return {index: item.digest for index, item in found}


def _to_parent(pair: tuple[int, Loaded]) -> tuple[int, tuple[int, Loaded]]:
    return pair[0] // FAN_IN, pair


def _merge_in_order(pairs: Iterable[tuple[int, Loaded]]) -> Loaded:
    ordered = [item.scan for _, item in sorted(pairs, key=lambda pair: pair[0])]
    scans = [scan for scan in ordered if scan is not None]
    return Loaded(scan=merge_scans(*scans) if scans else None)


# -- predictions and classes --------------------------------------------------------------------


def predict(
    frame: DataFrame,
    function: Callable[[Array], Array],
    rows: Column,
    count: int,
    empty: Array,
    name: str,
) -> DataFrame:
    """Add a column of outputs to a data frame, lazily.

    ``function`` takes the ``rows``, arrays of ``count`` features; ``empty`` is its result for no
    rows, and ``name`` is the new column, which replaces one of this name. Rows that lack a feature
    have no output.
    """

    def outputs(rows: pd.Series) -> pd.Series:
        if not len(rows):
            return pd.Series(list(empty) if empty.ndim == 2 else empty)
        values: list[Any] = [None] * len(rows)
        whole = [i for i, row in enumerate(rows) if _is_complete(row)]
        if whole:
            found = function(as_matrix(rows.iloc[whole], count))
            for i, value in zip(whole, found if found.ndim == 2 else found.tolist(), strict=True):
                values[i] = value
        mixed = len(whole) < len(rows) or empty.ndim == 2
        return pd.Series(values, dtype=object if mixed else None)

    as_udf: Any = pandas_udf  # whose types know no optional pandas
    return frame.withColumn(name, as_udf(outputs, type_of(empty))(rows))


def _is_complete(row: Any) -> bool:
    """Return whether a row is there and none of its features is missing."""
    return row is not None and bool(np.isfinite(np.asarray(row, dtype=float)).all())


def as_matrix(rows: pd.Series, count: int) -> Array:
    """Return a series of arrays as a matrix."""
    wrong = {len(row) for row in rows} - {count}
    if wrong:
        raise ValueError(
            f"X has {min(wrong)} features, but the fit was to rows of {count} features; pass the "
            "same columns in the same order"
        )
    return np.stack([np.asarray(row, dtype=float) for row in rows])


def type_of(empty: Array) -> str:
    """Return the Spark type of outputs."""
    kinds = {"f": "double", "i": "bigint", "u": "bigint", "b": "boolean"}
    kind = kinds.get(empty.dtype.kind, "string")
    return f"array<{kind}>" if empty.ndim == 2 else kind


def number_classes(X: Any, y: Any) -> tuple[DataFrame, str, Array]:
    """Replace labels by numbers of classes, lazily; the classes take a pass over the labels."""
    frame = check_frame(X)
    if not isinstance(y, str) or y not in frame.columns:
        raise ValueError(
            f"y must be the name of a column of X, which has {frame.columns[:20]!r}; got {y!r}"
        )
    kind = frame.schema[y].dataType
    if not isinstance(kind, CLASS_TYPES):
        raise ValueError(
            f"y={y!r} is a column of {kind.simpleString()}; classes must be text, numbers or "
            f"booleans, so cast it: X.withColumn({y!r}, X[{y!r}].cast('string'))"
        )
    found = [row[0] for row in frame.select(by_name(y)).distinct().collect()]
    classes = encode_classes(found)[0]
    known = F.array(*[F.lit(label) for label in classes.tolist()])
    place = F.array_position(known.cast(f"array<{_type_name(frame, y)}>"), by_name(y))
    return frame.withColumn(y, F.when(place > 0, (place - 1).cast("double"))), y, classes


def _type_name(frame: DataFrame, name: str) -> str:
    return frame.schema[name].dataType.simpleString()


def to_host(values: Any) -> Array:
    """Collect a data frame as an array; one column becomes an array of one dimension."""
    frame = check_frame(values)
    rows = [tuple(row) for row in frame.collect()]
    if len(frame.columns) == 1:
        return np.asarray([row[0] for row in rows])
    return np.asarray(rows)
