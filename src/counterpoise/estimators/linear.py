"""LinearModel: linear scores with a convex loss, fitted to the worst mixture of groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.solved import Solved
from counterpoise.losses import Loss
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solution import Outcome, Solution

Array = np.ndarray

# The default strength of the ridge: too little to change a fit that has a minimum without it.
TINY = 1e-8
# Options that a model shares with its plain average: the model, and the solver's settings.
SHARED = (
    "loss", "alpha", "radius", "fit_intercept", "precondition", "max_iter", "tol",
)  # fmt: skip


class LinearModel(Solved):
    """The common part of `GroupDROClassifier` and `GroupDRORegressor`."""

    loss_: Loss
    feature_scale_: Array | None
    # Options that affect a diagnosis.
    SEEN: ClassVar = ("divergence", "fit_intercept", "precondition", "alpha")

    def __init__(
        self,
        loss: str | Loss,
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
        self.loss = loss
        self.alpha = alpha
        self.divergence = divergence
        self.nu = nu
        self.radius = radius
        self.prior = prior
        self.reference = reference
        self.polish = polish
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, groups: Any, sample_weight: Any, loss: Loss) -> None:
        """Fit checked rows whose labels are the loss's own."""
        self._check_flags("polish", "fit_intercept", "warm_start")
        if isinstance(y, Array):
            loss.check_labels(y)
        self.loss_ = loss
        self._solve(X, y, groups, sample_weight, FitOptions.of(self, loss=loss, ridge=self.alpha))

    def _keep(self, X: Any, others: tuple[Any, ...], found: Outcome) -> None:
        self.feature_scale_ = found.penalty if isinstance(found, Solution) else None
        super()._keep(X, others, found)

    def plain_twin(self) -> LinearModel:
        """Return the same model, unfitted, for the plain average over rows."""
        options = {name: getattr(self, name) for name in SHARED}
        return type(self)(**options, nu=np.inf, prior="rows")

    def __check_loaded__(self) -> None:
        super().__check_loaded__()
        if not isinstance(getattr(self, "loss_", None), Loss):
            raise ValueError("loss_ is missing, or has the wrong type")
