"""Risks by group, usable as scikit-learn metrics.

For regression, the risk of a group is its mean squared error. For classification there are three:
log loss, error (the share of rows with the wrong class), and balanced error (the mean over the
classes *that the group has* of the error among its rows of that class). A class that a group lacks
does not count there; a group with one class has the plain error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from counterpoise.dual.divergences import Divergence, risk
from counterpoise.rows.backends import to_host
from counterpoise.rows.frames import given
from counterpoise.rows.groups import check_sample_weight, label_list
from counterpoise.rows.memberships import RowGroups

Array = np.ndarray

# Probabilities of single precision sum to one only up to this.
SUM_TOL = 1e-4


def group_risks(
    y_true: Array, y_pred: Array, *, groups: Any, sample_weight: Array | None = None
) -> dict[Any, float]:
    """Compute the mean squared error of every group, as a mapping label -> error.

    ``groups`` are labels or memberships, as in :meth:`counterpoise.GroupDRONeuron.fit`.

    >>> group_risks([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], groups=["a", "a", "b"])
    {'a': 0.5, 'b': 0.0}
    """
    labels, means = _group_means(y_true, y_pred, groups, sample_weight)
    return dict(zip(label_list(labels), means.tolist(), strict=True))


def worst_group_risk(
    y_true: Array, y_pred: Array, *, groups: Any, sample_weight: Array | None = None
) -> float:
    """Compute the largest mean squared error of any group.

    To make a scorer: ``make_scorer(worst_group_risk, greater_is_better=False)
    .set_score_request(groups=True)``.

    >>> worst_group_risk([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], groups=["a", "a", "b"])
    0.5
    """
    return float(_group_means(y_true, y_pred, groups, sample_weight)[1].max())


def robust_risk(
    y_true: Array,
    y_pred: Array,
    *,
    groups: Any,
    nu: float,
    divergence: str | Divergence = "kl",
    sample_weight: Array | None = None,
) -> float:
    """Compute the regularised risk ``R`` of predictions, with a uniform prior over groups."""
    return risk(_group_means(y_true, y_pred, groups, sample_weight)[1], nu, divergence)


def group_errors(
    y_true: Any, y_pred: Any, *, groups: Any, sample_weight: Any = None
) -> dict[Any, float]:
    """Compute the share of misclassified rows of every group, as a mapping label -> error.

    >>> group_errors(["x", "y", "y"], ["x", "x", "y"], groups=["a", "a", "b"])
    {'a': 0.5, 'b': 0.0}
    """
    return _by_label(_means(wrong_classes(y_true, y_pred), groups, sample_weight))


def worst_group_error(y_true: Any, y_pred: Any, *, groups: Any, sample_weight: Any = None) -> float:
    """Compute the largest share of misclassified rows of any group.

    One minus the worst-group accuracy of the literature.

    >>> worst_group_error(["x", "y", "y"], ["x", "x", "y"], groups=["a", "a", "b"])
    0.5
    """
    return _worst(_means(wrong_classes(y_true, y_pred), groups, sample_weight))


def group_balanced_errors(
    y_true: Any, y_pred: Any, *, groups: Any, sample_weight: Any = None
) -> dict[Any, float]:
    """Compute the balanced error of every group, as a mapping label -> error.

    This is the mean, over the classes that the group has, of the error among its rows of the class.

    >>> group_balanced_errors([0, 0, 0, 1], [0, 0, 0, 0], groups=["a"] * 4)
    {'a': 0.5}
    """
    return _by_label(_balanced(y_true, y_pred, groups, sample_weight))


def worst_group_balanced_error(
    y_true: Any, y_pred: Any, *, groups: Any, sample_weight: Any = None
) -> float:
    """Compute the largest balanced error of any group; see :func:`group_balanced_errors`.

    >>> worst_group_balanced_error([0, 0, 0, 1, 1], [0, 0, 0, 0, 1], groups=["a"] * 4 + ["b"])
    0.5
    """
    return _worst(_balanced(y_true, y_pred, groups, sample_weight))


def group_log_losses(
    y_true: Any, y_proba: Any, *, groups: Any, classes: Any = None, sample_weight: Any = None
) -> dict[Any, float]:
    """Compute the mean log loss of every group, as a mapping label -> loss.

    Parameters
    ----------
    y_true : array of shape (n,), labels
    y_proba : array of shape (n, C), or (n,) for two classes
        Probabilities of the classes in the order of ``classes``; in one dimension, those of the
        second class. They are kept away from 0 and 1 by the rounding of a double, as in
        scikit-learn, so that a loss is at most 36.
    groups : array of shape (n,)
    classes : array of shape (C,), optional
        ``model.classes_``. By default the sorted labels of ``y_true``.
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> found = group_log_losses([0, 1, 1], [0.5, 0.5, 1.0], groups=["a", "a", "b"])
    >>> {label: round(loss, 4) for label, loss in found.items()}
    {'a': 0.6931, 'b': 0.0}
    """
    return _by_label(_means(log_losses(y_true, y_proba, classes), groups, sample_weight))


def worst_group_log_loss(
    y_true: Any, y_proba: Any, *, groups: Any, classes: Any = None, sample_weight: Any = None
) -> float:
    """Compute the largest mean log loss of any group; see :func:`group_log_losses`.

    To make a scorer: ``make_scorer(worst_group_log_loss, greater_is_better=False,
    response_method="predict_proba").set_score_request(groups=True)``.

    >>> round(worst_group_log_loss([0, 1, 1], [0.5, 0.5, 1.0], groups=["a", "a", "b"]), 4)
    0.6931
    """
    return _worst(_means(log_losses(y_true, y_proba, classes), groups, sample_weight))


def _group_means(
    y_true: Array, y_pred: Array, groups: Any, sample_weight: Array | None
) -> tuple[Array, Array]:
    return _means(squared_errors(y_true, y_pred), groups, sample_weight)


def _balanced(
    y_true: Any, y_pred: Any, groups: Any, sample_weight: Any
) -> tuple[Array, Array]:  # fmt: skip
    wrong = wrong_classes(y_true, y_pred)
    found, weights = grouped_rows(groups, sample_weight, len(wrong))
    labels, codes = found.labels, found.codes
    classes = encode_classes(given(to_host(y_true), "y_true"))[1]
    weights = balanced_weights(found.listed(classes), codes, found.weights(weights))
    totals = np.bincount(codes, weights, len(labels))
    return labels, np.bincount(codes, weights * found.listed(wrong), len(labels)) / totals


def _means(amounts: Array, groups: Any, sample_weight: Any) -> tuple[Array, Array]:
    """Return the group labels, and the weighted mean of the rows' amounts in each group."""
    found, weights = grouped_rows(groups, sample_weight, len(amounts))
    weights = np.ones(len(amounts)) if weights is None else weights
    return found.labels, found.sums(amounts, weights) / found.sums(weights)


