"""The columns of a Spark data frame that a fit reads, as one array of features and the others.

Spark makes the array, so that Arrow hands over rows in the order in which kernels read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, FloatType, NumericType

# Names of the columns that executors read.
FEATURES, LABELS, GROUPS, WEIGHTS = "X", "y", "groups", "sample_weight"


class Features(NamedTuple):
    """A column of arrays of features; ``names`` is None if one column holds all of them."""

    column: Column
    names: list[str] | None


def check_frame(frame: Any) -> DataFrame:
    """Return a classic data frame; one of Spark Connect has no partitions to keep."""
    if not hasattr(frame, "schema") or not hasattr(frame, "mapInArrow"):
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
        remedy = "; pass X.to_spark()" if hasattr(frame, "to_spark") else ""
        raise TypeError(f"X must be a data frame of pyspark.sql; got {kind}{remedy}")
    if ".connect." in type(frame).__module__:
        raise TypeError(
            "X is a data frame of Spark Connect, which gives no access to the partitions; use a "
            "session with spark.master, or write the rows to Parquet and fit counterpoise.Parquet"
        )
    return frame


def chosen_columns(frame: DataFrame, named: Mapping[str, Any]) -> DataFrame:
    """Select the features, and the columns that ``named`` assigns to labels and the like."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    for name, value in named.items():
        if value is None and name != LABELS:
            continue
        if not isinstance(value, str) or value not in types:
            raise ValueError(
                f"{name} must be the name of a column of X, which has {[*types][:20]!r}; "
                f"got {value!r}"
            )
        if name != GROUPS and not _is_number(types[value]):
            raise ValueError(
                f"{name}={value!r} is a column of {types[value].simpleString()}; it must hold "
                "numbers"
            )
    taken = [value for value in named.values() if value is not None]
    columns = [features(frame, taken).column.alias(FEATURES)]
    for name, value in named.items():
        if value is not None:
            column = by_name(value)
            columns.append((column if name == GROUPS else column.cast("double")).alias(name))
    return frame.select(*columns)


def features(frame: DataFrame, taken: Sequence[str] = ()) -> Features:
    """Find the features: all other columns if they hold numbers, or one column of vectors."""
    types = {f.name: f.dataType for f in frame.schema.fields if f.name not in taken}
    whole = [name for name, kind in types.items() if _is_whole(kind)]
    if len(types) == 1 and whole:
        return Features(whole_column(frame, whole[0]), None)
    other = [name for name, kind in types.items() if not _is_number(kind)]
    if other:
        raise ValueError(
            f"columns {other[:20]!r} of X do not hold numbers; encode them, or leave them out with "
            "X.drop(...). A column of vectors or arrays must be the only feature."
        )
    if not types:
        raise ValueError("X has no columns left for features; add some")
    return Features(array_of(frame, [*types]), [*types])


def features_for(frame: DataFrame, names: Sequence[str] | None, count: int) -> Column:
    """Return the features of a fitted model, by name or else as the only column of vectors."""
    if names is not None:
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise ValueError(
                f"X has no columns {missing[:20]!r}, which were features of the fit; add them"
            )
        return array_of(frame, names)
    whole = [field.name for field in frame.schema.fields if _is_whole(field.dataType)]
    if len(whole) == 1:
        return whole_column(frame, whole[0])
    if not whole and len(frame.columns) == count:
        return features(frame).column
    raise ValueError(
        f"X must have one column of vectors or arrays, as the fit had, or {count} columns of "
        f"numbers and no others; got columns of vectors {whole[:20]!r} among "
        f"{frame.columns[:20]!r}. Select the features with X.select(...)"
    )


def array_of(frame: DataFrame, names: Sequence[str]) -> Column:
    """Return columns of numbers as one column of arrays."""
    single = all(isinstance(frame.schema[name].dataType, FloatType) for name in names)
    kind = "float" if single else "double"
    return F.array(*[by_name(name).cast(kind) for name in names])


def whole_column(frame: DataFrame, name: str) -> Column:
    """Return a column of vectors or arrays as a column of arrays of floats."""
    kind = frame.schema[name].dataType
    if isinstance(kind, ArrayType):
        single = isinstance(kind.elementType, FloatType)
        return by_name(name).cast("array<float>" if single else "array<double>")
    from pyspark.ml.functions import vector_to_array

    return vector_to_array(by_name(name), "float64")


def by_name(name: str) -> Column:
    """Return the column of this very name; a dot in it is no access to a field."""
    return F.col("`" + name.replace("`", "``") + "`")


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, (NumericType, BooleanType))


def _is_whole(kind: DataType) -> bool:
    """Return whether a column of this type holds all features of a row."""
    if isinstance(kind, ArrayType):
        return isinstance(kind.elementType, NumericType)
    return type(kind).__name__ == "VectorUDT"
