"""GroupDRORegressor: linear regression with a convex loss that holds up on the worst group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from counterpoise.common.task_words import NUMBER_LOSSES
from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.linear import TINY, LinearModel
from counterpoise.losses import Loss, get_loss

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis

Array = np.ndarray


class GroupDRORegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear model with a convex loss that is robust on the worst group.

    It minimises ``max_lam sum_i lam_i loss_i - nu d_f(lam, prior) + alpha / 2 sum_k (s_k w_k)^2``
    over mixtures ``lam`` of the groups, where ``loss_i`` is the mean loss of group ``i`` and
    ``s_k`` the standard deviation of feature ``k``. For the squared loss, this is
    ``GroupDRONeuron(activation="identity")`` with a ridge.

    Parameters
    ----------
    loss : {"squared", "huber", "poisson"} or Loss, default="squared"
        "huber" is half of the squared error up to one and linear above; pass
        ``counterpoise.losses.Huber(delta)`` for another bend. "poisson" is half of the Poisson
        deviance of counts, with means ``exp(w.x + b)``.
    alpha, divergence, nu, radius, prior, reference, polish, fit_intercept, precondition, \
max_iter, tol, warm_start, checkpoint, verbose :
        As in :class:`GroupDROClassifier`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
    loss_, feature_scale_, groups_, group_weights_, group_risks_, risk_, nu_, n_iter_, n_passes_, \
status_, history_, certificate_ :
        As in :class:`GroupDROClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = rng.poisson(np.exp(X[:, 0] + 0.2 * groups))
    >>> model = GroupDRORegressor("poisson", nu=0.0).fit(X, y, groups=groups)
    >>> bool(model.certificate_.duality_gap < 1e-5)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
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
    ) -> GroupDRORegressor:
        """Fit the model; rows are as in :meth:`GroupDRONeuron.fit`."""
        X, y, sample_weight = self._checked(X, y, sample_weight)
        if isinstance(self.loss, str) and self.loss not in NUMBER_LOSSES:
            raise ValueError(
                f"loss={self.loss!r} is not a loss of numbers; use "
                f"{', '.join(map(repr, NUMBER_LOSSES))}, or GroupDROClassifier for classes"
            )
        self._fit(X, y, groups, sample_weight, get_loss(self.loss))
        return self

    def predict(self, X: Any) -> Any:
        """Predict means: linear scores, or their exponentials for the Poisson loss."""
        return self._output(X, "predict")

    def outputs(self, X: Any, kind: str = "predict") -> Array:
        return self.loss_.outputs(self.scores(X))

    def outputs_of_tensor(self, scores: Any, kind: str) -> Any:
        from counterpoise.rows.engines.torch import on_host

        return on_host(self.loss_.outputs, scores)

    def diagnosis(self, feature_names: Sequence[str] | None = None) -> Diagnosis | None:
        """Diagnose the sample that the fit keeps, for a squared error; else None."""
        sample = self.kept_sample()
        if sample is None or not self.loss_.is_quadratic:
            return None
        from counterpoise.assessment.diagnosis.diagnose import diagnose_sample

        known = {name: getattr(self, name) for name in ("fit_intercept", "precondition")}
        return diagnose_sample(sample, {**known, "activation": "identity"}, names=feature_names)
