"""PrimalExtrapolationNeuron: Algorithm 1 with the gradient extrapolated, not the weights."""

from __future__ import annotations

from typing import Any

from counterpoise.activations import Activation
from counterpoise.baselines._base import NeuronBaseline, Prior, outcome
from counterpoise.common.arguments import check_choice
from counterpoise.dual.divergences import Divergence
from counterpoise.solver.algorithm import EXTRAPOLATIONS, PATIENCE
from counterpoise.solver.options import check_nu_option
from counterpoise.solver.schedules import Schedule
from counterpoise.solver.solution import Outcome


class PrimalExtrapolationNeuron(NeuronBaseline):
    """A single neuron fitted by the primal-dual method with primal extrapolation.

    It has the objective of :class:`counterpoise.GroupDRONeuron` and uses the preceding method.
    The primal step follows ``g_{t-1} + (a_{t-1} / a_t)(g_{t-1} - g_{t-2})`` with
    ``g_t = sum_i lam_{t,i} v_i(w_t)``. This extrapolates the whole gradient, not just the weights,
    and so needs steps half as long. The result is the best iterate, without a polish and without
    a certificate, whose proof covers dual extrapolation only. ``extrapolation="dual"`` gives the
    same iterates as ``GroupDRONeuron(polish=False)``; "none" turns extrapolation off.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    extrapolation : {"primal", "dual", "none"}, default="primal"
    divergence : {"chi2", "kl", "cvar"} or Divergence, default="chi2"
    nu, radius, prior, reference, schedule, fit_intercept, precondition, max_iter, tol :
        As in :class:`counterpoise.GroupDRONeuron`.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_risks_, risk_, nu_, n_iter_, n_passes_, \
status_, history_ :
        As in :class:`counterpoise.GroupDRONeuron`; the "slack" of ``history_`` is NaN unless
        ``extrapolation="dual"``.
    group_weights_ : array of shape (K,)
        The weights of the last iteration.

    References
    ----------
    Li, Karmalkar, Diakonikolas and Diakonikolas (2024), "Learning a single neuron robustly to
    distributional shifts and adversarial label noise", NeurIPS; there over rows, with the
    chi-squared divergence.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 3)), np.repeat([0, 1, 2], 200)
    >>> y = np.maximum(0.0, X[:, 0] * (1.0 + groups))
    >>> model = PrimalExtrapolationNeuron(nu=0.1).fit(X, y, groups=groups)
    >>> model.group_weights_.round(2).tolist()
    [0.5, 0.0, 0.5]
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        extrapolation: str = "primal",
        divergence: str | Divergence = "chi2",
        nu: float | str = "auto",
        radius: float | None = None,
        prior: Prior = None,
        reference: Any = None,
        schedule: str | Schedule = "adaptive",
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.activation = activation
        self.extrapolation = extrapolation
        self.divergence = divergence
        self.nu = nu
        self.radius = radius
        self.prior = prior
        self.reference = reference
        self.schedule = schedule
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol

    def _check(self) -> None:
        check_choice("extrapolation", self.extrapolation, EXTRAPOLATIONS)
        check_nu_option(self.nu)

    def _find(self, *rows: Any) -> Outcome:
        solver = self._open(*rows)
        setup = solver.set_up(self.nu)
        run = solver.run(setup, self.nu, extrapolation=self.extrapolation)
        u, losses, problem = run.result, run.result_eval.loss_K, setup.problem
        if setup.working is not problem:  # the losses of the rows, not those of the quadratics
            losses = problem.evaluate(u, surrogate=False).loss_K
        self.nu_ = setup.nu
        status = (
            f"Converged: the last {PATIENCE} of {run.n_iter} iterations did not lower the best "
            "risk by more than tol."
        )
        if run.as_printed:
            status = f"Completed all {run.n_iter} iterations (max_iter)."
        elif not run.converged:
            status = (
                f"Not converged: reached max_iter={run.n_iter} while the risk still changed by "
                "more than tol. Raise max_iter or tol, or try another extrapolation."
            )
        return outcome(
            setup.engine,
            problem.coordinates.to_user(u),
            losses=losses,
            weights=run.dual.weights,
            risk=problem.risk(losses),
            n_iter=run.n_iter,
            converged=run.converged or run.as_printed,
            status=status,
            history=run.history,
        )
