"""What a fit is worth group by group, beside the plain average: for records and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from counterpoise.assessment.held_out import stratified_folds
from counterpoise.assessment.intervals import (
    GroupSums,
    RiskIntervals,
    check_level,
    intervals_of,
    loss_intervals,
)
from counterpoise.assessment.metrics import squared_errors
from counterpoise.assessment.record import QUANTILES, Judged, Residuals
from counterpoise.common.progress import stage
from counterpoise.estimators.base import Neuron
from counterpoise.estimators.cross_validation import GroupDRONeuronCV
from counterpoise.estimators.neuron import GroupDRONeuron
from counterpoise.rows.groups import encode_groups

Array = np.ndarray

# Options of a fit that the plain average shares with it.
SHARED = ("activation", "radius", "fit_intercept", "precondition", "max_iter", "tol")


def plain_twin(model: Neuron) -> GroupDRONeuron:
    """The same neuron for the average over rows: least squares, for the identity."""
    options = {name: getattr(model, name) for name in SHARED if hasattr(model, name)}
    return GroupDRONeuron(**options, nu=np.inf, prior="rows")


def plain_name(model: Neuron) -> str:
    """What the plain average over rows is called beside a fit."""
    return "least squares" if model.activation_.is_identity else "plain average"


def cross_predict(
    models: Mapping[str, Neuron],
    X: Any,
    y: Array,
    groups: Any = None,
    sample_weight: Array | None = None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> dict[str, Array]:
    """Predictions for every row by fits that had not seen it, in folds stratified by group.

    The only row of a group is never held out; its predictions are NaN.
    """
    labels, codes = encode_groups(groups, len(y))
    rng = np.random.default_rng(random_state)
    folds = usable_folds(folds, codes)
    fold = stratified_folds(codes, len(labels), folds, rng)
    out = {name: np.full(len(y), np.nan) for name in models}
    for f in range(folds):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        weights = None if sample_weight is None else sample_weight[train]
        for i, (name, model) in enumerate(models.items()):
            done = (f + i / len(models)) / folds
            stage(f"held-out rows, fold {f + 1} of {folds}, {name}", done)
            fresh = clone(model)
            if "checkpoint" in fresh.get_params(deep=False):  # that of the fit to all rows
                fresh.set_params(checkpoint=None)
            fitted = fresh.fit(
                X[train], y[train], groups=labels[codes[train]], sample_weight=weights
            )
            out[name][test] = fitted.predict(X[test])
    stage(None)
    return out


def usable_folds(folds: int, codes: Array) -> int:
    """As many as asked for, or as the largest group has rows; ``codes`` number groups of rows."""
    largest = int(np.bincount(codes).max())
    if largest < 2:
        raise ValueError(
            f"held-out risks need a group with two rows or more; got {len(codes)} row(s) in groups "
            "of one"
        )
    return min(folds, largest)


def held_out_intervals(
    y: Array, predicted: Array, groups: Any, sample_weight: Array | None, level: float = 0.95
) -> tuple[RiskIntervals, float]:
    """Risks by group and on average, of the rows that have a prediction."""
    labels, codes = encode_groups(groups, len(y))
    seen = np.flatnonzero(np.isfinite(predicted))
    weights = None if sample_weight is None else sample_weight[seen]
    losses = squared_errors(y[seen], predicted[seen])
    found = loss_intervals(losses, labels, codes[seen], weights, level=level)
    return found, float(np.average(losses, weights=weights))


def judge_by_folds(
    model: Neuron,
    X: Any,
    y: Array,
    groups: Any,
    sample_weight: Array | None,
    *,
    folds: int = 5,
    level: float = 0.95,
    random_state: int = 0,
) -> Judged:
    """Fit anew without a part of the rows, again and again, and look at these."""
    made = cross_predict(
        {"plain": plain_twin(model), "ours": model}, X, y, groups, sample_weight,
        folds=folds, random_state=random_state,
    )  # fmt: skip
    folds = usable_folds(folds, encode_groups(groups, len(y))[1])
    plain, plain_average = held_out_intervals(y, made["plain"], groups, sample_weight, level)
    ours, ours_average = held_out_intervals(y, made["ours"], groups, sample_weight, level)
    return Judged(
        how=f"rows held out, in {folds} folds",
        held_out=True,
        plain=plain,
        ours=ours,
        plain_average=plain_average,
        ours_average=ours_average,
    )


def judge_by_choice(model: GroupDRONeuronCV) -> Judged:
    """What the cross-validation that chose the fit has seen."""
    average = model.cv_results_["average_risk"]
    return Judged(
        how="rows held out by the cross-validation that chose the fit, which flatters it a little",
        held_out=True,
        plain=model.plain_intervals_,
        ours=model.intervals_,
        plain_average=float(average[0]),
        ours_average=float(average[model.frontier_.chosen]),
    )


def judge_by_rows(
    plain: Neuron, ours: Neuron, chunks: Iterable[Any], rows: int, level: float = 0.95
) -> Judged:
    """The rows of the fit themselves, read once more: fair where they are very many."""
    check_level(level)
    labels, models, read = ours.groups_, (plain, ours), 0
    sums: list[GroupSums | None] = [None, None]
    for X, y, groups, weights in chunks:
        codes = np.zeros(len(y), int) if groups is None else np.searchsorted(labels, groups)
        for i, model in enumerate(models):
            losses = squared_errors(y, model.predict(X))
            part, before = GroupSums.of(losses, codes, len(labels), weights), sums[i]
            sums[i] = part if before is None else before.merge(part)
        read += len(y)
        stage(f"risks by group, {read:,} rows", read / rows if rows else None)
    stage(None)
    found = [part for part in sums if part is not None]
    averages = [float(part.mass @ part.mean / part.mass.sum()) for part in found]
    intervals = [intervals_of(part.moments(), labels, level) for part in found]
    return Judged(
        how="the rows of the fit themselves, which flatters it where they are few",
        held_out=False,
        plain=intervals[0],
        ours=intervals[1],
        plain_average=averages[0],
        ours_average=averages[1],
    )


def risks_as_they_are(model: Neuron, X: Any, y: Array, groups: Any, weights: Any) -> Array:
    """Risks of all groups of a fit, with labels that it may have clipped as they are."""
    labels, codes = encode_groups(groups, len(y))
    return GroupSums.of(squared_errors(y, model.predict(X)), codes, len(labels), weights).mean


def residuals_by_group(plain: Neuron, ours: Neuron, X: Any, y: Array, groups: Any) -> Residuals:
    """Quantiles of what the fits leave of the labels."""
    labels, codes = encode_groups(groups, len(y))
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(labels)))[:-1]
    tables = []
    for model in (plain, ours):
        left = np.asarray(y, dtype=float) - model.predict(X)
        tables.append([np.quantile(part, QUANTILES) for part in np.split(left[order], ends)])
    return Residuals(
        labels=labels, levels=QUANTILES, plain=np.array(tables[0]), ours=np.array(tables[1])
    )
