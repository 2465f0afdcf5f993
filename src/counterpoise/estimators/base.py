"""The base of all estimators, and of neurons: input checks, prediction and scores by group."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from counterpoise.activations import Activation, get_activation
from counterpoise.assessment.metrics import worst_group_risk
from counterpoise.rows.backends import backend_of
from counterpoise.rows.frames import given
from counterpoise.solver.solution import Outcome, Solution

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.classes import ClassDiagnosis
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis
    from counterpoise.assessment.record import RiskComparison
    from counterpoise.rows.sample import RowSample
    from counterpoise.solver.certificate import Certificate
    from counterpoise.solver.convex_certificate import ConvexCertificate

Array = np.ndarray

FLOATS = (np.float64, np.float32)


class GroupEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear score, and what is made of it, for rows of any kind; subclasses fit it."""

    coef_: Array
    intercept_: Any
    groups_: Array
    group_weights_: Array
    group_risks_: Array
    n_features_in_: int
    risk_: float
    n_iter_: int
    n_passes_: int
    status_: str
    converged_: bool
    history_: dict[str, Array]
    nu_: float
    certificate_: Certificate | ConvexCertificate

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; see the subclass."""
        raise NotImplementedError(type(self).__name__)

    def scores(self, X: Any) -> Array:
        """Return the linear scores of rows in memory without checking them."""
        return np.asarray(X @ self.coef_.T) + self.intercept_

    def outputs(self, X: Any, kind: str = "predict") -> Array:
        """Predict rows in memory without checking them."""
        return self.outputs_of(self.scores(X), kind)

    def outputs_of(self, scores: Array, kind: str = "predict") -> Array:
        """Turn linear scores into outputs."""
        raise NotImplementedError(type(self).__name__)

    def outputs_of_tensor(self, scores: Any, kind: str) -> Any:
        """Turn a tensor of linear scores into outputs."""
        raise NotImplementedError(type(self).__name__)

    def empty_output(self, kind: str) -> Array:
        """Return the outputs of no rows."""
        return np.empty(0)

    def _output(self, X: Any, kind: str) -> Any:
        """Check rows and predict them where they are."""
        check_is_fitted(self)
        backend = backend_of(X)
        if not backend.is_memory:
            return backend.predict(X, self, kind)
        X = validate_data(self, given(X, "X"), accept_sparse="csr", dtype=FLOATS, reset=False)
        return self.outputs(X, kind)

    def _check_flags(self, *names: str) -> None:
        for name in names:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}")

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Check rows in memory as scikit-learn does; return other rows unchanged."""
        if not backend_of(X).is_memory:
            return X, y, sample_weight
        X, y = given(X, "X"), given(y, "y")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, y_numeric=True)
        if sample_weight is not None:
            sample_weight = given(sample_weight, "sample_weight")
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return X, y, sample_weight

    def _note_features(self, X: Any, others: tuple[Any, ...], count: int) -> None:
        """Set ``n_features_in_`` and ``feature_names_in_`` for rows that are not in memory."""
        backend = backend_of(X)
        if backend.is_memory:
            return
        self.n_features_in_ = count
        names = backend.feature_names(X, others)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _keep(self, X: Any, others: tuple[Any, ...], found: Outcome) -> None:
        """Set the fitted attributes; warn if the fit did not converge."""
        self._note_features(X, others, found.coef.shape[-1])
        self.coef_ = found.coef
        self.intercept_ = found.intercept
        self.groups_ = found.labels
        self.group_weights_ = found.weights
        self.group_risks_ = found.losses
        self.risk_ = found.risk
        self.n_iter_ = found.n_iter
        self.n_passes_ = found.n_passes
        self.status_ = found.status
        self.converged_ = bool(found.converged)
        self.history_ = dict(found.history)
        if isinstance(found, Solution):
            self.nu_ = found.nu
            self.certificate_ = found.certificate
        if not found.converged:
            warnings.warn(found.status, ConvergenceWarning, stacklevel=3)

    def check_width(self, X: Any) -> Any:
        """Return ``X`` after checking its number of features."""
        shape = np.shape(X)
        unknown = len(shape) == 2 and shape[1] != shape[1]  # NaN: Dask will know when it computes
        if not unknown and (len(shape) != 2 or shape[1] != self.n_features_in_):
            has = f"{shape[1]} features" if len(shape) == 2 else f"{len(shape)} dimension(s)"
            raise ValueError(
                f"X has {has}, but the fit was to rows of {self.n_features_in_} features; pass the "
                "same columns in the same order"
            )
        return X

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Store the fitted model in a folder, for :func:`counterpoise.load` to read.

        The files are JSON and .npz, without pickle, with a version and checksums.
        """
        from counterpoise.storage.models import save

        return save(self, folder)

    def plain_twin(self) -> GroupEstimator:
        """Return the same model, unfitted, for the plain average over rows."""
        raise NotImplementedError(type(self).__name__)

    def held_out_comparison(self) -> RiskComparison | None:
        """Compare risks on rows that the fit itself held out; None if it held out none."""
        return None

    def kept_sample(self) -> RowSample | None:
        """Return the sample of rows that the fit keeps; None if it keeps none."""
        return None

    def diagnosis(
        self, feature_names: Sequence[str] | None = None
    ) -> Diagnosis | ClassDiagnosis | None:
        """Diagnose the sample that the fit keeps; None if it keeps none."""
        return None

    def __check_loaded__(self) -> None:
        """Raise ValueError unless a loaded model is complete and consistent."""
        for name in ("coef_", "intercept_", "groups_", "n_features_in_", "status_"):
            if not hasattr(self, name):
                raise ValueError(f"{name} is missing")
        shape = self._coef_shape()
        coef: Any = self.coef_
        if not isinstance(coef, Array) or coef.dtype.kind != "f" or coef.shape != shape:
            raise ValueError(f"coef_ does not hold {' x '.join(map(str, shape))} numbers")
        if np.shape(self.intercept_) != shape[:-1] or np.asarray(self.intercept_).dtype.kind != "f":
            raise ValueError("intercept_ is not a number" if len(shape) == 1 else
                             f"intercept_ does not hold {shape[0]} numbers")  # fmt: skip
        if not np.isfinite(coef).all() or not np.isfinite(self.intercept_).all():
            raise ValueError("coef_ or intercept_ is not finite")
        if not isinstance(self.status_, str):
            raise ValueError("status_ has the wrong type")
        shapes = {np.shape(v) for v in (self.groups_, self.group_weights_, self.group_risks_)}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise ValueError("groups_, group_weights_ and group_risks_ differ in length")
        if np.shape(getattr(self, "feature_names_in_", coef)) not in (shape[-1:], shape):
            raise ValueError("feature_names_in_ has the wrong length")

    def _coef_shape(self) -> tuple[int, ...]:
        """Return the shape that ``coef_`` should have."""
        return (self.n_features_in_,)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class Neuron(RegressorMixin, GroupEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A neuron ``sigma(w.x + b)`` for rows of any kind; subclasses fit it."""

    activation: str | Activation
    activation_: Activation
    intercept_: float
    certificate_: Certificate

    def _keep(self, X: Any, others: tuple[Any, ...], found: Outcome) -> None:
        """Set the fitted attributes; warn if the fit did not converge."""
        self.activation_ = get_activation(self.activation)
        super()._keep(X, others, found)

    def predict(self, X: Any) -> Any:
        """Predict ``sigma(X @ coef_ + intercept_)``.

        Returns an array. A Dask collection gives a lazy Dask array, a tensor gives a tensor on its
        device, and a Spark data frame is returned with a column ``prediction``.
        """
        return self._output(X, "predict")

    def outputs_of(self, scores: Array, kind: str = "predict") -> Array:
        return self.activation_.value(scores.reshape(len(scores)))

    def outputs_of_tensor(self, scores: Any, kind: str) -> Any:
        from counterpoise.rows.engines.torch import activate

        return activate(self.activation_, scores)[0]

    def worst_group_risk(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> float:
        """Return the mean squared error of the worst group among the given rows."""
        return worst_group_risk(y, self.predict(X), groups=groups, sample_weight=sample_weight)

    def plain_twin(self) -> Neuron:
        """Return the same neuron, unfitted, for the plain average over rows."""
        raise NotImplementedError(type(self).__name__)

    def __check_loaded__(self) -> None:
        super().__check_loaded__()
        if not isinstance(getattr(self, "activation_", None), Activation):
            raise ValueError("activation_ is missing, or has the wrong type")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Most activations are bounded below, so labels of both signs fit poorly.
        tags.regressor_tags.poor_score = self.activation != "identity"
        return tags
