"""diagnose() and diagnose_classes(): whether a worst-group fit pays, and why."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from counterpoise.assessment.diagnosis.classes import (
    ClassDiagnosis,
    check_classes,
    class_sample,
)
from counterpoise.assessment.diagnosis.diagnose import (
    Diagnosis,
    check_assumptions,
    sampled_rows,
)
from counterpoise.assessment.diagnosis.worth import Worth, answered, reasons
from counterpoise.common.task_words import words_of
from counterpoise.estimators.classifier_cv import GroupDROClassifierCV
from counterpoise.estimators.cross_validation import GroupDRONeuronCV
from counterpoise.estimators.designs import FEATURE
from counterpoise.losses import Loss
from counterpoise.rows.classes import decides_class
from counterpoise.rows.sample import RowSample

Array = np.ndarray

# Rows that the answer is judged on.
JUDGED = 20_000


def diagnose(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    activation: Any = "relu",
    fit_intercept: bool = True,
    precondition: str | None = "auto",
    epsilon: float | None = None,
    delta: float = 0.05,
    random_state: int = 0,
    feature_names: Sequence[str] | None = None,
    worth: bool = True,
) -> Diagnosis:
    """Say whether a worst-group fit pays on these rows, and whether the theory covers them.

    The answer (``found.worth``) comes from cross-validation on a sample, of at most 20,000 rows in
    memory: robust fits against the plain average on held-out rows of the worst group, with the
    group as a feature beside them. Groups that overlap get no answer. The assumptions of the theory
    are checked group by group on a sample, along some directions; they often fail where a
    worst-group fit pays.

    Parameters
    ----------
    X, y, groups, sample_weight, activation, fit_intercept, precondition :
        As in :class:`GroupDRONeuron`. The theory has no intercept; with one, the assumptions are
        checked for centred features.
    epsilon : float, optional
        Target accuracy for the required rows, in units of the loss. None takes a tenth of the
        variance of the labels.
    delta : float, default=0.05
        Failure probability of the theorem.
    random_state : int, default=0
        Seed for the directions and the sample. It does not affect the sample of overlapping
        groups and of rows in chunks, on a cluster or on a device, which their engine keeps.
    feature_names : sequence of str, optional
        Names of the columns of an array, for the report. Data frames and sources have their own.
    worth : bool, default=True
        Whether to answer if a worst-group fit pays, which takes a cross-validation.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(4000, 3)), np.repeat(["a", "b"], [3600, 400])
    >>> y = np.where(groups == "a", X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=4000)
    >>> found = diagnose(X, y, groups, activation="identity")
    >>> found.worth.answer, found.status("tails"), found["a"].rows
    ('yes', 'holds', 3600)
    """
    options = dict(activation=activation, fit_intercept=fit_intercept, precondition=precondition)
    found = check_assumptions(
        X, y, groups, sample_weight, **options, epsilon=epsilon, delta=delta,
        random_state=random_state, feature_names=feature_names,
    )  # fmt: skip
    if not worth or len(found.groups) < 2:
        return found
    sample = sampled_rows(X, y, groups, sample_weight, options, random_state, JUDGED)
    judged = _worth(GroupDRONeuronCV, sample, sample.y, options)
    return replace(found, worth=_explained(judged, found.groups, sample.X.shape[1] + 1))


def diagnose_classes(
    X: Any,
    y: Any,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    loss: Loss | None = None,
    alpha: float = 1e-8,
    fit_intercept: bool = True,
    precondition: str | None = "auto",
    random_state: int = 0,
    worth: bool = True,
) -> ClassDiagnosis:
    """Say whether a worst-group fit pays, and what a linear classifier can do for every group.

    The answer (``found.worth``) comes from cross-validation by log loss on at most 20,000 rows. The
    other figures come from a sample of the rows: a fit to all groups, a fit to each group alone,
    and rows that are alike.

    Parameters
    ----------
    X, y, groups, sample_weight, alpha, fit_intercept, precondition :
        As in :class:`GroupDROClassifier`, in memory.
    loss : Loss, optional
        The log loss (multinomial for more than two classes) if None.
    random_state : int, default=0
        Seed for the sample.
    worth : bool, default=True
        Whether to answer if a worst-group fit pays, which takes a cross-validation.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(2000, 2)), np.repeat(["linear", "circle"], 1000)
    >>> score = np.where(groups == "linear", 2 * X[:, 0], 3 * (X**2).sum(axis=1) - 4)
    >>> y = score + rng.logistic(size=2000) > 0
    >>> found = diagnose_classes(X, y, groups)
    >>> found["linear"].verdicts["linear"].status, found["circle"].verdicts["linear"].status
    ('holds', 'violated')
    """
    options: dict[str, Any] = dict(
        alpha=alpha, fit_intercept=fit_intercept, precondition=precondition
    )
    given = (X, y, groups, sample_weight)
    found = check_classes(*given, loss=loss, **options, random_state=random_state)
    if not worth or len(found.groups) < 2:
        return found
    sample, classes, used = class_sample(*given, loss=loss, random_state=random_state, rows=JUDGED)
    alphas = (options.pop("alpha"),)
    labels = classes[sample.y.astype(np.intp)]
    names = {"multinomial": "log", "log": "log", "squared_hinge": "squared_hinge"}
    named = names.get(used.name, used)
    options = {**options, "loss": named, "alphas": alphas}
    judged = _worth(GroupDROClassifierCV, sample, labels, options)
    return replace(found, worth=_explained(judged, found.groups, sample.X.shape[1] + 1))


def _worth(kind: Any, sample: RowSample, y: Array, options: dict[str, Any]) -> Worth | None:
    """Judge a sample; None if no group has rows to hold out, or if groups overlap."""
    drawn = np.bincount(sample.codes, minlength=len(sample.labels))
    if drawn.max() < 2 or sample.rows is not None:  # copies of rows, one for each of their groups
        return None
    # Large groups are capped in the sample; their rows stand for more.
    weights = (sample.counts / np.maximum(drawn, 1))[sample.codes]
    if sample.weights is not None:
        weights = weights * sample.weights
    rows = dict(groups=sample.codes, sample_weight=None if np.ptp(weights) == 0 else weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = kind(**options).fit(sample.X, y, **rows)
        beside = _with_group(kind, sample, y, options, rows)
    results, place = model.cv_results_, model.frontier_
    rooted = kind is GroupDRONeuronCV

    def shown(risk: float) -> float:
        return float(np.sqrt(max(risk, 0.0)) if rooted else risk)

    spoken = place.chosen
    figures = model.held_out_comparison()
    after, average = figures.ours.worst.value, figures.ours_average
    if not model.robust_:
        others = [i for i in range(len(place)) if results["family"][i] != "average"]
        spoken = min(others, key=lambda i: float(results["worst_group_risk"][i]))
        after = float(results["worst_group_risk"][spoken])
        average = float(results["average_risk"][spoken])
    before = figures.plain.worst.value
    sure = float(results["beats_average"][spoken])
    gain = 1.0 - shown(after) / shown(before) if before > 0 else 0.0
    return Worth(
        answer=answered(bool(model.robust_), gain, sure),
        before=shown(before),
        after=shown(after),
        average_before=shown(figures.plain_average),
        average_after=shown(average),
        sure=sure,
        measure="error" if rooted else place.measure,
        with_group=None if beside is None else (shown(beside[0]), shown(beside[1])),
        plain=words_of(model).plain,
    )


def _with_group(
    kind: Any, sample: RowSample, y: Array, options: dict[str, Any], rows: dict[str, Any]
) -> tuple[float, float] | None:
    """Return held-out risks, of the worst group and of all rows, with the group as a feature.

    None if the label is part of the group.
    """
    if kind is not GroupDRONeuronCV and decides_class(sample.codes, y):
        return None
    model = kind(**options, nus=[np.inf], reference=False, group_known=True)
    if "truncate" in model.get_params():
        model.set_params(truncate=None)
    results = model.fit(sample.X, y, **rows).cv_results_
    feature = results["family"].index(f"average, {FEATURE}")
    return float(results["worst_group_risk"][feature]), float(results["average_risk"][feature])


def _explained(found: Worth | None, groups: Sequence[Any], coefficients: int) -> Worth | None:
    return None if found is None else replace(found, reasons=reasons(groups, coefficients))