def grouped_rows(groups: Any, sample_weight: Any, n: int) -> tuple[RowGroups, Array | None]:
    """Return the groups, which may overlap, and the weights of rows; every group has weight."""
    found = RowGroups.of(to_host(groups), n)
    weights = check_sample_weight(to_host(sample_weight), n)
    if weights is not None:
        totals = found.sums(weights)
        if (totals <= 0).any():
            empty = label_list(found.labels)[int(np.argmin(totals))]
            raise ValueError(f"sample_weight is zero on all rows of group {empty!r}; leave it out")
    return found, weights


def _by_label(found: tuple[Array, Array]) -> dict[Any, float]:
    return dict(zip(label_list(found[0]), found[1].tolist(), strict=True))


def _worst(found: tuple[Array, Array]) -> float:
    return float(found[1].max())


def balanced_weights(classes: Array, codes: Array, weights: Array | None) -> Array:
    """Return weights under which every class that a group has counts the same there.

    ``classes`` and ``codes`` number the class and the group of every row. A group keeps its total
    weight, and the weighted error of a group is its balanced error.
    """
    w = np.ones(len(codes)) if weights is None else weights
    K, C = (int(values.max(initial=-1)) + 1 for values in (codes, classes))
    factor_KC = balancing_factors(np.bincount(codes * C + classes, w, K * C).reshape(K, C))
    return np.asarray(w * factor_KC[codes, classes])


