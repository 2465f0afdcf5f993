"""TableEncoder: the columns of a data frame as numbers, a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from counterpoise.assessment.record import DataFacts
from counterpoise.common.arguments import check_choice
from counterpoise.tabular.encoded_rows import TableSource, fits_in_memory, read_rows
from counterpoise.tabular.errors import check_names
from counterpoise.tabular.indicators import encode
from counterpoise.tabular.layout import UNSEEN, TableLayout
from counterpoise.tabular.learning import learn_layout
from counterpoise.tabular.row_batches import batch_groups, joined
from counterpoise.tabular.table import Table, as_table

Array = np.ndarray


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode the columns of a data frame as numbers.

    Numbers and booleans stay as they are. A category becomes one indicator per level, except for
    its most frequent level, the base. Columns that only look like numbers or dates are refused
    with a remedy instead of being encoded as thousands of categories; columns named in ``dates``
    become a year, and indicators of the month and the weekday.

    Parameters
    ----------
    features : list of str, optional
        Columns to encode; by default all.
    drop : list of str, default=()
        Columns to leave out.
    categorical : list of str, default=()
        Columns of numbers that name categories, and of text that names categories although it
        looks like numbers or dates.
    dates : list of str, default=()
        Columns of dates, times or ISO dates as text, whose year (a number), month and weekday
        (categories) are features.
    missing : {"refuse", "drop", "impute"}, default="refuse"
        Missing values are an error ("refuse"), or they are filled in ("impute"): numbers by the
        mean of their column, categories by the level ``"(missing)"``. With "drop", ``fit`` ignores
        rows with a missing value, and ``transform``, which must return every row, refuses them.
    max_levels : int, default=100
        Most levels of a category.
    unseen : {"refuse", "base"}, default="refuse"
        Categories that ``fit`` never saw are an error, or count as the base level.

    Attributes
    ----------
    layout_ : TableLayout
        The features with their levels and fill values. If the encoder was made by
        :func:`fit_table`, also the names of the target, group and weight columns.
    feature_names_in_ : array of shape (n_features_in_,)
        The columns that ``transform`` needs; others are ignored.
    n_features_in_ : int

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 2.0, 3.0], "town": ["A", "B", "B"]})
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'town=A']
    >>> encoder.transform(frame).tolist()
    [[1.0, 1.0], [2.0, 0.0], [3.0, 0.0]]
    """

    layout_: TableLayout

    def __init__(
        self,
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        dates: Sequence[str] = (),
        missing: str = "refuse",
        max_levels: int = 100,
        unseen: str = "refuse",
    ) -> None:
        self.features = features
        self.drop = drop
        self.categorical = categorical
        self.dates = dates
        self.missing = missing
        self.max_levels = max_levels
        self.unseen = unseen

    @classmethod
    def from_layout(cls, layout: TableLayout, **options: Any) -> TableEncoder:
        """The fitted encoder of a layout that was learned before."""
        given = {"features": list(layout.inputs), "missing": layout.missing}
        if layout.dates:
            given["dates"] = list(layout.dates)
        encoder = cls(**{**given, **options})
        encoder.layout_ = layout
        encoder.n_features_in_ = len(layout.inputs)
        encoder.feature_names_in_ = np.array(layout.inputs, dtype=object)
        return encoder

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the levels of categories and the values that replace missing ones.

        Parameters
        ----------
        X : data frame (pandas, polars, pyarrow, modin, ...), Table or mapping of columns
            A lazy frame is collected.
        y : ignored
        """
        check_choice("unseen", self.unseen, UNSEEN)
        learned = learn_layout(
            X,
            features=None if self.features is None else list(self.features),
            drop=list(self.drop),
            categorical=list(self.categorical),
            dates=list(self.dates),
            missing=self.missing,
            max_levels=self.max_levels,
        )
        self.layout_ = learned.layout
        self.n_features_in_ = len(self.layout_.inputs)
        self.feature_names_in_ = np.array(self.layout_.inputs, dtype=object)
        return self

    def transform(self, X: Any) -> Any:
        """Encode rows as float64, or as CSR if that is much smaller."""
        check_is_fitted(self)
        return encode(self.layout_, X, self.unseen)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the encoded features: a column, or ``column=level``.

        Dates have ``column.year``, ``column.month=2`` and the like.
        """
        check_is_fitted(self)
        return np.array(self.layout_.names, dtype=object)

    def group_labels(self, X: Any) -> Any:
        """Groups of the rows of a table, as the fit made them, for a model that uses the group.

        ``pipeline.predict(frame, groups=pipeline[0].group_labels(frame))``
        """
        check_is_fitted(self)
        table = as_table(X)
        if not self.layout_.group:
            raise ValueError(
                "this encoder was fitted without group columns; name them with group=..."
            )
        check_names(self.layout_.group, table.names, table.where, "group")
        names = list(self.layout_.grouping)
        return joined(tuple(batch_groups(batch, self.layout_) for batch in table.batches(names)))

    def labelled_rows(self, X: Any) -> tuple[Any, Any, Any, Any, DataFacts]:
        """Features, targets, groups, weights and facts of a table with all columns of the fit.

        The features are a :class:`TableSource` if they do not fit in memory; the others are then
        None, because the source carries them.
        """
        check_is_fitted(self)
        layout, table = self.layout_, as_table(X)
        if layout.target is None:
            raise ValueError(
                "y must hold the labels of the rows, because this encoder was fitted without a "
                "target column; got None"
            )
        if not fits_in_memory(table, layout):
            source = TableSource(table, layout)
            return source, None, None, None, table_facts(table, layout, source.n_rows or 0, True)
        rows = read_rows(table, layout, unseen=self.unseen)
        facts = table_facts(table, layout, len(rows), False)
        return rows.X, rows.y, rows.groups, rows.sample_weight, facts

    def __check_loaded__(self) -> None:
        """Raise ValueError unless a loaded encoder is complete and consistent."""
        layout = getattr(self, "layout_", None)
        if not isinstance(layout, TableLayout) or not layout.width:
            raise ValueError("layout_ is missing")
        if list(getattr(self, "feature_names_in_", [])) != list(layout.inputs):
            raise ValueError("feature_names_in_ does not match layout_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        return tags


def table_facts(
    table: Table, layout: TableLayout, rows: int, chunked: bool, notes: Sequence[str] = ()
) -> DataFacts:
    """What a record keeps of a table."""
    return DataFacts(
        path=None if table.path is None else str(table.path),
        format=table.format,
        bytes=table.nbytes,
        digest=table.digest,
        rows=rows,
        target=layout.target,
        group=list(layout.grouping),
        overlapping=layout.overlapping,
        weight=layout.weight,
        features=list(layout.inputs),
        encoded=layout.width,
        engine="chunked" if chunked else "memory",
        notes=list(notes),
    )
