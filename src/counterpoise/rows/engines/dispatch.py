"""From whatever holds the rows to the engine that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterpoise.activations import Activation
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sources import Source


def kind_of(X: Any) -> str:
    """Who reads such rows: "source", "dask", "torch" or "memory". Imports nothing."""
    if isinstance(X, Source):
        return "source"
    roots = {base.__module__.split(".")[0] for base in type(X).__mro__}
    for name in ("dask", "torch"):
        if name in roots or (name == "dask" and "dask_expr" in roots):
            return name
    return "memory"


def stays_on_device(X: Any) -> bool:
    """Whether a tensor is read where it is; on the CPU it is an array, and better read as one."""
    return X.device.type != "cpu"


def open_engine(
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    activation: Activation,
    *,
    intercept: bool,
    centred: bool,
    progress: Callable[[int, int, int | None], None] | None = None,
) -> SumEngine:
    """The engine for these rows.

    ``centred`` engines give second moments about a centre of the features, ``engine.shift``.
    ``progress`` is told of every chunk read, where there are chunks.
    """
    kind = kind_of(X)
    if kind == "source":
        from counterpoise.rows.engines.chunked import ChunkedEngine

        for name, value in (("y", y), ("groups", groups), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(
                    f"{name} was given beside a {type(X).__name__}, whose chunks carry their own; "
                    f"leave {name} out"
                )
        return ChunkedEngine(X, activation, intercept=intercept, centred=centred, progress=progress)
    if kind == "dask":
        from counterpoise.rows.engines.dask import DaskEngine

        return DaskEngine(X, y, groups, sample_weight, activation,
                          intercept=intercept, centred=centred)  # fmt: skip
    if kind == "torch":
        from counterpoise.rows.engines.torch import TorchEngine, check_labels, check_matrix, host

        if stays_on_device(X):
            return TorchEngine(X, y, groups, sample_weight, activation,
                               intercept=intercept, centred=centred)  # fmt: skip
        X = host(check_matrix(X))
        y, groups, sample_weight = check_labels(y, len(X)), host(groups), host(sample_weight)
    data = GroupedData.build(X, y, groups, sample_weight, intercept=intercept)
    return MemoryEngine(data, activation, centred=centred)
