"""From a table to a fitted pipeline and the record of its fit: what ``counterpoise fit`` does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from counterpoise.assessment.assess import assess_encoded
from counterpoise.assessment.convergence import collecting_convergence
from counterpoise.assessment.record import FitRecord
from counterpoise.common.progress import stage
from counterpoise.estimators.base import Neuron
from counterpoise.tabular.encoded_rows import TableSource, fits_in_memory, read_rows
from counterpoise.tabular.encoder import TableEncoder, table_facts
from counterpoise.tabular.layout import TableLayout
from counterpoise.tabular.learning import LearnedLayout
from counterpoise.tabular.sampling import sample_rows
from counterpoise.tabular.table import Table, as_table

# Rows to cross-validate on if the table does not fit in memory.
CHOOSING_ROWS = 200_000


def fit_table(
    model: Neuron,
    table: Any,
    learned: LearnedLayout,
    *,
    command: str = "",
    bare: bool = False,
    chunked: bool | None = None,
    folds: int = 5,
    level: float | None = None,
) -> FitRecord:
    """Fit a model to the columns of a table, and assess it beside the plain average.

    Parameters
    ----------
    model : GroupDRONeuron, GroupDRONeuronCV or baseline
    table : Table, data frame or mapping of columns
        From :func:`open_table`, for a file.
    learned : LearnedLayout
        From :func:`learn_layout`.
    command : str
        The command that makes the fit again, for the record.
    bare : bool
        Fit alone, without held-out risks and diagnosis.
    chunked : bool, optional
        Whether to read the rows in chunks, pass by pass; by default if they do not fit in memory.
    folds : int
        Folds for the held-out risks of a model that is not cross-validated.
    level : float, optional
        Confidence of the intervals; see :func:`counterpoise.assess`.

    Returns
    -------
    FitRecord
        ``record.model`` is a :class:`sklearn.pipeline.Pipeline` of a :class:`TableEncoder` and the
        fitted neuron: it predicts data frames with the same columns.
    """
    table, layout = as_table(table), learned.layout
    _check_task(model, layout)
    if chunked is None:
        chunked = not fits_in_memory(table, layout)
    if chunked and getattr(model, "group_known", False):
        raise ValueError(
            "group_known=True needs rows in memory, and this table is read in chunks; read it at "
            "once, or leave out group_known=True and add the group to the features"
        )
    fitted = (_fit_chunks if chunked else _fit_rows)(model, table, learned)
    pipeline = Pipeline([("table", TableEncoder.from_layout(layout)), ("neuron", fitted.neuron)])
    notes = [*learned.remarks, *fitted.notes]
    facts = table_facts(table, layout, learned.used, chunked, notes)
    return assess_encoded(
        fitted.neuron, *fitted.rows, model=pipeline, feature_names=layout.names,
        folds=None if bare else folds, level=level, diagnosis=not bare,
        regions=getattr(fitted.neuron, "certificate", "region") != "run",
        data=facts, command=command, seconds=fitted.seconds,
    )  # fmt: skip


def _check_task(model: Any, layout: TableLayout) -> None:
    """Check that the model is for the task of the target."""
    if is_classifier(model) == bool(layout.classes):
        return
    name = type(model).__name__
    if layout.classes:
        raise ValueError(
            f"the target {layout.target!r} names classes, and {name} fits numbers; give a "
            "GroupDROClassifier, or learn the layout with task='regress'"
        )
    raise ValueError(
        f"the target {layout.target!r} is a number, and {name} fits classes; give a "
        "GroupDRONeuron, or learn the layout with task='classify'"
    )


@dataclass(frozen=True)
class _FittedNeuron:
    neuron: Any
    rows: tuple[Any, ...]
    seconds: float
    notes: list[str]


def _fit_rows(model: Any, table: Table, learned: LearnedLayout) -> _FittedNeuron:
    """Fit to all rows in memory."""
    stage("reading")
    rows = read_rows(table, learned.layout)
    data = (rows.X, rows.y, rows.groups, rows.sample_weight)
    stage("fitting")
    begun = time.perf_counter()
    with collecting_convergence():  # the status says so
        model.fit(rows.X, rows.y, groups=rows.groups, sample_weight=rows.sample_weight)
    return _FittedNeuron(model, data, time.perf_counter() - begun, [])


def _fit_chunks(model: Any, table: Table, learned: LearnedLayout) -> _FittedNeuron:
    """Fit pass by pass; a cross-validated model chooses on a sample of the rows."""
    layout = learned.layout
    source = TableSource(table, layout, n_rows=learned.used)
    notes = ["the rows are read in chunks, pass by pass"]
    begun = time.perf_counter()
    with collecting_convergence():  # the status says so
        if hasattr(model, "chosen_estimator"):
            stage("choosing on a sample of the rows")
            some = sample_rows(table, layout, CHOOSING_ROWS, 0)
            with collecting_convergence() as missed:
                model.fit(some.X, some.y, groups=some.groups, sample_weight=some.sample_weight)
            notes += [f"a fit to the sample did not converge: {text}" for text in missed]
            drawn = (
                "all rows" if len(some) == learned.used else f"{len(some):,} rows drawn at random"
            )
            notes.append(f"chosen on {drawn}: {model.verdict_}".rstrip("."))
            model = model.chosen_estimator()
        model.fit(source)
    return _FittedNeuron(model, (source,), time.perf_counter() - begun, notes)
