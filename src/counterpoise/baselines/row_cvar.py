"""RowCVaRClassifier: the mean loss of the worst share of the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterpoise.baselines._base import ClassifierBaseline, require_memory
from counterpoise.baselines._rows import minimise_over_rows
from counterpoise.dual.divergences import CVaR
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.solver.solution import Outcome

# The risk has kinks; first and last smoothing, in multiples of the average loss.
SMOOTH, SHARP, STAGES = 0.3, 1e-4, 5


class RowCVaRClassifier(ClassifierBaseline):
    """A linear classifier that is robust on the worst share of the rows; it ignores groups.

    It minimises the conditional value at risk over rows, which is the mean loss of the worst
    ``share`` of them, plus the ridge. ``share = 1`` gives logistic regression. It needs no groups,
    but protects any rows that fit badly, including those with wrong labels; ``groups`` only affect
    what is reported. ``GroupDROClassifier(divergence=CVaR(share))`` protects groups instead.

    The risk has kinks, so L-BFGS minimises smoother risks, each less smooth than the one before;
    they differ from it by at most ``1e-4 log(1 / share)`` of the average loss in the end.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
    share : float in (0, 1], default=0.5
        The share of the rows, weighted by their sample weights.
    alpha, fit_intercept, precondition :
        As in :class:`counterpoise.GroupDROClassifier`.
    max_iter : int, default=1000
        Maximum number of L-BFGS steps.
    tol : float, default=1e-6
        Relative change of the risk at which to stop.

    Attributes
    ----------
    classes_, coef_, intercept_, loss_, groups_, group_risks_, n_iter_, n_passes_, status_ :
        As in :class:`counterpoise.GroupDROClassifier`.
    group_weights_ : array of shape (K,)
        Total weight of the rows in each group.
    risk_ : float
        The conditional value at risk plus the ridge.
    history_ : dict of arrays
        "risk", one entry per iteration, of the smoothed risk.

    References
    ----------
    Rockafellar and Uryasev (2000), "Optimization of conditional value-at-risk", Journal of Risk.
    Levy, Carmon, Duchi and Sidford (2020), "Large-scale methods for distributionally robust
    optimization", NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.zeros((10, 1)), np.array([0] * 9 + [1])
    >>> RowCVaRClassifier(share=0.2).fit(X, y).predict_proba(X)[0].round(2).tolist()
    [0.5, 0.5]
    """

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        share: float = 0.5,
        alpha: float = TINY,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.loss = loss
        self.share = share
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol

    def _check(self) -> None:
        try:
            CVaR(self.share)
        except ValueError:
            raise ValueError(
                f"share must be a share of the rows in (0, 1]; got {self.share!r}"
            ) from None

    def _find(self, X: Any, *others: Any) -> Outcome:
        require_memory(
            X, type(self).__name__, f"Use {self.INSTEAD}(divergence=CVaR({self.share!r}))."
        )
        solver = self._open(X, *others, prior="rows")
        plain = self.share == 1
        found, _ = minimise_over_rows(
            solver, CVaR(self.share), lambda _: math.inf if plain else 0.0,
            smoothing=() if plain else np.geomspace(SMOOTH, SHARP, STAGES).tolist(),
        )  # fmt: skip
        return found
