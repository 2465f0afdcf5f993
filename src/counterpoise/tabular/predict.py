"""Predict the rows of a table batch by batch, and write predictions to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from counterpoise.assessment.row_losses import group_argument
from counterpoise.common.progress import stage
from counterpoise.common.text import one_line
from counterpoise.storage.files import replacing, unwritten
from counterpoise.tabular.errors import DataError, check_names
from counterpoise.tabular.indicators import encode, missing_masks
from counterpoise.tabular.requests import check_written
from counterpoise.tabular.row_batches import batch_groups
from counterpoise.tabular.table import as_table

Array = np.ndarray


def predictions(
    model: Any,
    table: Any,
    *,
    extra: Sequence[str] = (),
    unseen: str = "refuse",
    name: str = "prediction",
    proba: bool = False,
) -> Iterator[Any]:
    """Predict the rows of a table, batch by batch.

    Parameters
    ----------
    model : Pipeline of a TableEncoder and a neuron or classifier
    table : Table, data frame or mapping of columns
    extra : list of str
        Columns of the table to return, too.
    unseen : {"refuse", "base"}
        Categories that the fit never saw are an error, or count as the base level.
    name : str
        The name of the column of predictions.
    proba : bool
        Whether to add the probability of every class, in columns such as ``P(yes)``.

    Yields
    ------
    pyarrow.RecordBatch
        The columns ``extra`` and a prediction for every row (a number or a class), null if a
        feature is missing and the fit left such rows out.
    """
    layout, fitted = model.steps[0][1].layout_, model.steps[-1][1]
    table = as_table(table)
    extra = list(dict.fromkeys(extra))
    check_names(layout.inputs, table.names, table.where, "feature")
    check_names(extra, table.names, table.where)
    grouped = layout.group if getattr(fitted, "uses_group_", "") else ()
    check_names(grouped, table.names, table.where, "group")
    names = [name, *(probability_names(fitted) if proba else ())]
    clash = next((one for one in names if one in extra), None)
    if clash is not None:
        raise DataError(
            f"the data already has a column {clash!r}; leave it out of extra={extra!r}",
            argument="extra",
        )
    done = 0
    for batch in table.batches(list(dict.fromkeys([*layout.inputs, *grouped, *extra]))):
        gone = missing_masks(batch, layout.inputs) if layout.missing == "drop" else {}
        known = np.ones(batch.num_rows, dtype=bool)
        if gone:
            known = ~np.logical_or.reduce(list(gone.values()))
        X, groups = np.empty((0, layout.width)), None
        if known.any():
            part = batch.filter(pa.array(known))
            X = encode(layout, part.select(list(layout.inputs)), unseen)
            if grouped:
                groups = known_groups(batch_groups(part, layout), fitted, unseen)
        columns = [_column(values, known) for values in _answers(fitted, X, groups, proba)]
        arrays = [batch.column(column_name) for column_name in extra]
        yield pa.RecordBatch.from_arrays([*arrays, *columns], names=[*extra, *names])
        done += batch.num_rows
        stage(f"predicting, {done:,} rows", done / table.n_rows)
    stage(None)


def probability_names(fitted: Any) -> list[str]:
    """The names of the columns of probabilities.

    An error if the model has none.
    """
    if not hasattr(fitted, "predict_proba"):
        raise ValueError(
            f"{type(fitted).__name__} predicts no probabilities; leave out proba=True, or fit "
            "classes with loss='log'"
        )
    return [f"P({label})" for label in fitted.classes_.tolist()]


def known_groups(groups: Array, fitted: Any, unseen: str) -> Array:
    """The groups of rows to predict; None, if ``unseen`` allows it, for those the fit never saw."""
    known = set(fitted.groups_.tolist())
    labels = groups.tolist()
    strange = next((label for label in labels if label not in known), None)
    if strange is not None and unseen == "refuse":
        raise DataError(
            f"the group {strange!r} was not among the rows of the fit, which uses the group; "
            "leave such rows out, or use unseen='base', which gives them mean coefficients",
            argument="unseen",
        )
    return np.array([label if label in known else None for label in labels], dtype=object)


def _answers(fitted: Any, X: Any, groups: Any, proba: bool) -> list[Array]:
    """Columns of answers for encoded rows; there may be none."""
    if not X.shape[0]:
        classes = getattr(fitted, "classes_", np.empty(0))
        return [classes[:0], *(np.empty(0) for _ in classes if proba)]
    said = group_argument(fitted, groups)
    return [fitted.predict(X, **said), *(fitted.predict_proba(X, **said).T if proba else ())]


def _column(values: Array, known: Array) -> Any:
    """Answers for the known rows, and null for the others."""
    if known.all():
        return pa.array(values)
    at = np.cumsum(known) - 1
    return pa.array(values).take(pa.array(at, mask=~known))


@contextmanager
def file_writer(path: Path) -> Iterator[Callable[[Any], None]]:
    """Give a function that writes batches to a file, which appears when all are written."""
    check_written(path)
    writers: list[Any] = []
    with replacing(path) as file:

        def write(batch: Any) -> None:
            with writing(path):
                if not writers:
                    writers.append(_opened(path.suffix.lower(), file, batch.schema))
                writers[0].write_batch(batch)

        yield write
        if writers:
            writers[0].close()


@contextmanager
def writing(where: Path | str) -> Iterator[None]:
    """Turn errors of the disk and of the format into ones that name the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except pa.ArrowException as error:
        name = repr(str(where)) if isinstance(where, Path) else where
        raise DataError(
            f"{name} cannot be written ({one_line(error)}); leave such columns out, or choose "
            "another format"
        ) from None
    except OSError as error:
        if isinstance(where, Path):
            raise unwritten(where, error) from None
        raise OSError(
            f"{where} cannot be written ({error.strerror or one_line(error)}); free some space, or "
            "choose another place"
        ) from None


def _opened(suffix: str, file: Any, schema: Any) -> Any:
    if suffix == ".csv":
        import pyarrow.csv as csv

        return csv.CSVWriter(file, schema)
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema)
    return pa.ipc.new_file(file, schema)
