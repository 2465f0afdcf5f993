"""The record of a fit: on what it was made, how, and what it is worth; kept beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.assessment.diagnosis.diagnose import Diagnosis
from counterpoise.assessment.intervals import RiskIntervals

Array = np.ndarray

# Levels of the quantiles that are kept of every group's residuals.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The rows of a fit.

    Attributes
    ----------
    path : str, as given
    format : str, "csv", "parquet", "arrow" or "npz"
    bytes : int, of the file or files
    digest : str, which tells the files from others
    rows : int, that were used
    target, group, weight : names of columns; ``group`` lists one or several
    features : list of str, columns that were used
    encoded : int, features after categories became indicators
    engine : str, "memory" or "chunked"
    notes : list of str, what was done to the rows
    """

    path: str
    format: str
    bytes: int
    digest: str
    rows: int
    target: str
    group: list[str]
    weight: str | None
    features: list[str]
    encoded: int
    engine: str
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Risks of groups, least squares ("plain") against the fit ("ours"), on the same rows.

    Attributes
    ----------
    how : str, which rows, in words
    held_out : bool, whether the fits had not seen them
    plain, ours : RiskIntervals
    plain_average, ours_average : float, mean risk over all rows
    """

    how: str
    held_out: bool
    plain: RiskIntervals
    ours: RiskIntervals
    plain_average: float
    ours_average: float


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """Quantiles of ``label - prediction`` by group, of the fits to all rows.

    Attributes
    ----------
    labels : array of shape (K,)
    levels : tuple of float
    plain, ours : arrays of shape (K, levels)
    """

    labels: Array
    levels: tuple[float, ...]
    plain: Array
    ours: Array


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """Everything a report tells of a fit beside the model itself.

    Attributes
    ----------
    command : str, that makes the fit again
    made : str, date and time (UTC, ISO 8601)
    versions : mapping package -> version
    seconds : float, that the fit took
    options : mapping, of the estimator
    data : DataFacts
    risks, plain_risks : arrays of shape (K,)
        Of the fit and of the plain average, on the rows of the fit, with labels as they are.
    judged : Judged or None
    residuals : Residuals or None
    diagnosis : Diagnosis or None
    """

    command: str
    made: str
    versions: Mapping[str, str]
    seconds: float
    options: Mapping[str, Any]
    data: DataFacts
    risks: Array
    plain_risks: Array
    judged: Judged | None = None
    residuals: Residuals | None = None
    diagnosis: Diagnosis | None = None
