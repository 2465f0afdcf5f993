"""GroupDROClassifier: linear classification that holds up on the worst group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.classes import Classifier, row_loss
from counterpoise.estimators.linear import TINY, LinearModel
from counterpoise.losses import Loss

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.classes import ClassDiagnosis

Array = np.ndarray


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
    (['no', 'yes'], ['yes', 'yes'])
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
        groups : array of shape (n,), or memberships of shape (n, K), optional
            A sortable label per row, or groups that overlap; see :meth:`GroupDRONeuron.fit`. None
            means a single group.
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

    def diagnosis(self, feature_names: Sequence[str] | None = None) -> ClassDiagnosis | None:
        """Diagnose the sample that the fit keeps; None for a stored model."""
        sample = self.kept_sample()
        if sample is None:
            return None
        from counterpoise.assessment.diagnosis.classes import diagnose_class_sample

        known = {name: getattr(self, name) for name in ("fit_intercept", "precondition")}
        options = {**known, "loss": self.loss_, "ridge": self.alpha}
        return diagnose_class_sample(sample, self.classes_, options)
