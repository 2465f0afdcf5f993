"""Comparison of a fit with the plain average by group, on held-out rows or on all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from counterpoise.assessment.held_out import folds_of
from counterpoise.assessment.intervals import (
    GroupSums,
    RiskIntervals,
    check_level,
    group_intervals,
    group_sums,
    intervals_of,
)
from counterpoise.assessment.metrics import squared_errors
from counterpoise.assessment.record import QUANTILES, Residuals, RiskComparison
from counterpoise.common.progress import stage
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sources import Chunks

Array = np.ndarray


class Regressor(Protocol):
    """The methods of an estimator that a comparison needs."""

    groups_: Array

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self: ...

    def predict(self, X: Any) -> Any: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def plain_twin(self) -> Any: ...


def cross_predict(
    models: Mapping[str, Regressor],
    X: Any,
    y: Array,
    groups: Any = None,
    sample_weight: Array | None = None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> dict[str, Array]:
    """Predict every row by fits that had not seen it, in folds stratified by group.

    The only row of a group is never held out; its predictions are NaN.
    """
    found = RowGroups.of(groups, len(y))
    rng = np.random.default_rng(random_state)
    folds = usable_folds(folds, found)
    fold = folds_of(found, folds, rng)
    out = {name: np.full(len(y), np.nan) for name in models}
    for f in range(folds):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        weights = None if sample_weight is None else sample_weight[train]
        X_train, X_test = _safe_indexing(X, train), _safe_indexing(X, test)
        own = found.take(train).given
        for i, (name, model) in enumerate(models.items()):
            done = (f + i / len(models)) / folds
            stage(f"held-out rows, fold {f + 1} of {folds}, {name}", done)
            fresh = clone(model)
            if "checkpoint" in fresh.get_params(deep=False):  # it belongs to the fit to all rows
                fresh.set_params(checkpoint=None)
            fitted = fresh.fit(X_train, y[train], groups=own, sample_weight=weights)
            out[name][test] = fitted.predict(X_test)
    stage(None)
    return out


def usable_folds(folds: int, groups: RowGroups) -> int:
    """Return the number of folds, limited by the rows of the largest group."""
    largest = int(groups.sizes.max())
    if largest < 2:
        raise ValueError(
            f"held-out risks need a group with at least two rows; got {groups.n_rows} row(s) in "
            "groups of one. Use groups with more rows"
        )
    return min(folds, largest)


def held_out_intervals(
    y: Array, predicted: Array, groups: Any, sample_weight: Array | None, level: float = 0.95
) -> tuple[RiskIntervals, float]:
    """Compute risks by group and on average, over the rows that have a prediction."""
    seen = np.flatnonzero(np.isfinite(predicted))
    own = RowGroups.of(groups, len(y)).take(seen)
    weights = None if sample_weight is None else sample_weight[seen]
    losses = squared_errors(y[seen], predicted[seen])
    found = group_intervals(losses, own, weights, level=level)
    return found, float(np.average(losses, weights=weights))


def compare_by_folds(
    model: Regressor,
    X: Any,
    y: Array,
    groups: Any,
    sample_weight: Array | None,
    *,
    folds: int = 5,
    level: float = 0.95,
    random_state: int = 0,
) -> RiskComparison:
    """Compare on held-out rows: both models are fitted again without each fold in turn."""
    made = cross_predict(
        {"plain": model.plain_twin(), "ours": model}, X, y, groups, sample_weight,
        folds=folds, random_state=random_state,
    )  # fmt: skip
    folds = usable_folds(folds, RowGroups.of(groups, len(y)))
    plain, plain_average = held_out_intervals(y, made["plain"], groups, sample_weight, level)
    ours, ours_average = held_out_intervals(y, made["ours"], groups, sample_weight, level)
    return RiskComparison(
        how=f"rows held out in {folds} folds",
        held_out=True,
        plain=plain,
        ours=ours,
        plain_average=plain_average,
        ours_average=ours_average,
    )


def compare_on_rows(
    plain: Regressor, ours: Regressor, chunks: Iterable[Any], rows: int | None, level: float = 0.95
) -> RiskComparison:
    """Compare on the rows of the fit, in one more pass; fair if there are very many."""
    check_level(level)
    labels, models, read = ours.groups_, (plain, ours), 0
    sums: list[tuple[GroupSums, GroupSums] | None] = [None, None]
    for X, y, *rest in chunks:
        groups, weights = (*rest, None, None)[:2]
        own = RowGroups.of(groups, len(y)).among(labels)
        for i, model in enumerate(models):
            # As a chunk: rows of a source have no names to check.
            losses = squared_errors(y, model.predict(Chunks([(X, y, groups, weights)])))
            all_rows = GroupSums.of(losses, np.zeros(len(losses), int), 1, weights)
            parts, before = (group_sums(losses, own, weights), all_rows), sums[i]
            sums[i] = parts if before is None else (
                before[0].merge(parts[0]), before[1].merge(parts[1])
            )  # fmt: skip
        read += len(y)
        stage(f"risks by group, {read:,} rows", read / rows if rows else None)
    stage(None)
    found = [part for part in sums if part is not None]
    averages = [float(everything.mean[0]) for _, everything in found]
    intervals = [intervals_of(by_group.moments(), labels, level) for by_group, _ in found]
    return RiskComparison(
        how="the rows of the fit, which favor it if they are few",
        held_out=False,
        plain=intervals[0],
        ours=intervals[1],
        plain_average=averages[0],
        ours_average=averages[1],
    )


def risks_with_given_labels(model: Regressor, X: Any, y: Array, groups: Any, weights: Any) -> Array:
    """Compute risks of all groups for the original labels, even if the fit clipped them."""
    found = RowGroups.of(groups, len(y))
    return group_sums(squared_errors(y, model.predict(X)), found, weights).mean


def residuals_by_group(
    plain: Regressor, ours: Regressor, X: Any, y: Array, groups: Any
) -> Residuals:
    """Compute quantiles of the residuals of both fits by group."""
    found = RowGroups.of(groups, len(y))
    order = np.argsort(found.codes, kind="stable")
    labels, ends = found.labels, np.cumsum(found.sizes)[:-1]
    tables = []
    for model in (plain, ours):
        left = found.listed(np.asarray(y, dtype=float) - model.predict(X))
        tables.append([np.quantile(part, QUANTILES) for part in np.split(left[order], ends)])
    return Residuals(
        labels=labels, levels=QUANTILES, plain=np.array(tables[0]), ours=np.array(tables[1])
    )
