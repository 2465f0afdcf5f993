"""GroupCVaRNeuron: the mean loss of the worst share of the groups."""

from __future__ import annotations

from typing import Any

from counterpoise.activations import Activation
from counterpoise.baselines._base import NeuronBaseline, Prior
from counterpoise.dual.divergences import CVaR
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solve import solve


class GroupCVaRNeuron(NeuronBaseline):
    """A single neuron that is robust on the worst share of the groups.

    It minimises the conditional value at risk over groups, which is the mean loss of the worst
    share ``alpha`` of them: ``max_lam sum_i lam_i loss_i`` over mixtures with ``lam_i <= prior_i /
    alpha``. ``alpha = 1`` gives the average over groups. ``alpha <= min(prior)`` gives the worst
    group, as ``GroupDRONeuron(nu=0)`` does. In between, all groups in the worst share count
    equally and the others do not count. The method and the certificate are those of
    ``GroupDRONeuron``.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    alpha : float in (0, 1], default=0.5
        The share of the groups, weighted by the prior.
    radius, prior, reference, fit_intercept, precondition, max_iter, tol :
        As in :class:`counterpoise.GroupDRONeuron`.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_weights_, group_risks_, n_iter_, n_passes_, \
status_, history_, certificate_ :
        As in :class:`counterpoise.GroupDRONeuron`.
    risk_ : float
        The conditional value at risk.

    References
    ----------
    Rockafellar and Uryasev (2000), "Optimization of conditional value-at-risk", Journal of Risk.
    Over groups: Oren, Sagawa, Hashimoto and Liang (2019), "Distributionally robust language
    modeling", EMNLP. In learning: Curi, Levy, Jegelka and Krause (2020), "Adaptive sampling for
    stochastic risk-averse learning", NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = X[:, 0] * (1.0 + groups)
    >>> model = GroupCVaRNeuron("identity", alpha=2 / 3).fit(X, y, groups=groups)
    >>> bool(abs(model.risk_ - np.sort(model.group_risks_)[1:].mean()) < 1e-6)
    True
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        alpha: float = 0.5,
        radius: float | None = None,
        prior: Prior = None,
        reference: Any = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.activation = activation
        self.alpha = alpha
        self.radius = radius
        self.prior = prior
        self.reference = reference
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol

    def _check(self) -> None:
        CVaR(self.alpha)

    def _find(self, *rows: Any) -> Outcome:
        options = self._options(divergence=CVaR(self.alpha))
        return solve(*rows, nu=0.0, options=options, check_input=False)
