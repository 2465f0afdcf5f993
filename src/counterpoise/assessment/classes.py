"""Classifiers by group: accuracy, log loss, calibration and confusion, alone and side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from counterpoise.assessment.calibration import CalibrationByGroup, calibrate_groups
from counterpoise.assessment.folds import fits_by_fold, usable_folds
from counterpoise.assessment.intervals import (
    GroupSums,
    RiskIntervals,
    check_level,
    intervals_of,
    loss_intervals,
)
from counterpoise.assessment.metrics import (
    balanced_weights,
    class_probabilities,
    encode_classes,
    grouped_rows,
    losses_of_classes,
)
from counterpoise.assessment.proportions import ErrorSums, PairedErrors, direction
from counterpoise.assessment.row_losses import group_argument
from counterpoise.common.arguments import check_whole
from counterpoise.common.text import change, clipped, figure, listed, number, percent, text_table
from counterpoise.rows.backends import to_host
from counterpoise.rows.frames import given
from counterpoise.rows.groups import label_list
from counterpoise.rows.memberships import RowGroups

Array = np.ndarray

# Most groups that are printed.
SHOWN = 30


class Answers(NamedTuple):
    """What a classifier says about rows: the numbers of the classes, and their probabilities.

    ``proba`` is None for a classifier without probabilities. Rows that were not held out have the
    class -1.
    """

    codes: Array
    proba: Array | None


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """How a classifier does in every group; prints as a table of groups.

    Attributes
    ----------
    labels : array of shape (K,)
    classes : array of shape (C,)
    errors : RiskIntervals
        Share of misclassified rows, with Wilson intervals; ``errors.complement()`` has accuracies.
    balanced_errors : array of shape (K,)
        Mean over the classes that a group has of the error among its rows of the class.
    log_losses : RiskIntervals or None
        None for a classifier without probabilities.
    calibration : CalibrationByGroup or None
    confusion : array of shape (K, C, C)
        Weights of the rows by group, class and predicted class.
    average_error, average_log_loss : float
        Over all rows; NaN for a classifier without probabilities.
    """

    labels: Array
    classes: Array
    errors: RiskIntervals
    balanced_errors: Array
    log_losses: RiskIntervals | None
    calibration: CalibrationByGroup | None
    confusion: Array
    average_error: float
    average_log_loss: float

    @property
    def accuracies(self) -> RiskIntervals:
        """Share of correctly classified rows; ``worst`` is the lowest."""
        return self.errors.complement()

    def confusion_shares(self, label: Any) -> Array:
        """Return the confusion matrix of a group in shares of the rows of each class: (C, C).

        A class without rows has NaN.
        """
        matrix = self.confusion[label_list(self.labels).index(label)]
        totals = matrix.sum(axis=1, keepdims=True)
        return np.divide(matrix, totals, out=np.full(matrix.shape, np.nan), where=totals > 0)

    def table(self, most: int = SHOWN) -> str:
        """Figures by group as text, the group of the lowest accuracy first."""
        right = self.accuracies
        level = f"{100 * right.level:g}% interval"
        head = ["group", "rows", "accuracy", level, "balanced"]
        head += ["log loss", "slope", "ECE"] if self.log_losses is not None else []
        order = np.argsort(np.nan_to_num(right.values, nan=2.0), kind="stable")
        rows = []
        for k in order[:most]:
            row = [
                clipped(str(label_list(self.labels)[k])), f"{right.sizes[k]:.0f}",
                percent(right.values[k]), f"{percent(right.low[k])} .. {percent(right.high[k])}",
                percent(1.0 - self.balanced_errors[k]),
            ]  # fmt: skip
            if self.log_losses is not None:
                found = None if self.calibration is None else self.calibration.groups[k]
                row.append(number(float(self.log_losses.values[k])))
                row.append("" if found is None else f"{found.slope.value:.2f}")
                row.append("" if found is None else f"{found.ece:.3f}")
            rows.append(row)
        lines = [text_table(head, rows)]
        if len(order) > most:
            lines.append(f"... and {len(order) - most} groups with a higher accuracy")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


@dataclass(frozen=True, kw_only=True)
class PairedLosses:
    """Mean difference of two classifiers' log losses on the same rows, group by group.

    Attributes
    ----------
    labels : array of shape (K,)
    change, low, high : arrays of shape (K,)
        Loss of the second minus that of the first, with bounds from Student's t. The bounds of all
        groups hold together with probability ``level`` at least.
    level : float
    """

    labels: Array
    change: Array
    low: Array
    high: Array
    level: float

    @classmethod
    def of(
        cls, gaps: Array, labels: Array, codes: Array, weights: Array | None, level: float = 0.95
    ) -> PairedLosses:
        """Summarise the differences ``gaps`` of rows by group."""
        return cls.of_sums(GroupSums.of(gaps, codes, len(labels), weights), labels, level)

    @classmethod
    def of_sums(cls, sums: GroupSums, labels: Array, level: float = 0.95) -> PairedLosses:
        """Summarise from sums over rows."""
        K = len(labels)
        mass = np.where(sums.mass > 0, sums.mass, 1.0)
        size = np.where(sums.mass > 0, mass**2 / np.where(sums.mass > 0, sums.squares, 1.0), 0.0)
        known = size > 1.0 + 1e-9
        error = np.sqrt(sums.second / mass / np.where(known, size - 1.0, 1.0))
        quantile = student.isf(0.5 * (1.0 - level) / K, np.where(known, size - 1.0, 1.0))
        mean = np.where(sums.mass > 0, sums.mean, np.nan)
        low = np.where(known, mean - quantile * error, -np.inf)
        high = np.where(known, mean + quantile * error, np.inf)
        return cls(labels=labels, change=mean, low=low, high=high, level=float(level))

    def verdict(self, k: int) -> str:
        """Say whether the loss of a group is lower, higher, or not distinguishable."""
        return direction(self.low[k], self.high[k])


@dataclass(frozen=True, kw_only=True)
class ClassComparison:
    """Two or more classifiers on the same rows, group by group; prints as a table.

    Attributes
    ----------
    how : str, which rows, in words
    held_out : bool, whether no classifier was fitted to the rows that judge it
    baseline : str, the name of the one that the others are compared with
    scores : dict name -> ClassScores
    errors : dict name -> PairedErrors
        Change of the errors from the baseline, for every other classifier.
    losses : dict name -> PairedLosses
        The same for log losses; only of classifiers with probabilities.
    """

    how: str
    held_out: bool
    baseline: str
    scores: dict[str, ClassScores]
    errors: dict[str, PairedErrors]
    losses: dict[str, PairedLosses]

    def __getitem__(self, name: str) -> ClassScores:
        return self.scores[name]

    def verdict(self, name: str) -> str:
        """Say in one sentence how a classifier does on the worst group, beside the baseline."""
        before, after = self.scores[self.baseline], self.scores[name]
        paired = self.errors[name]
        worst = int(np.nanargmax(before.errors.values))
        label = label_list(before.labels)[worst]
        lower, higher = (
            [str(label_list(before.labels)[k]) for k in range(len(before.labels))
             if paired.verdict(k) == what]
            for what in ("lower", "higher")
        )  # fmt: skip
        out = (
            f"Worst group's accuracy: {percent(before.accuracies.worst.value)} -> "
            f"{percent(after.accuracies.worst.value)}; all rows: "
            f"{percent(1 - before.average_error)} -> {percent(1 - after.average_error)}."
        )
        if after.log_losses is not None and before.log_losses is not None:
            a, b = before.log_losses.worst.value, after.log_losses.worst.value
            out += f" Worst group's log loss: {figure(a)} -> {figure(b)} ({change(a, b)})."
        out += f" The error of {label}, the worst group of {self.baseline}, is "
        out += f"{paired.verdict(worst)} ({100 * paired.change[worst]:+.1f} points)."
        if lower:
            out += f" Groups with a clearly lower error: {listed(lower)}."
        if higher:
            out += f" Groups with a clearly higher error: {listed(higher)}."
        return out

    def table(self) -> str:
        """One line for each classifier: accuracy of the worst group and of all rows, log losses."""
        head = ["", "worst accuracy", "all rows", "worst log loss", "all rows"]
        rows = []
        for name, found in self.scores.items():
            worst = found.accuracies.worst
            row = [
                clipped(name),
                f"{percent(worst.value)} [{percent(worst.low)}, {percent(worst.high)}]",
                percent(1.0 - found.average_error),
            ]
            if found.log_losses is None:
                row += ["", ""]
            else:
                row += [number(found.log_losses.worst.value), number(found.average_log_loss)]
            rows.append(row)
        return text_table(head, rows)

    def __str__(self) -> str:
        lines = [f"On {self.how}:", "", self.table(), ""]
        lines += [f"{name}: {self.verdict(name)}" for name in self.errors]
        return "\n".join(lines)


def group_scores(
    model: Any,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any = None,
    *,
    level: float = 0.95,
) -> ClassScores:
    """Judge a fitted classifier on given rows, group by group.

    Parameters
    ----------
    model : fitted classifier
        Of Counterpoise, scikit-learn or any package with ``classes_``, ``predict`` and, if
        possible, ``predict_proba``.
    X, y, groups, sample_weight :
        Rows that the model was not fitted to; on the rows of its fit, it looks better than it is.
    level : float, default=0.95
        Confidence of the intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(3000, 2)), np.repeat(["a", "b"], [2700, 300])
    >>> y = (X[:, 0] * np.where(groups == "a", 1, -1) + rng.normal(size=3000) > 0).astype(int)
    >>> model = LogisticRegression().fit(X[::2], y[::2])
    >>> found = group_scores(model, X[1::2], y[1::2], groups[1::2])
    >>> bool(found.errors["b"].value > 0.7)
    True
    """
    check_is_fitted(model)
    check_level(level)
    y, groups, sample_weight = (
        given(to_host(values), name)
        for values, name in ((y, "y"), (groups, "groups"), (sample_weight, "sample_weight"))
    )
    check_consistent_length(X, y, groups)
    classes, codes = encode_classes(y, _classes(model))
    found, weights = grouped_rows(groups, sample_weight, len(codes))
    said = answers(model, X, classes, groups)
    return scores_of(said, codes, classes, found, weights, level)


def compare_classifiers(
    models: Mapping[str, Any],
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any = None,
    *,
    folds: int = 5,
    level: float = 0.95,
    random_state: int = 0,
) -> ClassComparison:
    """Compare classifiers on held-out rows, group by group.

    Every classifier is fitted again without each fold in turn; folds are stratified by group and
    class. Classifiers whose ``fit`` takes ``groups`` get them; so does the last step of a pipeline.
    Those that use the group get it to predict, too.

    Parameters
    ----------
    models : mapping name -> classifier
        Fitted or not. The first is the baseline that the others are compared with.
    X, y, groups, sample_weight :
        Rows in memory.
    folds : int, default=5
    level : float, default=0.95
        Confidence of the intervals. Those of differences hold for all groups together.
    random_state : int, default=0
        How rows are assigned to folds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.dummy import DummyClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat(["a", "b"], [400, 200])
    >>> y = (X[:, 0] + 0.5 * rng.normal(size=600) > 0).astype(int)
    >>> models = {"prior": DummyClassifier(), "fit": LogisticRegression()}
    >>> found = compare_classifiers(models, X, y, groups)
    >>> found.errors["fit"].verdict(0), found.errors["fit"].verdict(1)
    ('lower', 'lower')
    """
    if not isinstance(models, Mapping) or len(models) < 1:
        raise ValueError(f"models must map names to classifiers; got {models!r}")
    check_level(level)
    folds = check_whole("folds", folds, 2)
    X = given(to_host(X), "X")
    y = column_or_1d(given(to_host(y), "y"))
    check_consistent_length(X, y, groups, sample_weight)
    found, weights = grouped_rows(given(to_host(groups), "groups"), sample_weight, len(y))
    made = cross_classify(
        models, X, y, found.given, weights, folds=folds, random_state=random_state
    )
    return compared(
        made, *encode_classes(y), found, weights, level=level, held_out=True,
        how=f"rows held out in {usable_folds(folds, found)} folds",
    )  # fmt: skip


def cross_classify(
    models: Mapping[str, Any],
    X: Any,
    y: Array,
    groups: Any,
    weights: Array | None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> dict[str, Answers]:
    """Classify every row by fits that had not seen it, in folds stratified by group and class."""
    classes, codes = encode_classes(y)
    found = RowGroups.of(groups, len(y))
    made: dict[str, Answers] = {}
    for name, fitted, X_test, test in fits_by_fold(
        models, X, y, groups, weights, folds=folds, random_state=random_state, classes=codes
    ):
        said = answers(fitted, X_test, classes, found.take(test).given)
        if name not in made:
            proba = None if said.proba is None else np.full((len(y), len(classes)), np.nan)
            made[name] = Answers(np.full(len(y), -1, dtype=np.int64), proba)
        whole = made[name]
        whole.codes[test] = said.codes
        if whole.proba is not None and said.proba is not None:
            whole.proba[test] = said.proba
    return made


def compared(
    made: Mapping[str, Answers],
    classes: Array,
    rows_class: Array,
    groups: RowGroups,
    weights: Array | None,
    *,
    how: str,
    held_out: bool,
    level: float,
) -> ClassComparison:
    """Compare what classifiers said about the same rows; the first is the baseline."""
    baseline, *others = made
    seen = np.flatnonzero(made[baseline].codes >= 0)
    own = groups.take(seen)
    part = own.weights(None if weights is None else weights[seen])

    def wrong(name: str) -> Array:
        return own.listed((made[name].codes[seen] != rows_class[seen]).astype(float))

    losses = {
        name: own.listed(losses_of_classes(said.proba[seen], rows_class[seen]))
        for name, said in made.items()
        if said.proba is not None
    }
    return ClassComparison(
        how=how,
        held_out=held_out,
        baseline=baseline,
        scores={
            name: scores_of(said, rows_class, classes, groups, weights, level)
            for name, said in made.items()
        },
        errors={
            name: PairedErrors.of(wrong(baseline), wrong(name), own.labels, own.codes, part, level)
            for name in others
        },
        losses={
            name: PairedLosses.of(
                losses[name] - losses[baseline], own.labels, own.codes, part, level
            )
            for name in others
            if name in losses and baseline in losses
        },
    )


def answers(model: Any, X: Any, classes: Array, groups: Any = None) -> Answers:
    """Ask a fitted classifier about rows; ``classes`` are those of the labels, sorted."""
    given_too = group_argument(model, groups)
    said = column_or_1d(to_host(model.predict(X, **given_too)))
    codes = encode_classes(said, classes)[1]
    if not hasattr(model, "predict_proba"):
        return Answers(codes, None)
    proba = np.asarray(to_host(model.predict_proba(X, **given_too)), dtype=float)
    own = label_list(np.asarray(model.classes_))
    if own != label_list(classes):  # a class that the fit did not see has probability zero
        whole = np.zeros((len(proba), len(classes)))
        whole[:, encode_classes(np.asarray(model.classes_), classes)[1]] = proba
        proba = whole
    return Answers(codes, class_probabilities(proba, len(classes)))


def scores_of(
    said: Answers,
    rows_class: Array,
    classes: Array,
    groups: RowGroups,
    weights: Array | None,
    level: float,
) -> ClassScores:
    """Summarise what a classifier said about rows, without those it did not answer (-1)."""
    answered = np.flatnonzero(said.codes >= 0)
    row_weights = None if weights is None else weights[answered]
    own = groups.take(answered)
    # One entry for each membership of a row from here on.
    labels, group, seen = own.labels, own.codes, own.listed(answered)
    true, told, part = rows_class[seen], said.codes[seen], own.weights(row_weights)
    w = np.ones(len(seen)) if part is None else part
    K, C = len(labels), len(classes)
    wrong = (told != true).astype(float)
    even = balanced_weights(true, group, w)
    totals = np.bincount(group, even, K)
    sums = ErrorSums.of(wrong, group, K, part)
    balanced = np.full(K, np.nan)
    np.divide(np.bincount(group, even * wrong, K), totals, out=balanced, where=totals > 0)
    log_losses = calibration = None
    average = float("nan")
    if said.proba is not None:
        losses = losses_of_classes(said.proba[seen], true)
        log_losses = loss_intervals(losses, labels, group, part, level=level)
        each = losses_of_classes(said.proba[answered], rows_class[answered])
        average = float(np.average(each, weights=row_weights))
        calibration = calibrate_groups(said.proba[seen], true, classes, labels, group, part, level)
    return ClassScores(
        labels=labels,
        classes=classes,
        errors=sums.intervals(labels, level),
        balanced_errors=balanced,
        log_losses=log_losses,
        calibration=calibration,
        confusion=np.bincount((group * C + true) * C + told, w, K * C * C).reshape(K, C, C),
        average_error=float(
            np.average(said.codes[answered] != rows_class[answered], weights=row_weights)
        ),
        average_log_loss=average,
    )


class ClassSums(NamedTuple):
    """Sums over chunks of rows from which the scores of a classifier follow."""

    errors: ErrorSums
    losses: GroupSums | None
    confusion: Array

    @classmethod
    def of(
        cls, said: Answers, true: Array, C: int, groups: RowGroups, weights: Array | None
    ) -> ClassSums:
        """Sum a chunk whose rows have the classes ``true``."""
        codes, K, weights = groups.codes, groups.n_groups, groups.weights(weights)
        true, proba = groups.listed(true), said.proba
        said = Answers(groups.listed(said.codes), None if proba is None else groups.listed(proba))
        w = np.ones(len(codes)) if weights is None else weights
        wrong = (said.codes != true).astype(float)
        losses = None
        if said.proba is not None:
            losses = GroupSums.of(losses_of_classes(said.proba, true), codes, K, weights)
        confusion = np.bincount((codes * C + true) * C + said.codes, w, K * C * C)
        return cls(ErrorSums.of(wrong, codes, K, weights), losses, confusion.reshape(K, C, C))

    def merge(self, other: ClassSums) -> ClassSums:
        """Return the sums over the rows of both."""
        losses = self.losses
        if losses is not None and other.losses is not None:
            losses = losses.merge(other.losses)
        return ClassSums(self.errors.merge(other.errors), losses, self.confusion + other.confusion)

    def scores(self, classes: Array, labels: Array, level: float) -> ClassScores:
        """Return the scores; calibration needs the rows themselves."""
        totals = self.confusion.sum(axis=2)
        right = np.diagonal(self.confusion, axis1=1, axis2=2)
        share = np.divide(right, totals, out=np.full(totals.shape, np.nan), where=totals > 0)
        log_losses, average = None, float("nan")
        if self.losses is not None:
            log_losses = intervals_of(self.losses.moments(), labels, level)
            average = float(self.losses.mass @ self.losses.mean / self.losses.mass.sum())
        return ClassScores(
            labels=labels,
            classes=classes,
            errors=self.errors.intervals(labels, level),
            balanced_errors=1.0 - np.nanmean(share, axis=1),
            log_losses=log_losses,
            calibration=None,
            confusion=self.confusion,
            average_error=self.errors.average,
            average_log_loss=average,
        )


def _classes(model: Any) -> Array:
    if not hasattr(model, "classes_"):
        raise TypeError(
            f"model must be a fitted classifier with classes_; got {type(model).__name__}. For "
            "regressors, see risk_intervals"
        )
    return np.asarray(model.classes_)
