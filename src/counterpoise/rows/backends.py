"""Backends: the kinds of rows that can be fitted, and how to open an engine for each.

A backend recognises its rows, opens an engine for them and predicts them. No other module depends
on the type that holds the rows. ``register`` adds a backend:

>>> class Boxed(Backend):
...     name = "boxed"
...     def matches(self, X):
...         return type(X).__name__ == "Box"
...     def open(self, X, y, groups, sample_weight, loss, **options):
...         return MEMORY.open(X.rows, y, groups, sample_weight, loss, **options)
>>> boxed = register(Boxed())
>>> unregister(boxed)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.classes import ClassNumbers, encode_classes
from counterpoise.rows.collective import RankRows
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.groups import (
    GroupedData,
    OverlappingGroups,
    check_sample_weight,
    encode_groups,
)
from counterpoise.rows.memberships import as_memberships, check_length
from counterpoise.rows.sources import Source
from counterpoise.storage.packing import check_storable

Array = np.ndarray
# The kinds of predictions, and the methods of models that make them.
METHODS = {
    "predict": "predict",
    "scores": "decision_function",
    "probabilities": "predict_proba",
    "log_probabilities": "predict_log_proba",
}
PassProgress = Callable[[int, int, int | None], None]


class Fitted(Protocol):
    """The attributes of a fitted model that a backend needs for predictions."""

    coef_: Array
    intercept_: Any

    def outputs(self, X: Any, kind: str) -> Array:
        """Predict rows in memory without checking them; ``kind`` is a key of ``METHODS``."""

    def outputs_of_tensor(self, scores: Any, kind: str) -> Any:
        """Turn a tensor of linear scores into outputs."""

    def empty_output(self, kind: str) -> Array:
        """Return the outputs of no rows."""

    def check_width(self, X: Any) -> Any:
        """Return ``X`` after checking its number of features."""


class Backend(ABC):
    """A kind of rows. Subclasses override what differs from arrays in memory."""

    name: str = "memory"
    # Whether labels, groups and weights are names of columns of the rows, and nothing else.
    by_name: bool = False
    # Whether scikit-learn checks the rows. Other backends check them when they open them.
    is_memory: bool = False

    @abstractmethod
    def matches(self, X: object) -> bool:
        """Return whether this backend reads ``X``, which may be any object; import nothing."""

    def in_place(self, X: Any) -> bool:
        """Return whether the rows stay where they are, instead of becoming an array in memory."""
        return True

    @abstractmethod
    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        """Open the engine that reads these rows; parameters as in :func:`open_engine`."""

    def open_overlapping(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        **options: Any,
    ) -> SumEngine:  # fmt: skip
        """Open the engine for groups that overlap; ``groups`` are memberships."""
        from counterpoise.rows.engines import overlapping as engines

        found = as_memberships(to_host(groups), X.shape[0])
        assert found is not None
        check_length(found, X.shape[0])

        def open_rows(X: Any, y: Any, codes: Any, weights: Any) -> SumEngine:
            return self.open(X, y, codes, weights, loss, **options)

        few = engines.few_in_memory if not self.in_place(X) else engines.few_patterns
        if few(found, X.shape[1]):
            return engines.open_patterns(open_rows, X, y, found, sample_weight)
        if self.in_place(X):
            raise engines.too_many(found.patterns[1].shape[0], self.name)
        X, y, sample_weight = map(to_host, (X, y, sample_weight))
        options.pop("progress")
        return engines.open_shares(X, y, found, sample_weight, loss, **options)

    def cells(self, X: Any, y: Any, groups: Any, weights: Any, cut: FoldCut | None) -> Any:
        """Return the groups, or the cells that they are cut into, of rows on this machine.

        Rows on a device are read a few at a time.
        """
        if cut is None:
            return groups
        labels, codes = encode_groups(to_host(groups), X.shape[0])
        weights = check_sample_weight(to_host(weights), X.shape[0])
        there = np.bincount(codes, weights, len(labels)) > 0  # the others have no cells
        numbers = np.zeros(len(labels), dtype=np.int64)
        numbers[there] = cut.numbers(labels[there], "X")
        y = np.asarray(to_host(y), dtype=float).reshape(-1)
        return cut.cells(X, y, numbers[codes], weights, to_host)

    def predict(self, X: Any, model: Fitted, kind: str = "predict") -> Any:
        """Predict the rows where they are."""
        return model.outputs(model.check_width(X), kind)

    def number_classes(self, X: Any, y: Any) -> tuple[Any, Any, Array]:
        """Replace labels by numbers of classes; return rows, labels and sorted classes."""
        classes, codes = encode_classes(np.asarray(to_host(y)))
        return X, codes, classes

    def feature_names(self, X: Any, roles: Sequence[object]) -> Sequence[str] | None:
        """Return the names of the features, if any; ``roles`` may name other columns."""
        return getattr(X, "feature_names", None)

    def to_host(self, values: Any) -> Any:
        """Return labels, groups or predictions of this kind as an array."""
        return values


class MemoryBackend(Backend):
    """Arrays, CSR matrices, and anything that no other backend reads."""

    is_memory = True

    def matches(self, X: object) -> bool:
        return True

    def in_place(self, X: Any) -> bool:
        return False

    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        groups = self.cells(X, y, groups, sample_weight, cut)
        data = GroupedData.build(X, y, groups, sample_weight, intercept=intercept)
        return MemoryEngine(data, loss, centred=centred)


class SourceBackend(Backend):
    """Chunks of rows that need not fit in memory."""

    name = "source"

    def matches(self, X: object) -> bool:
        return isinstance(X, Source)

    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines.chunked import ChunkedEngine

        what = f"a {type(X).__name__}, whose chunks include it"
        _check_alone(what, y=y, groups=groups, sample_weight=sample_weight)
        return ChunkedEngine(
            X, loss, intercept=intercept, centred=centred, progress=progress, cut=cut
        )

    def open_overlapping(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        **options: Any,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines import overlapping as engines

        def open_rows(X: Any, y: Any, groups: Any, weights: Any) -> SumEngine:
            return self.open(X, y, groups, weights, loss, **options)

        try:
            return engines.open_keys(open_rows, engines.PatternSource(X), None, None, None)
        except engines.TooManyPatterns:
            return engines.open_copies(X, loss, **options)

    def predict(self, X: Any, model: Fitted, kind: str = "predict") -> Array:
        found = [model.outputs(model.check_width(chunk[0]), kind) for chunk in X]
        return np.concatenate([model.empty_output(kind), *found])

    def number_classes(self, X: Any, y: Any) -> tuple[Any, Any, Array]:
        found = ClassNumbers.of(X)
        return found, y, found.classes


class DaskBackend(Backend):
    """Dask arrays and data frames, read by the workers that hold them."""

    name = "dask"

    def matches(self, X: object) -> bool:
        return bool(_roots(X) & {"dask", "dask_expr"})

    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines.dask import DaskEngine

        return DaskEngine(X, y, groups, sample_weight, loss,
                          intercept=intercept, centred=centred, cut=cut)  # fmt: skip

    def open_overlapping(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        **options: Any,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines import overlapping as engines
        from counterpoise.rows.engines.dask_blocks import pattern_keys

        def open_rows(X: Any, y: Any, groups: Any, weights: Any) -> SumEngine:
            return self.open(X, y, groups, weights, loss, **options)

        keys = pattern_keys(groups, X.shape[1])
        return engines.open_keys(open_rows, X, y, keys, sample_weight)

    def predict(self, X: Any, model: Fitted, kind: str = "predict") -> Any:
        from counterpoise.rows.engines.dask import predict

        names = getattr(model, "feature_names_in_", None)
        by_name = names is not None and hasattr(X, "columns")
        X = X if by_name else model.check_width(X)
        return predict(X, partial(model.outputs, kind=kind), names, model.empty_output(kind))

    def number_classes(self, X: Any, y: Any) -> tuple[Any, Any, Array]:
        from counterpoise.rows.engines.dask import number_classes

        return number_classes(X, y)

    def feature_names(self, X: Any, roles: Sequence[object]) -> Sequence[str] | None:
        if not hasattr(X, "columns"):
            return None
        taken = [role for role in roles if isinstance(role, str)]
        return [name for name in X.columns if name not in taken]

    def to_host(self, values: Any) -> Any:
        return values.compute()


class SparkBackend(Backend):
    """Spark data frames, read by the executors; labels and the like are names of columns."""

    name = "spark"
    by_name = True

    def matches(self, X: object) -> bool:
        return "pyspark" in _roots(X)

    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines.spark import SparkEngine

        return SparkEngine(X, y, groups, sample_weight, loss,
                           intercept=intercept, centred=centred, cut=cut)  # fmt: skip

    def open_overlapping(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        **options: Any,
    ) -> SumEngine:  # fmt: skip
        raise ValueError(
            "groups must be the name of a column of X with one label per row; a Spark data frame "
            "does not take groups that overlap"
        )

    def predict(self, X: Any, model: Fitted, kind: str = "predict") -> Any:
        from counterpoise.rows.engines.spark import OUTPUTS, predict
        from counterpoise.rows.engines.spark_columns import check_frame, features_for

        frame, count = check_frame(X), model.coef_.shape[-1]
        rows = features_for(frame, getattr(model, "feature_names_in_", None), count)
        outputs, empty = partial(model.outputs, kind=kind), model.empty_output(kind)
        return predict(frame, outputs, rows, count, empty, OUTPUTS[kind])

    def number_classes(self, X: Any, y: Any) -> tuple[Any, Any, Array]:
        from counterpoise.rows.engines.spark import number_classes

        return number_classes(X, y)

    def feature_names(self, X: Any, roles: Sequence[object]) -> Sequence[str] | None:
        from counterpoise.rows.engines.spark_columns import features

        return features(X, [role for role in roles if isinstance(role, str)]).names

    def to_host(self, values: Any) -> Any:
        from counterpoise.rows.engines.spark import to_host

        return to_host(values)


class TorchBackend(Backend):
    """PyTorch tensors, read on their device; on the CPU they are read as arrays."""

    name = "torch"

    def matches(self, X: object) -> bool:
        return "torch" in _roots(X)

    def in_place(self, X: Any) -> bool:
        return bool(X.device.type != "cpu")

    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines.torch import TorchEngine, check_labels, check_matrix, host

        groups = self.cells(X, y, groups, sample_weight, cut)
        if self.in_place(X):
            return TorchEngine(X, y, groups, sample_weight, loss,
                               intercept=intercept, centred=centred)  # fmt: skip
        X = host(check_matrix(X))
        y, groups, sample_weight = check_labels(y, len(X)), host(groups), host(sample_weight)
        data = GroupedData.build(X, y, groups, sample_weight, intercept=intercept)
        return MemoryEngine(data, loss, centred=centred)

    def predict(self, X: Any, model: Fitted, kind: str = "predict") -> Any:
        from counterpoise.rows.engines.torch import linear_scores

        return model.outputs_of_tensor(linear_scores(X, model.coef_, model.intercept_), kind)

    def to_host(self, values: Any) -> Any:
        from counterpoise.rows.engines.torch import host

        return host(values)


class CollectiveBackend(Backend):
    """The rows of one rank of several, of any other kind."""

    name = "collective"

    def matches(self, X: object) -> bool:
        return isinstance(X, RankRows)

    def open(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        *, intercept: bool, centred: bool, progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> SumEngine:  # fmt: skip
        from counterpoise.rows.engines.rank_rows import open_collective

        _check_alone(
            "rows of a rank, which include it", y=y, groups=groups, sample_weight=sample_weight
        )
        return open_collective(X, backend_of(X.X), to_host, loss,
                               intercept=intercept, centred=centred, progress=progress,
                               cut=cut)  # fmt: skip

    def open_overlapping(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
        **options: Any,
    ) -> SumEngine:  # fmt: skip
        return self.open(X, y, groups, sample_weight, loss, **options)

    def predict(self, X: Any, model: Fitted, kind: str = "predict") -> Any:
        """Predict the rows of this rank; no other rank takes part."""
        if X.X is None:
            return model.empty_output(kind)
        return getattr(model, METHODS[kind])(X.X)

    def number_classes(self, X: Any, y: Any) -> tuple[Any, Any, Array]:
        from counterpoise.rows.engines.rank_rows import number_classes

        _check_alone("rows of a rank, which include it", y=y)
        return number_classes(X, to_host)

    def feature_names(self, X: Any, roles: Sequence[object]) -> Sequence[str] | None:
        names: Sequence[str] | None = X.shared_names
        return names


MEMORY = MemoryBackend()
_backends: list[Backend] = [
    SourceBackend(), DaskBackend(), SparkBackend(), TorchBackend(), CollectiveBackend(),
]  # fmt: skip


def register(backend: Backend) -> Backend:
    """Add a backend, which takes precedence over those already registered."""
    _backends.insert(0, backend)
    return backend


def unregister(backend: Backend) -> None:
    """Remove a registered backend."""
    _backends.remove(backend)


def backend_of(X: object) -> Backend:
    """Return the backend that reads these rows."""
    return next((backend for backend in _backends if backend.matches(X)), MEMORY)


def to_host(values: Any) -> Any:
    """Return values of any backend as an array, and anything else unchanged."""
    return None if values is None else backend_of(values).to_host(values)


def open_engine(
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    loss: Loss | Activation,
    *,
    intercept: bool,
    centred: bool,
    progress: PassProgress | None = None,
    cut: FoldCut | None = None,
) -> SumEngine:
    """Open the engine for these rows.

    ``centred`` engines measure second moments about a centre of the features, ``engine.shift``.
    ``progress`` is called after every chunk, if there are chunks. With a ``cut``, the engine's
    groups are cells; groups must not overlap.
    """
    backend = backend_of(X)
    options: dict[str, Any] = dict(intercept=intercept, centred=centred, progress=progress)
    if cut is not None:
        return backend.open(X, y, groups, sample_weight, loss, cut=cut, **options)
    overlapping = has_memberships(groups, X)
    if not overlapping:
        try:
            engine = backend.open(X, y, groups, sample_weight, loss, **options)
        except OverlappingGroups:
            if not isinstance(X, Source):  # whose chunks tell only when they are read
                raise
            overlapping = True
    if overlapping:
        engine = backend.open_overlapping(X, y, groups, sample_weight, loss, **options)
    check_storable(engine.census.labels)
    return engine


def has_memberships(groups: Any, X: Any) -> bool:
    """Return whether the ``groups`` of rows ``X`` are memberships rather than labels."""
    if backend_of(groups).by_name:  # a column instead of its name, which is refused later
        return False
    if backend_of(groups).is_memory:
        rows = getattr(X, "shape", (None,))[0]
        return as_memberships(groups, rows) is not None
    shape: Any = getattr(groups, "shape", ())
    return len(shape) == 2 and shape[1] != 1


def _check_alone(what: str, **others: Any) -> None:
    """Raise ValueError if a column is given beside rows that include it."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} was given beside {what}; leave {name} out")


def _roots(X: object) -> set[str]:
    """Return the packages that define the type of ``X`` and its bases."""
    return {base.__module__.split(".")[0] for base in type(X).__mro__}
