"""Comparison of a fit with the plain average by group, on held-out rows or on all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self

import numpy as np
from scipy import sparse

from counterpoise.assessment.folds import fits_by_fold, usable_folds
from counterpoise.assessment.intervals import (
    GroupSums,
    RiskIntervals,
    check_level,
    group_intervals,
    group_sums,
    intervals_of,
)
from counterpoise.assessment.record import (
    QUANTILES,
    AbsoluteErrors,
    GroupBeside,
    Residuals,
    RiskComparison,
)
from counterpoise.assessment.row_losses import group_argument, prediction_losses, row_losses
from counterpoise.common.progress import stage
from counterpoise.rows.classes import class_numbers, decides_class
from counterpoise.rows.group_indicators import with_indicators
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

    The only row of a group is never held out; its predictions are NaN. Models that use the group
    get the groups of the rows to predict.
    """
    out = {name: np.full(len(y), np.nan) for name in models}
    found = RowGroups.of(groups, len(y))
    for name, fitted, X_test, test in fits_by_fold(
        models, X, y, groups, sample_weight, folds=folds, random_state=random_state
    ):
        own = group_argument(fitted, found.take(test).given)
        out[name][test] = fitted.predict(X_test, **own)
    return out


def absolute_errors(
    y: Array, plain: Array, ours: Array, groups: RowGroups, weights: Array | None
) -> AbsoluteErrors:
    """Compute mean absolute errors of two models, over the rows that have a prediction."""
    seen = np.flatnonzero(np.isfinite(plain) & np.isfinite(ours))
    own, part = groups.take(seen), None if weights is None else weights[seen]
    gaps = [np.abs(y[seen] - predicted[seen]) for predicted in (plain, ours)]
    by_group = [group_sums(gap, own, part).moments().mean for gap in gaps]
    over_all = [float(np.average(gap, weights=part)) for gap in gaps]
    return AbsoluteErrors(
        plain=by_group[0], ours=by_group[1], plain_average=over_all[0], ours_average=over_all[1]
    )


def group_beside(
    model: Any,
    X: Any,
    y: Array,
    groups: Any,
    weights: Array | None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> GroupBeside | None:
    """Judge the plain average with the group as a feature, on held-out rows.

    None if groups overlap, if there is one, or if they decide the class of their rows.
    """
    found = RowGroups.of(groups, len(y))
    classes = getattr(model, "classes_", None)
    if found.overlap is not None or found.n_groups < 2 or int(found.sizes.max()) < 2:
        return None
    numbers = None
    if classes is not None:
        numbers = class_numbers(y, classes).astype(np.int64)
        if decides_class(found.codes, numbers):
            return None
    base = int(np.argmax(found.sizes)) if model.fit_intercept else None
    beside = with_indicators(plain_rows(X), found.codes, found.n_groups, base)
    losses = np.full(len(y), np.nan)
    for _, fitted, X_test, test in fits_by_fold(
        {"with the group": model.plain_twin()}, beside, y, groups, weights,
        folds=folds, random_state=random_state, classes=numbers,
    ):  # fmt: skip
        if numbers is None:
            losses[test] = row_losses(fitted, X_test, y[test])
        else:
            losses[test] = fitted.predict(X_test) == y[test]
    seen = np.flatnonzero(np.isfinite(losses))
    part = None if weights is None else weights[seen]
    by_group = group_sums(losses[seen], found.take(seen), part).moments().mean
    worst = np.nanmax(by_group) if numbers is None else np.nanmin(by_group)
    return GroupBeside(worst=float(worst), average=float(np.average(losses[seen], weights=part)))


def plain_rows(X: Any) -> Any:
    """Return features as an array or a CSR matrix."""
    return X.tocsr() if sparse.issparse(X) else np.asarray(X)


def held_out_intervals(
    y: Array,
    predicted: Array,
    groups: Any,
    sample_weight: Array | None,
    level: float = 0.95,
    model: Any = None,
) -> tuple[RiskIntervals, float]:
    """Compute risks by group and on average, over the rows that have a prediction.

    The losses are those of the ``model``; by default, squared errors.
    """
    seen = np.flatnonzero(np.isfinite(predicted))
    own = RowGroups.of(groups, len(y)).take(seen)
    weights = None if sample_weight is None else sample_weight[seen]
    losses = prediction_losses(model, y[seen], predicted[seen])
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
    given = (groups, sample_weight, level, model)
    plain, plain_average = held_out_intervals(y, made["plain"], *given)
    ours, ours_average = held_out_intervals(y, made["ours"], *given)
    return RiskComparison(
        how=f"rows held out in {folds} folds",
        held_out=True,
        plain=plain,
        ours=ours,
        plain_average=plain_average,
        ours_average=ours_average,
        absolute=absolute_errors(
            y, made["plain"], made["ours"], RowGroups.of(groups, len(y)), sample_weight
        ),
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
            losses = row_losses(model, Chunks([(X, y, groups, weights)]), y)
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
    losses = row_losses(model, X, y, groups)
    return group_sums(losses, RowGroups.of(groups, len(y)), weights).mean


def residuals_by_group(
    plain: Regressor, ours: Regressor, X: Any, y: Array, groups: Any
) -> Residuals:
    """Compute quantiles of the residuals of both fits by group."""
    found = RowGroups.of(groups, len(y))
    order = np.argsort(found.codes, kind="stable")
    labels, ends = found.labels, np.cumsum(found.sizes)[:-1]
    tables = []
    for model in (plain, ours):
        predicted = model.predict(X, **group_argument(model, groups))
        left = found.listed(np.asarray(y, dtype=float) - predicted)
        tables.append([np.quantile(part, QUANTILES) for part in np.split(left[order], ends)])
    return Residuals(
        labels=labels, levels=QUANTILES, plain=np.array(tables[0]), ours=np.array(tables[1])
    )