def balancing_factors(mass_KC: Array) -> Array:
    """Return what to multiply the weights of every group's rows by, so that classes count alike.

    ``mass_KC`` are the total weights of the classes in the groups.
    """
    present = mass_KC > 0
    share = mass_KC.sum(axis=1, keepdims=True) / np.maximum(present.sum(axis=1, keepdims=True), 1)
    return np.divide(share, mass_KC, out=np.zeros_like(mass_KC), where=present)


def wrong_classes(y_true: Any, y_pred: Any) -> Array:
    """Return 1.0 for every row whose predicted class is not its label, and 0.0 for the others."""
    y_true, y_pred = given(to_host(y_true), "y_true"), given(to_host(y_pred), "y_pred")
    check_consistent_length(y_true, y_pred)
    true, said = column_or_1d(y_true), column_or_1d(y_pred)
    kinds = [values.dtype.kind in "US" for values in (true, said)]
    if kinds[0] != kinds[1] and "O" not in (true.dtype.kind, said.dtype.kind):
        raise ValueError(
            f"y_true has labels of type {true.dtype} and y_pred of type {said.dtype}, so they "
            "never agree; predict labels of the same type"
        )
    return np.asarray(true != said, dtype=float)


def encode_classes(y: Any, classes: Any = None) -> tuple[Array, Array]:
    """Return the classes (sorted, unless given) and the number of every row's class."""
    if classes is None:
        found, codes = np.unique(column_or_1d(y), return_inverse=True)
        return found, codes.reshape(-1)
    classes = np.asarray(classes)
    number = {label: i for i, label in enumerate(label_list(classes))}
    rows = label_list(column_or_1d(y))
    strange = [label for label in rows if label not in number]
    if strange:
        raise ValueError(
            f"y has the label {strange[0]!r}, which is none of the {len(classes)} classes "
            f"{label_list(classes)[:5]!r}; leave out these rows, or fit a model that knows it"
        )
    return classes, np.fromiter((number[label] for label in rows), np.int64, len(rows))


def log_losses(y_true: Any, y_proba: Any, classes: Any = None) -> Array:
    """Compute minus the logarithm of the probability of every row's class."""
    y_true, y_proba = given(to_host(y_true), "y_true"), given(to_host(y_proba), "y_proba")
    check_consistent_length(y_true, y_proba)
    found, codes = encode_classes(y_true, classes)
    proba = class_probabilities(y_proba, len(found), "classes" if classes is None else "")
    return losses_of_classes(proba, codes)


def losses_of_classes(proba: Array, codes: Array) -> Array:
    """Compute log losses from checked probabilities (n, C) and the number of every row's class."""
    tiny = float(np.finfo(float).eps)
    return np.asarray(-np.log(np.clip(proba[np.arange(len(codes)), codes], tiny, 1.0 - tiny)))


def class_probabilities(y_proba: Any, n_classes: int, remedy: str = "") -> Array:
    """Return probabilities of shape (n, C) after checking them."""
    proba = np.asarray(y_proba, dtype=float)
    if proba.ndim == 2 and proba.shape[1] == 1:
        proba = proba[:, 0]
    if proba.ndim == 1:
        proba = np.column_stack([1.0 - proba, proba])
    if proba.ndim != 2 or proba.shape[1] != n_classes:
        hint = "; pass classes=model.classes_, in the order of the columns" if remedy else ""
        raise ValueError(
            f"y_proba must have one column for each of {n_classes} classes; got shape "
            f"{np.shape(y_proba)}{hint}"
        )
    bad = ~np.isfinite(proba).all(axis=1) | (proba < 0).any(axis=1) | (proba > 1).any(axis=1)
    bad |= np.abs(proba.sum(axis=1) - 1.0) > SUM_TOL
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"y_proba must hold probabilities that sum to one; row {where} is "
            f"{proba[where].tolist()}. Scores of decision_function are not probabilities"
        )
    return proba


def squared_errors(y_true: Any, y_pred: Any) -> Array:
    """Compute ``(y_true - y_pred)^2`` for every row."""
    y_true = given(to_host(y_true), "y_true")
    y_pred = given(to_host(y_pred), "y_pred")
    check_consistent_length(y_true, y_pred)
    y_true, y_pred = column_or_1d(y_true), column_or_1d(y_pred)
    return (np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float)) ** 2
