"""Neuron: what every estimator of one neuron shares. Input, prediction, scores by group."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from counterpoise.activations import Activation, get_activation
from counterpoise.assessment.metrics import worst_group_risk
from counterpoise.rows.engines.dispatch import kind_of
from counterpoise.solver.solution import Outcome, Solution

Array = np.ndarray

FLOATS = (np.float64, np.float32)


class Neuron(RegressorMixin, BaseEstimator):
    """A fitted neuron ``sigma(w.x + b)`` over rows of any kind; how it is fitted is the
    subclass's part."""

    activation: str | Activation
    activation_: Activation
    coef_: Array
    intercept_: float
    group_weights_: Array
    columns_: Any

    def _check_flags(self, *names: str) -> None:
        for name in names:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}")

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Rows in memory as scikit-learn wants them checked; rows elsewhere as they are."""
        if kind_of(X) != "memory":
            return X, y, sample_weight
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, y_numeric=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return X, y, sample_weight

    def _note_features(self, X: Any, others: tuple[Any, ...], count: int) -> None:
        """What scikit-learn's validation notes of rows in memory, for rows elsewhere."""
        if kind_of(X) == "memory":
            return
        self.n_features_in_ = count
        names = getattr(X, "feature_names", None)
        if kind_of(X) == "dask" and hasattr(X, "columns"):  # some may be no features
            own = [name for name in others if isinstance(name, str)]
            names = [name for name in X.columns if name not in own]
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _keep(self, X: Any, others: tuple[Any, ...], found: Outcome) -> None:
        """Set the attributes of a fit; a warning if it did not converge."""
        self.__dict__.pop("columns_", None)  # of a table that an earlier fit was made from
        self._note_features(X, others, len(found.coef))
        self.activation_ = get_activation(self.activation)
        self.coef_ = found.coef
        self.intercept_ = found.intercept
        self.groups_ = found.labels
        self.group_weights_ = found.weights
        self.group_risks_ = found.losses
        self.risk_ = found.risk
        self.n_iter_ = found.n_iter
        self.n_passes_ = found.n_passes
        self.status_ = found.status
        self.history_ = dict(found.history)
        if isinstance(found, Solution):
            self.nu_ = found.nu
            self.certificate_ = found.certificate
        if not found.converged:
            warnings.warn(found.status, ConvergenceWarning, stacklevel=3)

    def predict(self, X: Any) -> Any:
        """``sigma(X @ coef_ + intercept_)``.

        An array; for a Dask collection a lazy Dask array, for a tensor a tensor on its device. A
        model that was fitted to a table (``counterpoise fit``) takes frames with its columns as
        well, and encodes them as it did then.
        """
        check_is_fitted(self)
        if hasattr(self, "columns_") and kind_of(X) == "memory":
            return self._scores(self._encoded(X))
        kind = kind_of(X)
        if kind == "source":
            return np.concatenate([self._scores(self._wide_enough(chunk[0])) for chunk in X])
        if kind == "dask":
            from counterpoise.rows.engines.dask import predict as blockwise

            names = getattr(self, "feature_names_in_", None)
            own = names is not None and hasattr(X, "columns")  # picked by name
            return blockwise(X if own else self._wide_enough(X), self._scores, names)
        if kind == "torch":
            from counterpoise.rows.engines.torch import predict as on_device

            return on_device(X, self.coef_, self.intercept_, self.activation_)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        return self._scores(X)

    def _encoded(self, X: Any) -> Any:
        """Rows of a table as numbers; numbers as they are."""
        if isinstance(X, Mapping) or hasattr(X, "columns") or hasattr(X, "schema"):
            return self.columns_.encode(X)
        return self._wide_enough(check_array(X, accept_sparse="csr", dtype=FLOATS))

    def _wide_enough(self, X: Any) -> Any:
        """``X``, if it has as many features as the fit had."""
        shape = np.shape(X)
        unknown = len(shape) == 2 and shape[1] != shape[1]  # NaN: Dask will know when it computes
        if not unknown and (len(shape) != 2 or shape[1] != self.n_features_in_):
            has = f"{shape[1]} features" if len(shape) == 2 else f"{len(shape)} dimension(s)"
            raise ValueError(
                f"X has {has}, but the fit was to rows of {self.n_features_in_} features; give the "
                "same columns in the same order"
            )
        return X

    def _scores(self, X: Any) -> Array:
        return self.activation_.value(X @ self.coef_ + self.intercept_)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Store the fitted model in a folder; :func:`counterpoise.load` brings it back.

        JSON and .npz, without pickle, versioned and with checksums.
        """
        from counterpoise.storage.models import save

        return save(self, folder)

    def worst_group_risk(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> float:
        """Mean squared error of the worst group among the given rows."""
        return worst_group_risk(y, self.predict(X), groups=groups, sample_weight=sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Most activations bound their output from below: labels of both signs fit poorly.
        tags.regressor_tags.poor_score = self.activation != "identity"
        return tags
