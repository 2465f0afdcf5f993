"""TiltedNeuron and TiltedClassifier: tilted empirical risk, over groups or rows."""

from __future__ import annotations

import math
from typing import Any

from counterpoise.activations import Activation
from counterpoise.baselines._base import (
    Baseline,
    ClassifierBaseline,
    NeuronBaseline,
    Prior,
    check_number,
    require_memory,
)
from counterpoise.baselines._rows import minimise_over_rows
from counterpoise.common.arguments import check_choice
from counterpoise.dual.divergences import KL
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solve import solve


class Tilted(Baseline):
    """The method, for any loss."""

    t: float
    level: str
    prior: Prior

    def _check(self) -> None:
        check_choice("level", self.level, ("group", "row"))
        try:
            check_number("t", self.t, zero=True)
        except ValueError as error:
            raise ValueError(
                f"{error}. A negative tilt would favour losses that are already small, which is "
                "not a robust risk; t = 0 is the average."
            ) from None
        if self.level == "row" and self.prior is not None:
            raise ValueError(
                f"prior={self.prior!r} weights groups, but level='row' weights rows; leave prior "
                "at None and pass sample_weight to fit"
            )

    def _find(self, X: Any, *others: Any) -> Outcome:
        nu = 1.0 / float(self.t) if self.t else math.inf
        if self.level == "group":
            return solve(X, *others, nu=nu, options=self._options(), check_input=False)
        require_memory(X, "level='row'", "Use level='group'.")
        solver = self._open(X, *others, prior="rows")
        found, self.nu_ = minimise_over_rows(solver, KL(), lambda _: nu)
        return found


class TiltedNeuron(Tilted, NeuronBaseline):
    """A single neuron that minimises the tilted risk.

    The risk is ``(1/t) log mean exp(t loss)``. The mean is over groups (``loss`` is a group's mean
    squared error) or over rows (a row's squared error). ``t = 0`` gives the average, and large
    ``t`` the largest loss.

    At group level this *is* ``GroupDRONeuron(divergence="kl", nu=1/t)`` under another name, with
    the same method and certificate. At row level it protects single rows, including those with
    noise or wrong labels. Then ``groups`` only affect what is reported, rows must be in memory,
    and L-BFGS with true gradients starts from the average fit.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    t : float >= 0, default=1.0
        The tilt, in units of one over the loss.
    level : {"group", "row"}, default="group"
    prior : array of shape (K,), mapping group -> weight, or "rows", optional
        Weights of the groups in the mean; equal if None. For ``level="group"`` only; at row level
        the sample weights apply.
    fit_intercept, precondition, max_iter, tol :
        As in :class:`counterpoise.GroupDRONeuron`.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_risks_, nu_, n_iter_, n_passes_, status_, \
history_ :
        As in :class:`counterpoise.GroupDRONeuron`; ``nu_`` is ``1/t``.
    group_weights_ : array of shape (K,)
        Weight of each group in the gradient; at row level, the total weight of its rows.
    risk_ : float
        The tilted risk.
    certificate_ : Certificate
        At group level only.

    References
    ----------
    Li, Beirami, Sanjabi and Smith (2021), "Tilted empirical risk minimization", ICLR.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = X[:, 0] * (1.0 + groups)
    >>> model = TiltedNeuron("identity", t=10.0).fit(X, y, groups=groups)
    >>> bool(abs(model.risk_ - np.log(np.mean(np.exp(10 * model.group_risks_))) / 10) < 1e-9)
    True
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        t: float = 1.0,
        level: str = "group",
        prior: Prior = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.activation = activation
        self.t = t
        self.level = level
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol


class TiltedClassifier(Tilted, ClassifierBaseline):
    """A linear classifier that minimises the tilted risk.

    The risk is ``(1/t) log mean exp(t loss)``, over groups or over rows as in
    :class:`TiltedNeuron`, plus the ridge. At group level this *is*
    ``GroupDROClassifier(divergence="kl", nu=1/t)`` under another name, with the same method and
    certificate. At row level, rows must be in memory and L-BFGS starts from the average fit.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
    t, level, prior :
        As in :class:`TiltedNeuron`.
    alpha, fit_intercept, precondition, max_iter, tol :
        As in :class:`counterpoise.GroupDROClassifier`.

    Attributes
    ----------
    classes_, coef_, intercept_, loss_, groups_, group_risks_, nu_, n_iter_, n_passes_, \
status_, history_ :
        As in :class:`counterpoise.GroupDROClassifier`; ``nu_`` is ``1/t``.
    group_weights_ : array of shape (K,)
        Weight of each group in the gradient; at row level, the total weight of its rows.
    risk_ : float
        The tilted risk plus the ridge.
    certificate_ : ConvexCertificate
        At group level only.

    References
    ----------
    Li, Beirami, Sanjabi and Smith (2021), "Tilted empirical risk minimization", ICLR.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = X[:, 0] * (groups != 1) + rng.logistic(size=600) > 0
    >>> model = TiltedClassifier(t=10.0, alpha=0.0).fit(X, y, groups=groups)
    >>> bool(abs(model.risk_ - np.log(np.mean(np.exp(10 * model.group_risks_))) / 10) < 1e-9)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        t: float = 1.0,
        level: str = "group",
        alpha: float = TINY,
        prior: Prior = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.loss = loss
        self.t = t
        self.level = level
        self.alpha = alpha
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
