"""assess(): the record of any fit, from the rows it was fitted to."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from counterpoise.activations import get_activation
from counterpoise.assessment.class_fits import compare_classes_by_folds, compare_classes_on_rows
from counterpoise.assessment.classes import ClassComparison
from counterpoise.assessment.comparison import (
    compare_by_folds,
    compare_on_rows,
    group_beside,
    residuals_by_group,
    risks_with_given_labels,
)
from counterpoise.assessment.convergence import collecting_convergence
from counterpoise.assessment.diagnosis.classes import ClassDiagnosis, check_classes
from counterpoise.assessment.diagnosis.diagnose import Diagnosis, check_assumptions
from counterpoise.assessment.intervals import check_level
from counterpoise.assessment.record import (
    DataFacts,
    FitRecord,
    GroupBeside,
    Residuals,
    RiskComparison,
)
from counterpoise.common.arguments import check_whole
from counterpoise.common.progress import stage
from counterpoise.common.text import figure
from counterpoise.rows.backends import backend_of, open_engine, to_host
from counterpoise.rows.frames import given
from counterpoise.rows.groups import label_list
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sources import Chunks, Source

Array = np.ndarray

PACKAGES = ("counterpoise", "numpy", "scipy", "scikit-learn", "numba", "pyarrow")
FOLDS, LEVEL = 5, 0.95
# Options that do not change what is fitted.
UNRECORDED = ("verbose", "checkpoint", "warm_start")


def assess(
    model: Any,
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    folds: int | None = FOLDS,
    level: float | None = None,
    random_state: int = 0,
    diagnosis: bool = True,
    regions: bool = True,
    data: DataFacts | None = None,
    command: str = "",
    seconds: float | None = None,
) -> FitRecord:
    """Assess a fitted model on the rows it was fitted to, group by group.

    The model is compared with the plain average over rows (least squares for a linear model,
    logistic regression for a classifier) on rows held out: both are fitted again without each fold
    in turn. A cross-validated model brings the figures of its own folds; a stored classifier is
    fitted again with the options that it has chosen. Rows in chunks are not fitted
    again; both models are compared on the rows of the fit.

    Parameters
    ----------
    model : GroupDRONeuron, GroupDROClassifier, GroupDRORegressor, ...CV or baseline, fitted
        Or a pipeline that ends in one. Its earlier steps are used as they are.
    X, y, groups, sample_weight :
        The rows of the fit, as ``model.fit`` takes them: arrays, data frames, tensors or a
        :class:`Source`. For a pipeline with a :class:`counterpoise.tabular.TableEncoder` that was
        fitted to a table, the table or a data frame with all its columns is enough.
    folds : int or None, default=5
        Number of folds, stratified by group. None compares on the rows of the fit alone. A
        cross-validated model keeps its own folds.
    level : float, optional
        Confidence of the intervals; 0.95 by default. A cross-validated model has intervals of its
        own ``level`` and refuses another.
    random_state : int, default=0
        How rows are assigned to folds.
    diagnosis : bool, default=True
        Whether to check the assumptions of the theory (:func:`diagnose`) or, for a classifier,
        what can be done for every group (:func:`diagnose_classes`). Regressors with another loss
        than squared errors have no diagnosis.
    regions : bool, default=True
        Whether to prove how much better coefficients near a neuron can be
        (:meth:`GroupDRONeuron.certify`), unless the fit did so itself. Not for rows in chunks.
    data : DataFacts, optional
        Facts about the data, for the report. By default, those that the arguments show.
    command : str, optional
        The command that makes the fit again, for the report.
    seconds : float, optional
        Duration of the fit, for the report.

    Returns
    -------
    FitRecord
        Prints as a table of groups; ``record.report(path)`` writes a page, and
        ``record.save(folder)`` stores the model with its record.

    Examples
    --------
    >>> import numpy as np
    >>> from counterpoise import GroupDRONeuron, assess
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 3)), np.repeat(["a", "b", "c"], [400, 100, 100])
    >>> slope = {"a": 1.0, "b": 1.2, "c": 2.0}
    >>> y = X[:, 0] * [slope[g] for g in groups] + 0.1 * rng.normal(size=600)
    >>> model = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups)
    >>> print(assess(model, X, y, groups, diagnosis=False).answer)
    Worst group's error: 0.8268 -> 0.5229 (37% lower).
    """
    check_is_fitted(model)
    neuron, names = _neuron(model), _feature_names(model)
    if y is None and hasattr(model, "steps") and hasattr(model.steps[0][1], "labelled_rows"):
        X, y, groups, sample_weight, known = model.steps[0][1].labelled_rows(X)
        data = known if data is None else data
    elif hasattr(model, "steps") and len(model.steps) > 1:
        X = model[:-1].transform(X)
    return assess_encoded(
        neuron, X, y, groups, sample_weight, model=model, feature_names=names, folds=folds,
        level=level, random_state=random_state, diagnosis=diagnosis, regions=regions, data=data,
        command=command, seconds=seconds,
    )  # fmt: skip


def assess_encoded(
    neuron: Any,
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    model: Any,
    feature_names: Sequence[str] | None,
    folds: int | None = FOLDS,
    level: float | None = None,
    random_state: int = 0,
    diagnosis: bool = True,
    regions: bool = True,
    data: DataFacts | None = None,
    command: str = "",
    seconds: float | None = None,
) -> FitRecord:
    """`assess` for rows as the neuron sees them; ``model`` is it or the pipeline around it."""
    if level is not None:
        check_level(level)
    if folds is not None:
        check_whole("folds", folds, 2)
    if isinstance(X, Source):
        _check_source_alone(X, y=y, groups=groups, sample_weight=sample_weight)
    backend = backend_of(X)
    if not backend.in_place(X):
        X, y, groups, sample_weight = map(to_host, (X, y, groups, sample_weight))
    elif not isinstance(X, Source):
        raise TypeError(
            f"assess reads arrays, data frames and sources; got {type(X).__name__}. Compute a "
            "sample of the rows, or read them as counterpoise.Chunks"
        )
    settings = _Settings(folds, level, random_state, diagnosis)
    if isinstance(X, Source):
        found = _on_source(neuron, X, feature_names, settings)
    else:
        found = _in_memory(neuron, X, y, groups, sample_weight, feature_names, settings)
    proof = getattr(getattr(neuron, "certificate_", None), "proof", None)
    own = getattr(neuron, "certificate_", None) is None  # as for fits of single groups
    proves = regions and hasattr(neuron, "region_proof") and not (own or isinstance(X, Source))
    if proof is None and proves:
        proof = neuron.region_proof(X, y, groups, sample_weight)
    if data is None:
        data = _facts(X, y, groups, sample_weight, feature_names, found.rows)
    return FitRecord(
        data=replace(data, notes=[*data.notes, *found.notes]),
        risks=found.risks,
        plain_risks=found.plain.group_risks_,
        options={
            name: value
            for name, value in neuron.get_params(deep=False).items()
            if name not in UNRECORDED
        },
        command=command,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(),
        seconds=seconds,
        comparison=found.comparison,
        residuals=found.residuals,
        diagnosis=found.diagnosis,
        classes=found.classes,
        proof=proof,
        beside=found.beside,
        model=model,
    )


@dataclass(frozen=True)
class _Settings:
    folds: int | None
    level: float | None
    random_state: int
    diagnosis: bool


@dataclass(frozen=True)
class _Assessment:
    plain: Any
    rows: int
    risks: Array
    comparison: RiskComparison | None
    residuals: Residuals | None
    diagnosis: Diagnosis | ClassDiagnosis | None
    notes: list[str]
    classes: ClassComparison | None = None
    beside: GroupBeside | None = None


def _in_memory(
    neuron: Any,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    names: Sequence[str] | None,
    settings: _Settings,
) -> _Assessment:
    if y is None:
        raise ValueError("y must hold the labels of the rows; got None")
    X, y = given(X, "X"), given(y, "y")
    groups, sample_weight = given(groups, "groups"), given(sample_weight, "sample_weight")
    check_consistent_length(X, y, groups, sample_weight)
    y = column_or_1d(y)
    sample_weight = None if sample_weight is None else np.asarray(sample_weight)
    own = RowGroups.of(groups, len(y))
    groups = None if groups is None else own.given
    _check_groups(neuron, own.labels)
    plain, notes = _plain_fit(neuron, X, y, groups, sample_weight)
    notes = [*own.notes(), *notes]
    comparison = residuals = found = classes = None
    if is_classifier(neuron):
        if settings.folds is not None and int(own.sizes.max()) > 1:
            with collecting_convergence() as missed:
                comparison, classes = compare_classes_by_folds(
                    neuron, X, y, groups, sample_weight,
                    folds=settings.folds, level=settings.level or LEVEL,
                    random_state=settings.random_state,
                )  # fmt: skip
            if missed:
                notes.append(f"{len(missed)} fits to folds did not converge: {missed[0]}")
    elif settings.folds is not None:
        comparison, ignored = _own_comparison(neuron, settings)
        notes += ignored
        if comparison is None and int(own.sizes.max()) < 2:
            notes.append("no group has two rows, so no risk could be measured on held-out rows")
        elif comparison is None:
            with collecting_convergence() as missed:
                comparison = compare_by_folds(
                    neuron, X, y, groups, sample_weight,
                    folds=settings.folds, level=settings.level or LEVEL,
                    random_state=settings.random_state,
                )  # fmt: skip
            if missed:
                notes.append(f"{len(missed)} fits to folds did not converge: {missed[0]}")
        residuals = residuals_by_group(plain, neuron, X, y, groups)
    beside = None
    if settings.folds is not None:
        with collecting_convergence():
            beside = group_beside(
                neuron, X, y, groups, sample_weight,
                folds=settings.folds, random_state=settings.random_state,
            )  # fmt: skip
    risks = risks_with_given_labels(neuron, X, y, groups, sample_weight)
    brought = comparison is not None and neuron.held_out_comparison() is not None
    notes += _other_rows(neuron, risks, y, own=brought)
    if settings.diagnosis:
        found, missed = _diagnose(neuron, (X, y, groups, sample_weight), names)
        notes += missed
    return _Assessment(plain, len(y), risks, comparison, residuals, found, notes, classes, beside)


def _on_source(
    neuron: Any, source: Any, names: Sequence[str] | None, settings: _Settings
) -> _Assessment:
    plain, notes = _plain_fit(neuron, source)
    _check_groups(neuron, plain.groups_)
    residuals = found = classes = None
    level = settings.level or LEVEL
    if is_classifier(neuron):
        comparison, classes = compare_classes_on_rows(plain, neuron, source, source.n_rows, level)
    else:
        comparison = compare_on_rows(plain, neuron, source, source.n_rows, level)
    risks = comparison.ours.values
    sample = neuron.kept_sample()
    if sample is None:
        rows_of = source
        if is_classifier(neuron):
            rows_of = backend_of(source).number_classes(source, None)[0]
        loss = neuron.loss_ if hasattr(neuron, "loss_") else get_activation(neuron.activation)
        sample = open_engine(
            rows_of, None, None, None, loss, intercept=bool(neuron.fit_intercept), centred=False
        ).sample()
    notes = [*sample.notes, *notes, *_other_rows(neuron, risks, sample.y, own=False)]
    if settings.folds is not None and classes is None:
        chunk = Chunks([(sample.X, sample.y)])
        residuals = residuals_by_group(plain, neuron, chunk, sample.y, sample.labels[sample.codes])
    if settings.diagnosis:
        found, missed = _diagnose(neuron, (source, None, None, None), names)
        notes += missed
    rows, drawn = sample.n_rows, sample.n_drawn
    if drawn < rows and (settings.folds is not None or settings.diagnosis):
        notes.append(f"residuals and diagnosis are from {drawn:,} rows drawn at random")
    if settings.folds is None:
        return _Assessment(plain, rows, risks, None, residuals, found, notes)
    return _Assessment(plain, rows, risks, comparison, residuals, found, notes, classes)


def _plain_fit(
    neuron: Any, X: Any, y: Any = None, groups: Any = None, weights: Any = None
) -> tuple[Any, list[str]]:
    """The plain average fitted to the rows, and a note if it did not converge."""
    stage("the plain average")
    with collecting_convergence() as missed:
        plain = neuron.plain_twin().fit(X, y, groups=groups, sample_weight=weights)
    stage(None)
    return plain, [f"the plain average did not converge: {text}" for text in missed]


def _own_comparison(neuron: Any, settings: _Settings) -> tuple[RiskComparison | None, list[str]]:
    """The comparison that the model brings, and a note if it has other folds than asked for."""
    found = neuron.held_out_comparison()
    if found is None:
        return None, []
    if settings.level not in (None, found.ours.level):
        name = type(neuron).__name__
        raise ValueError(
            f"level must be {found.ours.level:g}, that of the intervals of this {name}; got "
            f"{settings.level!r}. Leave it out, or fit {name}(level={settings.level!r})"
        )
    if settings.folds in (FOLDS, getattr(neuron, "cv", None)):
        return found, []
    return found, [
        f"the held-out risks are those of the model's own cross-validation; folds={settings.folds} "
        "was not used"
    ]


def _other_rows(neuron: Any, risks: Array, y: Array, *, own: bool) -> list[str]:
    """A note if the risks on the rows are clearly not those of the fit.

    ``own`` says that the comparison is the one that the model brings.
    """
    if _clips_labels(neuron):  # its risks are of other labels
        return []
    known = np.asarray(neuron.group_risks_)
    gap = np.abs(risks - known)
    rounding = 1e-9
    if not is_classifier(neuron):
        # Where a fit is nearly perfect, rounding errors are relative to the labels.
        rounding = 1e-6 * np.var(y, dtype=float) + 1e-12 * np.mean(np.square(y, dtype=float))
    if (gap <= 1e-3 * known + rounding).all():
        return []
    k = int(np.argmax(gap))
    label = label_list(neuron.groups_)[k]
    what = "held-out risks are of the rows of the fit" if own else "comparison is of these rows"
    return [
        "these rows are not those of the fit, or sample_weight differs: the risk of group "
        f"{label!r} is {figure(float(risks[k]))} here and {figure(float(known[k]))} in the fit; "
        f"the {what}"
    ]


def _diagnose(
    neuron: Any, rows: tuple[Any, ...], names: Sequence[str] | None
) -> tuple[Diagnosis | ClassDiagnosis | None, list[str]]:
    """The diagnosis of the sample that the fit kept, else of the rows; notes on convergence."""
    stage("diagnosing")
    with collecting_convergence() as missed:
        found = neuron.diagnosis(names)
        if found is None:
            found = _diagnose_rows(neuron, rows, names)
    stage(None)
    return found, [f"a fit of the diagnosis did not converge: {text}" for text in missed]


def _diagnose_rows(
    neuron: Any, rows: tuple[Any, ...], names: Sequence[str] | None
) -> Diagnosis | ClassDiagnosis | None:
    """Diagnose the rows of a model that keeps no sample; None if that is not possible."""
    known = ("fit_intercept", "precondition")
    options = {name: getattr(neuron, name) for name in known if hasattr(neuron, name)}
    if is_classifier(neuron):
        if isinstance(rows[0], Source):
            return None
        return check_classes(*rows, **options, loss=neuron.loss_)
    if hasattr(neuron, "activation"):
        options["activation"] = neuron.activation
    elif neuron.loss_.is_quadratic:
        options["activation"] = "identity"
    else:
        return None
    return check_assumptions(*rows, **options, feature_names=names)


def _neuron(model: Any) -> Any:
    neuron = model.steps[-1][1] if hasattr(model, "steps") else model
    if not hasattr(neuron, "plain_twin"):
        raise TypeError(
            "model must be a fitted classifier or neuron of counterpoise, or a pipeline that ends "
            f"in one; got {type(model).__name__}. For predictions of other models, see "
            "risk_intervals and group_scores"
        )
    return neuron


def _feature_names(model: Any) -> list[str] | None:
    if hasattr(model, "steps") and len(model.steps) > 1:
        try:
            return list(map(str, model[:-1].get_feature_names_out()))
        except AttributeError:  # a step that does not know
            return None
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else list(map(str, names))


def _check_source_alone(source: Source, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} was given beside a {type(source).__name__}, whose chunks include it; "
                f"leave {name} out"
            )


def _check_groups(neuron: Any, labels: Array) -> None:
    known, given = label_list(neuron.groups_), label_list(labels)
    if known != given:
        strange = [label for label in given if label not in set(known)]
        absent = [label for label in known if label not in set(given)]
        raise ValueError(
            "groups must be those of the rows that the model was fitted to; "
            f"new: {strange[:5]!r}, absent: {absent[:5]!r}. For other rows, see risk_intervals"
        )


def _clips_labels(neuron: Any) -> bool:
    """Whether the fitted risks are those of clipped labels."""
    fitted = getattr(neuron, "best_estimator_", neuron)
    return getattr(fitted, "truncate", None) is not None


def _facts(
    X: Any, y: Any, groups: Any, weights: Any, names: Sequence[str] | None, rows: int
) -> DataFacts:
    """Collect the facts that the arguments show about the data."""
    source = isinstance(X, Source)
    shape = None if source else np.shape(X)
    width = len(names) if names is not None else (shape[1] if shape else 0)

    def name(values: Any) -> str | None:
        found = getattr(values, "name", None)
        return found if isinstance(found, str) else None

    group = name(groups)
    return DataFacts(
        rows=rows,
        encoded=width,
        target=name(y),
        group=[] if group is None else [group],
        weight=None if weights is None else name(weights) or "sample_weight",
        features=[] if names is None else list(names),
        engine="chunked" if source else "memory",
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
