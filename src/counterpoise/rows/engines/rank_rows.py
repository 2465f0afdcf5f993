"""How a rank opens its own rows, and what the ranks agree on before the first question."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.classes import ClassNumbers, class_numbers, encode_classes
from counterpoise.rows.collective import Collective, RankRows
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.chunked import ChunkedEngine
from counterpoise.rows.engines.collective import CollectiveEngine, Own
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.engines.overlapping import (
    OverlappingEngine,
    PatternSource,
    few_patterns,
    is_few,
    too_many,
)
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.frames import collected, given
from counterpoise.rows.groups import GroupedData, OverlappingGroups, check_sample_weight
from counterpoise.rows.memberships import as_memberships, check_length, from_keys
from counterpoise.rows.parcels import from_parcel, to_parcel
from counterpoise.rows.scan import NoRows, Scan, check_chunk, union_labels
from counterpoise.rows.sources import Source

Array = np.ndarray


def open_collective(
    rows: RankRows, backend: Any, to_host: Callable[[Any], Any], loss: Loss | Activation,
    *, intercept: bool, centred: bool, progress: Any, cut: FoldCut | None = None,
) -> SumEngine:  # fmt: skip
    """Open the engine of this rank; all ranks call this at the same time.

    ``backend`` is the one for this rank's own rows; ``to_host`` turns values of any kind into
    arrays.
    """
    collective = rows.collective
    names = collective.attempt("finding the features", lambda: _names(rows, backend))
    options: dict[str, Any] = dict(
        intercept=intercept, centred=centred, progress=progress,
        cut=None if cut is None else replace(cut, seed=_same_seed(collective, cut.seed)),
    )  # fmt: skip
    what = "opening the rows"
    own = collective.attempt(what, lambda: _open(rows, backend, to_host, loss, options))
    overlapping = bool(collective.gather(np.array([float(own.overlapping)])).any())
    if overlapping:
        own = collective.attempt(
            what, lambda: _open_keys(rows, backend, to_host, loss, options, own)
        )
    engine = CollectiveEngine(
        collective, own, loss, names=names, intercept=intercept, centred=centred
    )
    rows.shared_names = engine.feature_names
    if not overlapping:
        return engine
    keys = engine.census.labels.tolist()
    if not is_few(len(keys), engine.n_features):
        raise too_many(len(keys), "collective")
    return OverlappingEngine.of_patterns(engine, from_keys(keys))


def _names(rows: RankRows, backend: Any) -> list[str] | None:
    """Return the names of the features of this rank, if they have names."""
    if backend.is_memory:
        found = [*getattr(collected(rows.X), "columns", [])]
    else:
        found = backend.feature_names(rows.X, (rows.y, rows.groups, rows.sample_weight)) or []
    return [*found] if found and all(isinstance(name, str) for name in found) else None


def _same_seed(collective: Collective, seed: int) -> int:
    """Return the seed of rank 0."""
    return int(collective.gather(np.array([float(seed)]))[0, 0])


def _open(
    rows: RankRows, backend: Any, to_host: Callable[[Any], Any], loss: Any, options: dict[str, Any]
) -> Own:
    """Open the rows of this rank by their labels."""
    X, others = rows.X, (rows.y, rows.groups, rows.sample_weight)
    if X is None:
        return Own()
    if isinstance(X, Source):
        with suppress(NoRows):
            try:
                engine = backend.open(X, *others, loss, **options)
            except OverlappingGroups:
                return Own(overlapping=True)
            return Own(engine, engine.scan)
        return Own()
    if not backend.in_place(X):
        X, y, groups, weights = _on_host(rows, to_host)
        if not _length(X):
            return Own()
        if y is None:
            raise ValueError("y is None; give the labels of these rows")
        if as_memberships(groups, _length(X)) is not None:
            return Own(overlapping=True)
        return _in_memory(X, y, groups, weights, loss, options)
    engine = backend.open(X, *others, loss, **options)
    scan = getattr(engine, "scan", None)
    if scan is not None:
        return Own(engine, scan)
    weights = check_sample_weight(to_host(rows.sample_weight), _length(X))
    total = engine.census.totals.sum()
    scale = 1.0 if weights is None else float(weights.sum() / total)
    return Own(engine, _scan_of(engine, scale, rows.groups is not None), scale=scale)


def _open_keys(
    rows: RankRows, backend: Any, to_host: Callable[[Any], Any], loss: Any,
    options: dict[str, Any], own: Own,
) -> Own:  # fmt: skip
    """Open the rows of this rank by their patterns of membership."""
    if not own.overlapping:
        if own.engine is None:
            return own
        raise ValueError(
            "groups has one label per row here, but memberships on another rank; give memberships "
            "on all ranks"
        )
    if isinstance(rows.X, Source):
        with suppress(NoRows):
            engine = ChunkedEngine(PatternSource(rows.X), loss, **options)
            return Own(engine, engine.scan)
        return Own()
    X, y, groups, weights = _on_host(rows, to_host)
    found = as_memberships(groups, _length(X))
    assert found is not None
    check_length(found, _length(X))
    if not few_patterns(found, np.shape(X)[1]):
        raise too_many(found.patterns[1].shape[0], "collective")
    return _in_memory(X, y, found.keys(), weights, loss, options)


def _in_memory(
    X: Any, y: Any, groups: Any, weights: Any, loss: Any, options: dict[str, Any]
) -> Own:
    """Open rows in memory; their weights stay as they are, for they count against other ranks'."""
    rows = check_chunk(X, y, groups, weights, "its rows", cut=options["cut"])
    if not len(rows.y):
        return Own()
    data = GroupedData.sort(
        rows.X, rows.y, rows.codes, rows.labels, rows.weights, intercept=options["intercept"]
    )
    return Own(MemoryEngine(data, loss, centred=options["centred"]), Scan.of(rows))


