"""From a table to a fitted model and the record of its fit: what ``counterpoise fit`` does."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from counterpoise.assessment import comparison as judging
from counterpoise.assessment.record import DataFacts, FitRecord
from counterpoise.common.progress import stage
from counterpoise.estimators.base import Neuron
from counterpoise.estimators.cross_validation import GroupDRONeuronCV
from counterpoise.estimators.neuron import GroupDRONeuron
from counterpoise.tabular.arrays import RowSource, fits_in_memory, read_rows
from counterpoise.tabular.learning import Learned
from counterpoise.tabular.sampling import sample_rows
from counterpoise.tabular.table import Table

PACKAGES = ("counterpoise", "numpy", "scipy", "scikit-learn", "numba", "pyarrow")
# Rows to choose on where all do not fit in memory.
CHOOSING_ROWS = 200_000


@dataclass(frozen=True)
class Fitted:
    """A model that was fitted to a table.

    Attributes
    ----------
    model : GroupDRONeuron or GroupDRONeuronCV, with ``columns_``
    plain : GroupDRONeuron, the plain average over rows
    record : FitRecord
    converged : bool
    """

    model: Neuron
    plain: GroupDRONeuron
    record: FitRecord
    converged: bool


def fit_table(
    model: GroupDRONeuron | GroupDRONeuronCV,
    table: Table,
    learned: Learned,
    *,
    command: str = "",
    bare: bool = False,
    chunked: bool | None = None,
    folds: int = 5,
    level: float = 0.95,
) -> Fitted:
    """Fit a model to the columns of a table, and judge it beside the plain average.

    Parameters
    ----------
    model : GroupDRONeuron or GroupDRONeuronCV
    table, learned :
        From :func:`open_table` and :func:`learn_columns`.
    command : str
        For the record: what makes the fit again.
    bare : bool
        The fit alone: no held-out risks, no diagnosis.
    chunked : bool, optional
        Whether rows are read in chunks, pass by pass; by default if they do not fit in memory.
    folds : int
        For held-out risks of a fit that was not cross-validated.
    level : float
        Confidence of intervals.
    """
    columns = learned.columns
    if chunked is None:
        chunked = not fits_in_memory(table, columns)
    begun = time.perf_counter()
    work = _from_source if chunked else _in_memory
    made = work(model, table, learned, bare, folds, level)
    facts = DataFacts(
        path=str(table.path),
        format=table.format,
        bytes=table.nbytes,
        digest=table.digest,
        rows=made.rows,
        target=columns.target,
        group=list(columns.group),
        weight=columns.weight,
        features=list(columns.inputs),
        encoded=columns.width,
        engine="chunked" if chunked else "memory",
        notes=[*_handled(learned), *learned.notes, *made.notes],
    )
    record = FitRecord(
        command=command,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(),
        seconds=time.perf_counter() - begun,
        options={
            name: value
            for name, value in made.fitted.get_params(deep=False).items()
            if name not in ("verbose", "checkpoint", "warm_start")
        },
        data=facts,
        risks=made.risks,
        plain_risks=made.plain.group_risks_,
        judged=made.judged,
        residuals=made.residuals,
        diagnosis=None if bare else _diagnosed(made.fitted),
    )
    return Fitted(made.fitted, made.plain, record, made.converged)


def _handled(learned: Learned) -> list[str]:
    """What became of missing values."""
    notes = []
    if learned.dropped:
        notes.append(f"{learned.dropped:,} of {learned.rows:,} rows miss a value and were left out")
    for name, count in learned.filled.items():
        notes.append(f"{count:,} missing value(s) of {name!r} were filled in")
    return notes


@dataclass(frozen=True)
class _Made:
    fitted: Any
    plain: GroupDRONeuron
    rows: int
    converged: bool
    notes: list[str]
    risks: Any
    judged: Any = None
    residuals: Any = None


def _in_memory(
    model: Any, table: Table, learned: Learned, bare: bool, folds: int, level: float
) -> _Made:
    stage("reading")
    rows = read_rows(table, learned.columns)
    assert rows.y is not None
    stage("fitting")
    with _convergence() as missed:
        model.fit(rows.X, rows.y, groups=rows.groups, sample_weight=rows.sample_weight)
    stage("the plain average")
    plain = judging.plain_twin(model)
    with _convergence():
        plain.fit(rows.X, rows.y, groups=rows.groups, sample_weight=rows.sample_weight)
    for fitted in (model, plain, getattr(model, "best_estimator_", None)):
        if fitted is not None:  # as scikit-learn keeps the names of a frame's columns
            fitted.feature_names_in_ = np.array(rows.feature_names, dtype=object)
            fitted.columns_ = learned.columns
    notes: list[str] = []
    judged = residuals = None
    if not bare:
        if isinstance(model, GroupDRONeuronCV):
            judged = judging.judge_by_choice(model)
        else:
            if max(learned.groups.values(), default=len(rows)) < 2:
                notes.append("no group has two rows, so no risk could be measured on rows held out")
            else:
                with _convergence():
                    judged = judging.judge_by_folds(
                        model, rows.X, rows.y, rows.groups, rows.sample_weight,
                        folds=folds, level=level,
                    )  # fmt: skip
        residuals = judging.residuals_by_group(plain, model, rows.X, rows.y, rows.groups)
    risks = model.group_risks_
    if _clips(model):
        data = (rows.X, rows.y, rows.groups, rows.sample_weight)
        risks = judging.risks_as_they_are(model, *data)
    return _Made(model, plain, len(rows), not missed, notes, risks, judged, residuals)


def _from_source(
    model: Any, table: Table, learned: Learned, bare: bool, folds: int, level: float
) -> _Made:
    columns = learned.columns
    source = RowSource(table, columns, n_rows=learned.used)
    notes = ["the rows are read in chunks, pass by pass"]
    if isinstance(model, GroupDRONeuronCV):
        stage("choosing on a sample of the rows")
        some = sample_rows(table, columns, CHOOSING_ROWS, 0)
        with _convergence():
            model.fit(some.X, some.y, groups=some.groups, sample_weight=some.sample_weight)
        drawn = "all rows" if len(some) == learned.used else f"{len(some):,} rows drawn at random"
        notes.append(f"chosen on {drawn}: {model.verdict_}".rstrip("."))
        model = GroupDRONeuron(**{**model._options(), **model.best_params_})
    with _convergence() as missed:
        model.fit(source)
    plain = judging.plain_twin(model)
    stage("the plain average")
    with _convergence():
        plain.fit(source)
    for fitted in (model, plain):
        fitted.columns_ = columns
    judged = residuals = None
    rows, risks = learned.used, model.group_risks_
    if not bare or _clips(model):
        judged = judging.judge_by_rows(plain, model, source, rows, level)
        risks = judged.ours.values
    if not bare:
        sample = model._found.sample
        residuals = judging.residuals_by_group(
            plain, model, sample.X, sample.y, sample.labels[sample.codes]
        )
        notes.append(f"residuals and diagnosis are of {len(sample.y):,} rows drawn at random")
    return _Made(model, plain, rows, not missed, notes, risks, None if bare else judged, residuals)


def _clips(model: Any) -> bool:
    """Whether the risks of a fit are of clipped labels."""
    fitted = getattr(model, "best_estimator_", model)
    return fitted.truncate is not None


def _diagnosed(model: Any) -> Any:
    stage("diagnosing")
    with _convergence():
        found = model.diagnose_
    stage(None)
    return found


@contextmanager
def _convergence() -> Iterator[list[str]]:
    """A list of what did not converge, in place of warnings; other warnings are shown."""
    missed: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield missed
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            missed.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
