"""Fits without each fold in turn, of any estimators of scikit-learn's kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from counterpoise.assessment.held_out import folds_of
from counterpoise.common.progress import stage
from counterpoise.rows.memberships import RowGroups

Array = np.ndarray


class FoldFit(NamedTuple):
    """A model fitted without a fold, with the features and the numbers of the fold's rows."""

    name: str
    model: Any
    X: Any
    rows: Array


def fits_by_fold(
    models: Mapping[str, Any],
    X: Any,
    y: Array,
    groups: Any = None,
    sample_weight: Array | None = None,
    *,
    folds: int = 5,
    random_state: int = 0,
    classes: Array | None = None,
) -> Iterator[FoldFit]:
    """Yield every model fitted without each fold, in folds stratified by group.

    With the numbers of the rows' ``classes``, folds are stratified by group and class. The only row
    of a group is never held out. A model gets ``groups`` and ``sample_weight`` if its ``fit`` takes
    them.
    """
    found = RowGroups.of(groups, len(y))
    rng = np.random.default_rng(random_state)
    folds = usable_folds(folds, found)
    fold = folds_of(found, folds, rng, classes)
    for f in range(folds):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        if not len(test):
            continue
        weights = None if sample_weight is None else sample_weight[train]
        X_train, X_test = _safe_indexing(X, train), _safe_indexing(X, test)
        own = found.take(train).given
        for i, (name, model) in enumerate(models.items()):
            done = (f + i / len(models)) / folds
            stage(f"held-out rows, fold {f + 1} of {folds}, {name}", done)
            fresh = clone(model)
            # A checkpoint and a certificate belong to the fit to all rows.
            own_options = fresh.get_params(deep=False)
            plain = {"checkpoint": None, "certificate": "run"}
            fresh.set_params(**{name: plain[name] for name in plain if name in own_options})
            said = fit_arguments(fresh, groups=own, sample_weight=weights)
            yield FoldFit(name, fresh.fit(X_train, y[train], **said), X_test, test)
    stage(None)


def fit_arguments(model: Any, **given: Any) -> dict[str, Any]:
    """Return the arguments that the ``fit`` of a model, or of a pipeline's last step, takes."""
    prefix, last = "", model
    if hasattr(model, "steps"):
        name, last = model.steps[-1]
        prefix = f"{name}__"
    return {
        f"{prefix}{name}": value
        for name, value in given.items()
        if value is not None and has_fit_parameter(last, name)
    }


def usable_folds(folds: int, groups: RowGroups) -> int:
    """Return the number of folds, limited by the rows of the largest group."""
    largest = int(groups.sizes.max())
    if largest < 2:
        raise ValueError(
            f"held-out risks need a group with at least two rows; got {groups.n_rows} row(s) in "
            "groups of one. Use groups with more rows"
        )
    return min(folds, largest)
