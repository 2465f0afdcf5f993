"""GroupDROClassifier: linear classification that holds up on the worst group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.base import FLOATS, GroupEstimator
from counterpoise.estimators.linear import TINY, LinearModel
from counterpoise.losses import Loss, Multinomial, get_loss
from counterpoise.rows.backends import backend_of
from counterpoise.rows.classes import encode_classes
from counterpoise.rows.frames import given
from counterpoise.solver.solution import Outcome

Array = np.ndarray

# Losses of classes by name; others are for numbers.
LOSSES = ("log", "squared_hinge")


def _has_probabilities(model: Classifier) -> bool:
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
        """Predict classes. A Dask collection gives a lazy Dask array."""
        return self._output(X, "predict")

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of every class: (n, n_classes), for the log loss."""
        return self._output(X, "probabilities")

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the probability of every class."""
        return self._output(X, "log_probabilities")

    def outputs(self, X: Any, kind: str = "predict") -> Array:
        scores = self.scores(X)
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
        return (1 if count == 2 else count, self.n_features_in_)

    def __check_loaded__(self) -> None:
        if np.ndim(getattr(self, "classes_", 0)) != 1 or len(self.classes_) < 2:
            raise ValueError("classes_ does not hold two or more classes")
        super().__check_loaded__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = isinstance(self.loss, str) and self.loss == "log"
        return tags


class GroupDROClassifier(Classifier, LinearModel):
    """A linear classifier that is robust on the worst group.

    It minimises ``max_lam sum_i lam_i loss_i - nu d_f(lam, prior) + alpha / 2 sum_k (s_k w_k)^2``
    over mixtures ``lam`` of the groups, where ``loss_i`` is the mean loss of group ``i`` and
    ``s_k`` the standard deviation of feature ``k``. The problem is convex, and
    ``certificate_.duality_gap`` is a proved bound on how far the fit is from the minimum, without
    assumptions. The paper's theorem covers neurons with a squared error, not this.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
        The loss of a row. "log" is logistic regression for two classes and multinomial logistic
        regression for more; "squared_hinge" (two classes) a support vector machine.
    alpha : float >= 0, default=1e-8
        Strength of the ridge, part of the objective. Without it, classes that a linear score can
        separate have no minimum. The intercept is not penalised.
    divergence : {"kl", "chi2", "cvar"} or Divergence, default="kl"
        Divergence that keeps the mixture near the prior.
    nu : float >= 0, inf or "auto", default="auto"
        Strength of the divergence, in units of the loss. 0 minimises the worst group alone;
        ``inf`` the average over groups, weighted by the prior. "auto" takes a tenth of the average
        fit's loss.
    radius : float, optional
        Largest norm of ``coef_``. None means no bound.
    prior : array of shape (K,), mapping group -> weight, or "rows", optional
        The mixture to stay near; uniform over groups if None. "rows" weights groups by their
        number of rows (or total sample weight); with ``nu=inf``, this is plain logistic
        regression.
    reference : array of shape (K,) or mapping group -> risk, optional
        Subtracted from each group's loss before the maximum, so that groups are compared by their
        avoidable (excess) loss.
    polish : bool, default=True
        Whether Newton's method follows Algorithm 1.
    fit_intercept : bool, default=True
    precondition : {"auto", "whiten", "scale", None}, default="auto"
        Coordinates for the solver. "auto" whitens up to 512 coefficients and scales beyond.
    max_iter : int, default=1000
        Maximum number of iterations of Algorithm 1.
    tol : float, default=1e-6
        Stop when the relative change of the risk falls below this.
    warm_start : bool, default=False
        Whether to start from the coefficients and group weights of the last fit.
    checkpoint : path, optional
        File that records the result of every pass; see :class:`GroupDRONeuron`.
    verbose : int, default=0
        1 logs milestones, 2 every iteration, to the logger "counterpoise".

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
    intercept_ : array of shape (1,) or (n_classes,)
    loss_ : Loss
    feature_scale_ : array of shape (n_features,)
        The ``s_k`` of the ridge; None if ``alpha`` is 0.
    groups_ : array of shape (K,)
        Group labels, sorted; the order of everything below.
    group_weights_ : array of shape (K,)
        The final mixture; hard groups have large weights.
    group_risks_ : array of shape (K,)
        Mean loss of every group, without the ridge.
    risk_ : float
        The minimised objective, with the ridge.
    nu_, n_iter_, n_passes_, status_, history_ :
        As in :class:`GroupDRONeuron`.
    certificate_ : ConvexCertificate
        What is proved about this fit; prints as a paragraph.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 3)), np.repeat(["a", "b", "c"], 200)
    >>> shift = {"a": 0.0, "b": 0.5, "c": -0.5}
    >>> y = np.where(X[:, 0] + [shift[g] for g in groups] > rng.logistic(size=600), "yes", "no")
    >>> model = GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)
    >>> model.classes_.tolist(), model.predict(X[:2]).tolist()
    (['no', 'yes'], ['yes', 'no'])
    >>> bool(model.certificate_.duality_gap < 1e-6)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        alpha: float = TINY,
        divergence: str | Divergence = "kl",
        nu: float | str = "auto",
        radius: float | None = None,
        prior: Array | Mapping[Any, float] | str | None = None,
        reference: Array | Mapping[Any, float] | None = None,
        polish: bool = True,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            loss, alpha=alpha, divergence=divergence, nu=nu, radius=radius, prior=prior,
            reference=reference, polish=polish, fit_intercept=fit_intercept,
            precondition=precondition, max_iter=max_iter, tol=tol, warm_start=warm_start,
            checkpoint=checkpoint, verbose=verbose,
        )  # fmt: skip

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> GroupDROClassifier:
        """Fit the classifier.

        Parameters
        ----------
        X : array, CSR matrix, data frame, Source, Dask collection or tensor of shape (n, d)
            As in :meth:`GroupDRONeuron.fit`.
        y : array of shape (n,)
            Labels of any sortable type.
        groups : array of shape (n,), optional
            A sortable label per row; None means a single group.
        sample_weight : array of shape (n,), optional
            Weights of the rows within their group.
        """
        X, codes, classes, sample_weight = self._classes(X, y, sample_weight)
        loss = row_loss(self.loss, len(classes))
        if self.warm_start and not np.array_equal(classes, getattr(self, "classes_", classes)):
            raise ValueError(
                f"y has the classes {classes.tolist()[:10]!r}, but the fit to start from had "
                f"{self.classes_.tolist()[:10]!r}; use warm_start=False"
            )
        self.classes_ = classes
        self._fit(X, codes, groups, sample_weight, loss)
        return self


def row_loss(loss: str | Loss, n_classes: int) -> Loss:
    """Return the loss object for so many classes."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise ValueError(
            f"loss={loss!r} is not a loss of classes; use {' or '.join(map(repr, LOSSES))}, or "
            "GroupDRORegressor for numbers"
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
    if scores.ndim == 1:
        return (scores > 0).astype(np.intp)
    return np.argmax(scores, axis=1)
