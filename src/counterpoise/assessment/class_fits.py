"""A classifier beside its plain average: risks, accuracies, calibration and confusion by group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from counterpoise.assessment.classes import (
    Answers,
    ClassComparison,
    ClassSums,
    PairedLosses,
    answers,
    compared,
)
from counterpoise.assessment.folds import fits_by_fold, usable_folds
from counterpoise.assessment.intervals import (
    check_level,
    group_intervals,
    group_sums,
    intervals_of,
)
from counterpoise.assessment.proportions import PairedErrors, PairSums
from counterpoise.assessment.record import RiskComparison
from counterpoise.assessment.row_losses import row_losses
from counterpoise.common.progress import stage
from counterpoise.rows.classes import class_numbers
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sources import Chunks

Array = np.ndarray

PLAIN, OURS = "plain", "ours"


class ClassFits(NamedTuple):
    """Both models on the same rows: by the loss that is minimised, and by their classes."""

    risks: RiskComparison
    classes: ClassComparison


def compare_classes_by_folds(
    model: Any,
    X: Any,
    y: Array,
    groups: Any,
    weights: Array | None,
    *,
    folds: int,
    level: float,
    random_state: int,
) -> ClassFits:
    """Compare on held-out rows: both models are fitted again without each fold in turn.

    A cross-validated model keeps the options that it has chosen.
    """
    chosen = model.chosen_estimator() if hasattr(model, "chosen_estimator") else model
    models = {PLAIN: model.plain_twin(), OURS: chosen}
    found = RowGroups.of(groups, len(y))
    classes = model.classes_
    numbers = class_numbers(y, classes).astype(np.int64)
    made = {name: _unanswered(len(y), len(classes), model) for name in models}
    losses = {name: np.full(len(y), np.nan) for name in models}
    for name, fitted, X_test, test in fits_by_fold(
        models, X, y, groups, weights, folds=folds, random_state=random_state, classes=numbers
    ):
        said = answers(fitted, X_test, classes)
        losses[name][test] = row_losses(fitted, X_test, y[test])
        made[name].codes[test] = said.codes
        if said.proba is not None:
            whole = made[name].proba
            assert whole is not None
            whole[test] = said.proba
    how = f"rows held out in {usable_folds(folds, found)} folds"
    if chosen is not model:
        how += ", with the options that were chosen on the same rows"
    seen = np.flatnonzero(np.isfinite(losses[OURS]))
    part, seen_groups = None if weights is None else weights[seen], found.take(seen)
    sides: dict[str, Any] = {}
    for name in models:
        own = losses[name][seen]
        sides[name] = group_intervals(own, seen_groups, part, level=level)
        sides[f"{name}_average"] = float(np.average(own, weights=part))
    return ClassFits(
        RiskComparison(how=how, held_out=True, **sides),
        compared(made, classes, numbers, found, weights, how=how, held_out=True, level=level),
    )


def _unanswered(n: int, C: int, model: Any) -> Answers:
    proba = np.full((n, C), np.nan) if hasattr(model, "predict_proba") else None
    return Answers(np.full(n, -1, dtype=np.int64), proba)


def compare_classes_on_rows(
    plain: Any, ours: Any, chunks: Iterable[Any], rows: int | None, level: float = 0.95
) -> ClassFits:
    """Compare on the rows of the fit, in one more pass; fair if there are very many.

    Calibration needs the rows together, and so is not measured.
    """
    check_level(level)
    labels, classes, read = ours.groups_, ours.classes_, 0
    models = {PLAIN: plain, OURS: ours}
    sums: list[Any] | None = None
    for X, y, *rest in chunks:
        groups, weights = (*rest, None, None)[:2]
        found = RowGroups.of(groups, len(y)).among(labels)
        # As a chunk: rows of a source have no names to check.
        chunk = Chunks([(X, y, groups, weights)])
        parts = _chunk_sums(models.values(), chunk, y, classes, found, weights)
        if sums is None:
            sums = parts
        else:
            sums = [mine.merge(new) for mine, new in zip(sums, parts, strict=True)]
        read += len(y)
        stage(f"risks by group, {read:,} rows", read / rows if rows else None)
    stage(None)
    if sums is None:
        raise ValueError("the source gave no chunks; it must give at least one")
    both, losses, (gaps, pairs) = sums[:4], sums[4:8], sums[8:]
    how = "the rows of the fit, which favor it if they are few"
    sides: dict[str, Any] = {}
    scores = {}
    for i, name in enumerate(models):
        sides[name] = intervals_of(losses[i].moments(), labels, level)
        sides[f"{name}_average"] = float(losses[i + 2].mean[0])
        whole = both[i + 2].scores(classes, np.zeros(1, int), level)
        scores[name] = replace(
            both[i].scores(classes, labels, level),
            average_error=whole.average_error, average_log_loss=whole.average_log_loss,
        )  # fmt: skip
    has_log_loss = scores[OURS].log_losses is not None
    return ClassFits(
        RiskComparison(how=how, held_out=False, **sides),
        ClassComparison(
            how=how,
            held_out=False,
            baseline=PLAIN,
            scores=scores,
            errors={OURS: PairedErrors.of_sums(pairs, labels, level)},
            losses={OURS: PairedLosses.of_sums(gaps, labels, level)} if has_log_loss else {},
        ),
    )


def _chunk_sums(
    models: Iterable[Any],
    chunk: Chunks,
    y: Any,
    classes: Array,
    groups: RowGroups,
    weights: Array | None,
) -> list[Any]:
    """Sums over a chunk: scores and losses of both models, and differences between them.

    Scores and losses come by group, and then for all rows as one group.
    """
    numbers = class_numbers(y, classes).astype(np.int64)
    said = [answers(model, chunk, classes) for model in models]
    losses = [row_losses(model, chunk, y) for model in models]
    wrong = [(one.codes != numbers).astype(float) for one in said]
    kinds = (groups, RowGroups.of(None, len(numbers)))
    own, w = groups, groups.weights(weights)
    return [
        *(ClassSums.of(one, numbers, len(classes), of, weights) for of in kinds for one in said),
        *(group_sums(one, of, weights) for of in kinds for one in losses),
        group_sums(losses[1] - losses[0], own, weights),
        PairSums.of(own.listed(wrong[0]), own.listed(wrong[1]), own.codes, own.n_groups, w),
    ]
