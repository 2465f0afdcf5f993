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

    A cross-validated model brings the scores of its own folds, each by the fit that the other folds
    chose. A stored one is fitted again with the options that it has chosen; one that uses the group
    chooses anew in every fold.
    """
    found = RowGroups.of(groups, len(y))
    classes = model.classes_
    numbers = class_numbers(y, classes).astype(np.int64)
    own = getattr(model, "held_out_scores", None)
    if own is not None and np.array_equal(own.y, y):
        how = model.held_out_comparison().how
        return _of_scores(model, own, numbers, found, weights, how, level)
    chosen = model
    if hasattr(model, "chosen_estimator") and not getattr(model, "uses_group_", None):
        chosen = model.chosen_estimator()
    models = {PLAIN: model.plain_twin(), OURS: chosen}
    made = {name: _unanswered(len(y), len(classes), model) for name in models}
    losses = {name: np.full(len(y), np.nan) for name in models}
    for name, fitted, X_test, test in fits_by_fold(
        models, X, y, groups, weights, folds=folds, random_state=random_state, classes=numbers
    ):
        own_groups = found.take(test).given
        said = answers(fitted, X_test, classes, own_groups)
        losses[name][test] = row_losses(fitted, X_test, y[test], own_groups)
        made[name].codes[test] = said.codes
        if said.proba is not None:
            whole = made[name].proba
            assert whole is not None
            whole[test] = said.proba
    how = f"rows held out in {usable_folds(folds, found)} folds"
    if chosen is not model:
        how += ", with the options that were chosen on the same rows"
    return _judged(made, losses, classes, numbers, found, weights, how, level)


def _of_scores(
    model: Any,
    scores: Any,
    numbers: Array,
    groups: RowGroups,
    weights: Array | None,
    how: str,
    level: float,
) -> ClassFits:
    """Compare by linear scores of held-out rows."""
    made, losses = {}, {}
    for name, own in ((PLAIN, scores.plain), (OURS, scores.ours)):
        seen = np.flatnonzero(np.isfinite(own).all(axis=1))
        made[name] = _unanswered(len(own), len(model.classes_), model)
        part = own[seen]
        said = model.outputs_of(part, "predict")
        made[name].codes[seen] = class_numbers(said, model.classes_).astype(np.int64)
        whole = made[name].proba
        if whole is not None:
            whole[seen] = model.outputs_of(part, "probabilities")
        losses[name] = np.full(len(own), np.nan)
        used = part[:, 0] if part.shape[1] == 1 else part
        losses[name][seen] = model.loss_.value(used, numbers[seen])
    return _judged(made, losses, model.classes_, numbers, groups, weights, how, level)


def _judged(
    made: dict[str, Answers],
    losses: dict[str, Array],
    classes: Array,
    numbers: Array,
    found: RowGroups,
    weights: Array | None,
    how: str,
    level: float,
) -> ClassFits:
    """Turn answers and losses of held-out rows into risks and scores by group."""
    seen = np.flatnonzero(np.isfinite(losses[OURS]))
    part, seen_groups = None if weights is None else weights[seen], found.take(seen)
    sides: dict[str, Any] = {}
    for name in made:
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
        own = RowGroups.of(groups, len(y)).among(labels)
        # As a chunk: rows of a source have no names to check.
        chunk = Chunks([(X, y, groups, weights)])
        parts = _chunk_sums(models.values(), chunk, y, classes, own, weights)
        if sums is None:
            sums = parts
        else:
            sums = [mine.merge(new) for mine, new in zip(sums, parts, strict=True)]
        read += len(y)
        stage(f"risks by group, {read:,} rows", read / rows if rows else None)
    stage(None)
    if sums is None:
        raise ValueError("the source gave no chunks; it must give at least one")
    *each, gaps, pairs = sums
    # Scores by group and over all rows, then losses likewise, each of both models.
    both = [each[i : i + 2] for i in range(0, 8, 2)]
    how = "the rows of the fit, which favor it if they are few"
    sides: dict[str, Any] = {}
    scores = {}
    for name, by_group, of_all, losses, of_all_losses in zip(models, *both, strict=True):
        sides[name] = intervals_of(losses.moments(), labels, level)
        sides[f"{name}_average"] = float(of_all_losses.mean[0])
        whole = of_all.scores(classes, np.zeros(1, int), level)
        scores[name] = replace(
            by_group.scores(classes, labels, level),
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
    """Sums over a chunk: of both models by group and over all rows, and of their differences."""
    numbers, C = class_numbers(y, classes).astype(np.int64), len(classes)
    said = [answers(model, chunk, classes) for model in models]
    losses = [row_losses(model, chunk, y) for model in models]
    wrong = [groups.listed((one.codes != numbers).astype(float)) for one in said]
    everyone = RowGroups.of(None, len(numbers))
    K, parts = groups.n_groups, groups.weights(weights)
    return [
        *(ClassSums.of(one, numbers, C, of, weights) for of in (groups, everyone) for one in said),
        *(group_sums(one, of, weights) for of in (groups, everyone) for one in losses),
        group_sums(losses[1] - losses[0], groups, weights),
        PairSums.of(wrong[0], wrong[1], groups.codes, K, parts),
    ]
