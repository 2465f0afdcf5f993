"""Classifier: what linear classifiers share, whatever fits them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from counterpoise.common.task_words import CLASS_LOSSES
from counterpoise.estimators.base import FLOATS, GroupEstimator
from counterpoise.losses import Loss, Multinomial, get_loss
from counterpoise.rows.backends import backend_of
from counterpoise.rows.classes import encode_classes
from counterpoise.rows.frames import given
from counterpoise.solver.solution import Outcome

Array = np.ndarray


def has_probabilities(model: Classifier) -> bool:
    """Raise AttributeError for a loss that does not estimate probabilities."""
    loss = getattr(model, "loss_", None) or model.loss
    if (loss if isinstance(loss, str) else loss.name) not in ("log", "multinomial"):
        raise AttributeError(
            f"loss={model.loss!r} gives no probabilities; use decision_function, or loss='log'"
        )
    return True


class Classifier(ClassifierMixin, GroupEstimator):  # type: ignore[misc]
    """A linear classifier for rows of any kind; subclasses fit it."""

    loss: str | Loss
    loss_: Loss
    classes_: Array

    def _classes(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Array, Any]:
        """Check the rows, and replace labels by numbers of classes."""
        backend = backend_of(X)
        if backend.is_memory:
            X, y = given(X, "X"), given(y, "y")
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS)
            check_classification_targets(y)
            if sample_weight is not None:
                sample_weight = given(sample_weight, "sample_weight")
                sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
            classes, codes = encode_classes(y)
            seen = classes
            if sample_weight is not None:
                seen = classes[np.unique(codes[sample_weight > 0]).astype(int)]
        else:
            X, codes, classes = backend.number_classes(X, y)
            seen = classes
        if len(seen) < 2:
            raise ValueError(
                f"y holds one class, {seen.tolist()[0]!r}; a classifier needs at least two"
            )
        return X, codes, classes, sample_weight

    def _keep(self, X: Any, others: tuple[Any, ...], found: Outcome) -> None:
        super()._keep(X, others, found)
        self.coef_ = np.atleast_2d(self.coef_)
        self.intercept_ = np.atleast_1d(self.intercept_)

    def decision_function(self, X: Any) -> Any:
        """Return linear scores: one per row for two classes, else one per row and class."""
        return self._output(X, "scores")

    def predict(self, X: Any) -> Any:
        """Predict classes. A Dask collection gives a lazy Dask array.

        A Spark data frame is returned with a column ``prediction``.
        """
        return self._output(X, "predict")

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of every class: (n, n_classes), for the log loss."""
        return self._output(X, "probabilities")

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the probability of every class."""
        return self._output(X, "log_probabilities")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy: the share of rows whose class is predicted."""
        return float(super().score(X, y, sample_weight))

    def outputs_of(self, scores: Array, kind: str = "predict") -> Array:
        if scores.shape[1] == 1:
            scores = scores[:, 0]
        if kind == "scores":
            return scores
        if kind == "predict":
            return self.classes_[_winners(scores)]
        if scores.ndim == 1:  # two classes: their probabilities are those of scores -z/2 and z/2
            scores = np.column_stack([-0.5 * scores, 0.5 * scores])
        return (
            log_softmax(scores, axis=1) if kind == "log_probabilities" else softmax(scores, axis=1)
        )

    def outputs_of_tensor(self, scores: Any, kind: str) -> Any:
        import torch

        from counterpoise.rows.engines.torch import host

        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        if kind == "scores":
            return scores
        if kind == "predict":
            return self.classes_[_winners(host(scores))]
        if scores.ndim == 1:
            scores = torch.stack([-0.5 * scores, 0.5 * scores], 1)
        logs = kind == "log_probabilities"
        return torch.log_softmax(scores, 1) if logs else torch.softmax(scores, 1)

    def empty_output(self, kind: str) -> Array:
        if kind == "predict":
            return self.classes_[:0]
        many = kind != "scores" or len(self.classes_) > 2
        return np.empty((0, len(self.classes_)) if many else 0)

    def _coef_shape(self) -> tuple[int, ...]:
        count = len(self.classes_)
        single = count == 2 and getattr(getattr(self, "loss_", None), "n_scores", 1) == 1
        return (1 if single else count, self.n_features_in_)

    def __check_loaded__(self) -> None:
        if np.ndim(getattr(self, "classes_", 0)) != 1 or len(self.classes_) < 2:
            raise ValueError("classes_ does not hold two or more classes")
        super().__check_loaded__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = isinstance(self.loss, str) and self.loss == "log"
        return tags


def row_loss(loss: str | Loss, n_classes: int) -> Loss:
    """Return the loss object for so many classes."""
    if isinstance(loss, str) and loss not in CLASS_LOSSES:
        raise ValueError(
            f"loss={loss!r} is not a loss of classes; use "
            f"{' or '.join(map(repr, CLASS_LOSSES))}, or GroupDRORegressor for numbers"
        )
    if loss == "log" and n_classes > 2:
        return Multinomial(n_classes)
    found = get_loss(loss)
    if max(found.n_scores, 2) != n_classes:
        kind = "" if found.n_scores > 1 else "Only binary classification is supported: "
        raise ValueError(
            f"{kind}loss={loss!r} is for {max(found.n_scores, 2)} classes, but y has {n_classes}; "
            "use loss='log'"
        )
    return found


def _winners(scores: Array) -> Array:
    """Return the numbers of the classes with the highest scores."""
    missing = np.isnan(scores) if scores.ndim == 1 else np.isnan(scores).any(axis=1)
    if missing.any():
        raise ValueError(
            f"X has missing values in {int(missing.sum())} row(s), first in row "
            f"{int(np.flatnonzero(missing)[0])}, whose class is unknown; impute or leave out "
            "these rows"
        )
    if scores.ndim == 1:
        return (scores > 0).astype(np.intp)
    return np.argmax(scores, axis=1)
