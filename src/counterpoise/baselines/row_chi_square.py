"""RowChiSquareNeuron and -Classifier: distributional robustness over rows, without groups."""

from __future__ import annotations

from typing import Any

from counterpoise.activations import Activation
from counterpoise.baselines._base import (
    Baseline,
    ClassifierBaseline,
    NeuronBaseline,
    require_memory,
)
from counterpoise.baselines._rows import minimise_over_rows
from counterpoise.dual.divergences import ChiSquare
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.solver.options import check_nu_option
from counterpoise.solver.solution import Outcome


class RowChiSquare(Baseline):
    """The method, for any loss."""

    nu: float | str

    def _check(self) -> None:
        check_nu_option(self.nu)
        if self.nu == 0:
            raise ValueError(
                "nu must be positive; got 0, which would fit the worst row alone. "
                f"Use a small nu, or {self.INSTEAD}(nu=0) for the worst group."
            )

    def _find(self, X: Any, *others: Any) -> Outcome:
        require_memory(X, type(self).__name__, f"Use {self.INSTEAD}(divergence='chi2').")
        solver = self._open(X, *others, prior="rows")
        nu = self.nu
        found, self.nu_ = minimise_over_rows(
            solver, ChiSquare(), lambda loss: 0.1 * loss if isinstance(nu, str) else float(nu)
        )
        return found


class RowChiSquareNeuron(RowChiSquare, NeuronBaseline):
    """A single neuron that is robust to reweighting of the rows; it ignores groups.

    It minimises ``max_q sum_j q_j loss_j - nu chi2(q, p)`` over distributions ``q`` on rows.
    ``loss_j`` is the squared error of row ``j``, and ``p`` is uniform (or the sample weights).
    ``GroupDRONeuron(divergence="chi2")`` protects groups. This neuron protects any rows that fit
    badly, including those with noise or wrong labels. ``groups`` only affect what is reported.
    L-BFGS with true gradients starts from the average fit.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    nu : float > 0, inf or "auto", default="auto"
        Strength of the pull of ``q`` towards ``p``, in units of the loss. ``inf`` gives the
        average loss; "auto" takes a tenth of the loss of the average fit.
    fit_intercept, precondition :
        As in :class:`counterpoise.GroupDRONeuron`.
    max_iter : int, default=1000
        Maximum number of L-BFGS steps.
    tol : float, default=1e-6
        Relative change of the risk at which to stop.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_risks_, nu_, n_iter_, n_passes_, status_ :
        As in :class:`counterpoise.GroupDRONeuron`.
    group_weights_ : array of shape (K,)
        Total weight of the rows in each group.
    risk_ : float
        The risk minimised.
    history_ : dict of arrays
        "risk", one entry per iteration.

    References
    ----------
    Duchi and Namkoong (2021), "Learning models with uniform performance via distributionally
    robust optimization", Annals of Statistics. Levy, Carmon, Duchi and Sidford (2020),
    "Large-scale methods for distributionally robust optimization", NeurIPS. The penalised form
    for a neuron: Li, Karmalkar, Diakonikolas and Diakonikolas (2024), "Learning a single neuron
    robustly to distributional shifts and adversarial label noise", NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.ones((4, 1))
    >>> y = np.array([0.0, 0.0, 0.0, 4.0])
    >>> model = RowChiSquareNeuron("identity", fit_intercept=False)
    >>> [model.set_params(nu=nu).fit(X, y).coef_.round(1).tolist() for nu in (1e6, 0.1)]
    [[1.0], [2.0]]
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        nu: float | str = "auto",
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.activation = activation
        self.nu = nu
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol


class RowChiSquareClassifier(RowChiSquare, ClassifierBaseline):
    """A linear classifier that is robust to reweighting of the rows; it ignores groups.

    It minimises ``max_q sum_j q_j loss_j - nu chi2(q, p)`` plus the ridge, over distributions
    ``q`` on rows, as :class:`RowChiSquareNeuron` does. It protects any rows that fit badly,
    including those with wrong labels.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
    nu :
        As in :class:`RowChiSquareNeuron`.
    alpha, fit_intercept, precondition :
        As in :class:`counterpoise.GroupDROClassifier`.
    max_iter, tol :
        As in :class:`RowChiSquareNeuron`.

    Attributes
    ----------
    classes_, coef_, intercept_, loss_, groups_, group_risks_, nu_, n_iter_, n_passes_, status_ :
        As in :class:`counterpoise.GroupDROClassifier`.
    group_weights_, history_ :
        As in :class:`RowChiSquareNeuron`.
    risk_ : float
        The risk minimised, with the ridge.

    References
    ----------
    Duchi and Namkoong (2021), "Learning models with uniform performance via distributionally
    robust optimization", Annals of Statistics. Hashimoto, Srivastava, Namkoong and Liang (2018),
    "Fairness without demographics in repeated loss minimization", ICML.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.zeros((4, 1))
    >>> y = np.array([0, 0, 0, 1])
    >>> model = RowChiSquareClassifier()
    >>> [model.set_params(nu=nu).fit(X, y).predict_proba(X)[0, 1].round(2).item()
    ...  for nu in (1e6, 0.1)]
    [0.25, 0.45]
    """

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        nu: float | str = "auto",
        alpha: float = TINY,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.loss = loss
        self.nu = nu
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