def _on_host(rows: RankRows, to_host: Callable[[Any], Any]) -> tuple[Any, Any, Any, Any]:
    """Return features, labels, groups and weights in memory; labels have one dimension."""
    named = {"X": rows.X, "y": rows.y, "groups": rows.groups, "sample_weight": rows.sample_weight}
    X, y, groups, weights = (to_host(given(value, name)) for name, value in named.items())
    return X, None if y is None else _column(y), groups, weights


def _column(y: Any) -> Array:
    """Return labels as an array of one dimension, if they have one column."""
    y = np.asarray(y)
    return y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y


def _length(X: Any) -> int:
    return int(np.shape(X)[0])


def _scan_of(engine: SumEngine, scale: float, grouped: bool) -> Scan:
    """Return the scan of an engine that made none, as the one for tensors on a device."""
    census, sample = engine.census, engine.sample()
    if scale != 1.0:
        weights = np.ones(len(sample.y)) if sample.weights is None else sample.weights
        sample = replace(sample, weights=weights * scale)
    text = engine.fingerprint()
    return Scan(
        labels=census.labels, totals=census.totals * scale, n_rows=census.n_rows,
        n_features=census.n_features, mean=census.shift, pivot=census.pivot,
        precision=census.precision, label_size=census.label_size, is_sparse=False,
        grouped=grouped, n_read=census.n_rows, checksum=zlib.crc32(text.encode()),
        fingerprint=text, sample=sample,
    )  # fmt: skip


def number_classes(rows: RankRows, to_host: Callable[[Any], Any]) -> tuple[RankRows, None, Array]:
    """Replace labels by numbers of classes, which are those of all ranks."""
    collective = rows.collective

    def find() -> Array | None:
        if rows.X is None:
            return None
        if isinstance(rows.X, Source):
            with suppress(NoRows):
                found = ClassNumbers.of(rows.X).classes
                return found if len(found) else None
            return None
        if rows.y is None:
            if np.shape(rows.X)[:1] == (0,):
                return None
            raise ValueError("y is None; give the classes of these rows")
        if isinstance(rows.y, str):
            raise ValueError(
                f"y={rows.y!r} is the name of a column; ranks of a classifier need the labels "
                "themselves, or a source of chunks"
            )
        found = encode_classes(_column(to_host(given(rows.y, "y"))))[0]
        return found if len(found) else None

    packed = collective.attempt("finding the classes", lambda: to_parcel(find()))
    heard = [from_parcel(data) for data in collective.gather_bytes(packed)]
    some = [classes for classes in heard if classes is not None]
    if not some:
        raise NoRows("no rank has any rows to fit")
    try:
        classes = reduce(union_labels, some)
    except TypeError as error:
        said = str(error).replace("groups of different chunks", "y of different ranks")
        raise TypeError(said) from None
    X, y = rows.X, rows.y
    if isinstance(X, Source):
        X = ClassNumbers(X, classes)
    elif X is not None:
        y = class_numbers(_column(to_host(given(rows.y, "y"))), classes)
    return RankRows(collective, X, y, rows.groups, rows.sample_weight), None, classes
