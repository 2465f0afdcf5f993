"""AverageNeuron and AverageClassifier: the average loss, over rows or over groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.activations import Activation
from counterpoise.baselines._base import (
    SMALL,
    ClassifierBaseline,
    NeuronBaseline,
    Prior,
    check_start,
    first_point,
    outcome,
    true_evaluate,
)
from counterpoise.common.arguments import check_choice
from counterpoise.dual.divergences import Fixed
from counterpoise.dual.objective import Objective
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.rows.engines.base import GroupEval
from counterpoise.solver.frame import Frame, label_scale
from counterpoise.solver.problem import Problem
from counterpoise.solver.setup import RISK_FLOOR
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solve import solve

Array = np.ndarray

# The line search gives up below this multiple of the first step.
SHORTEST = 1e-12


class AverageNeuron(NeuronBaseline):
    """A single neuron fitted to the average loss, with or without groups.

    It minimises ``sum_i prior_i loss_i``. A hard group gets no extra weight.

    ``gradient="surrogate"`` is GLMtron. Its steps ``w - v(w) / L`` follow ``v``, the gradient
    without the slope of the activation. This leads past ``w = 0`` and past bad stationary points,
    and ends near the minimiser rather than at it. ``gradient="true"`` is gradient descent on the
    loss itself. Each step is halved until the loss falls, so the loss never rises. With ReLU and
    ``start="zero"`` the true gradient is zero (the slope at a kink is the left one, as in
    deep-learning frameworks), so the neuron never moves. The result is the last iterate.

    With ``prior="rows"`` and the identity activation this is least squares.
    ``GroupDRONeuron(nu=inf)`` has the same objective, but polishes the result.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    gradient : {"surrogate", "true"}, default="surrogate"
    prior : "rows", array of shape (K,), mapping group -> weight, or None, default="rows"
        Weights of the groups: by their rows, as given, or equal (None).
    start : {"zero", "random"} or array, default="zero"
        The first iterate. An array holds the coefficients, followed by the intercept if there is
        one.
    radius, fit_intercept, precondition :
        As in :class:`counterpoise.GroupDRONeuron`; ``precondition=None`` takes textbook steps in
        the features as given.
    max_iter : int, default=1000
    tol : float, default=1e-6
        Stop when a step is expected to change the loss by less than this share.
    random_state : int, RandomState or None
        Seed for ``start="random"``.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_risks_, n_iter_, n_passes_, status_ :
        As in :class:`counterpoise.GroupDRONeuron`.
    group_weights_ : array of shape (K,)
        The prior.
    risk_ : float
        The average loss.
    history_ : dict of arrays
        "risk" and "worst" (the largest group loss), one entry per iteration.

    References
    ----------
    Kakade, Kalai, Kanade and Shamir (2011), "Efficient learning of generalized linear and single
    index models with isotonic regression", NeurIPS. With adversarial labels: Diakonikolas, Goel,
    Karmalkar, Klivans and Soltanolkotabi (2020), "Approximation schemes for ReLU regression",
    COLT.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = np.maximum(0.0, X @ [1.0, -2.0, 0.5])
    >>> AverageNeuron(fit_intercept=False, tol=1e-12).fit(X, y).coef_.round(4).tolist()
    [1.0, -2.0, 0.5]
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        gradient: str = "surrogate",
        prior: Prior = "rows",
        start: str | Array = "zero",
        radius: float | None = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.activation = activation
        self.gradient = gradient
        self.prior = prior
        self.start = start
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _check(self) -> None:
        check_choice("gradient", self.gradient, ("surrogate", "true"))
        check_start(self.start)

    def _find(self, *rows: Any) -> Outcome:
        solver = self._open(*rows)
        engine, frame, prior = solver.engine, solver.frame, solver.prior
        if isinstance(self.prior, str) and not engine.even:
            raise ValueError(
                f"prior={self.prior!r}: no mixture of these overlapping groups is the average over "
                "rows, since some rows belong to more groups than others; leave groups out, or use "
                "GroupDRONeuron(nu=inf, prior='rows')"
            )
        problem = Problem(
            engine, frame.coordinates, Objective(Fixed(), 1.0, prior, solver.reference)
        )
        scale = label_scale(engine, prior)
        size = SMALL * math.sqrt(scale / frame.mean_moment)
        rng = check_random_state(self.random_state)
        u = first_point(self.start, frame.coordinates, engine.n_coef, size, rng)
        surrogate, floor = self.gradient == "surrogate", RISK_FLOOR * scale
        step = longest = 1.0 / (engine.loss.bend_bound * _top(frame))

        ev = problem.evaluate(u, surrogate=True) if surrogate else true_evaluate(problem, u)
        history: dict[str, list[float]] = {"risk": [], "worst": []}
        status, converged, t = "", False, 0
        while t < self.max_iter and not status:
            t += 1
            slope = prior @ ev.grad_KD
            if surrogate:
                ahead = problem.project(u - step * slope)
                found = problem.evaluate(ahead, surrogate=True)
            else:
                ahead, found, step = _descend(problem, u, ev, slope, step, SHORTEST * longest)
            promised = float(np.sum((ahead - u) ** 2)) / step
            loss = problem.risk(found.loss_K)
            if t == 1 and promised == 0.0 and loss > floor:
                status = (
                    "Never moved: the gradient at the start is zero or points out of the ball. "
                    "Choose another start, or gradient='surrogate'."
                )
                converged = surrogate
            elif promised <= self.tol * max(loss, floor):
                status = (
                    f"Converged: after {t} iterations, a step changes the loss by less than tol."
                )
                converged = True
            u, ev = ahead, found
            history["risk"].append(loss)
            history["worst"].append(float(ev.loss_K.max()))
            step = 2.0 * step if not surrogate else step
        return outcome(
            engine,
            frame.coordinates.to_user(u),
            losses=ev.loss_K,
            weights=prior,
            risk=problem.risk(ev.loss_K),
            n_iter=t,
            converged=converged,
            status=status
            or f"Not converged: reached max_iter={t} while the loss still changed by more than "
            "tol. Raise max_iter or tol.",
            history={name: np.array(values) for name, values in history.items()},
        )


class AverageClassifier(ClassifierBaseline):
    """Logistic regression, over rows or with groups of equal weight.

    It minimises ``sum_i prior_i loss_i`` plus the ridge. With ``prior="rows"``, this is logistic
    regression, which gives a small or hard group no extra weight. With ``prior=None``, every group
    has the same weight, whatever its number of rows ("group-balanced" or "reweighted").
    ``GroupDROClassifier(nu=inf)`` is the same, with the same method and certificate.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
    prior : "rows", array of shape (K,), mapping group -> weight, or None, default="rows"
        Weights of the groups: by their rows, as given, or equal (None).
    alpha, radius, fit_intercept, precondition, max_iter, tol :
        As in :class:`counterpoise.GroupDROClassifier`.

    Attributes
    ----------
    classes_, coef_, intercept_, loss_, groups_, group_risks_, n_iter_, n_passes_, status_, \
history_, certificate_ :
        As in :class:`counterpoise.GroupDROClassifier`.
    group_weights_ : array of shape (K,)
        The prior.
    risk_ : float
        The average loss plus the ridge.

    References
    ----------
    Balanced groups as a strong baseline: Idrissi, Arjovsky, Pezeshki and Lopez-Paz (2022),
    "Simple data balancing achieves competitive worst-group-accuracy", CLeaR.

    Examples
    --------
    >>> import numpy as np
    >>> X, groups = np.zeros((8, 1)), np.repeat(["large", "small"], [6, 2])
    >>> y = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    >>> model = AverageClassifier(prior=None).fit(X, y, groups=groups)
    >>> model.predict_proba(X)[0].round(3).tolist()
    [0.417, 0.583]
    """

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        alpha: float = TINY,
        prior: Prior = "rows",
        radius: float | None = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.prior = prior
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol

    def _find(self, *rows: Any) -> Outcome:
        return solve(*rows, nu=math.inf, options=self._options(), check_input=False)


def _top(frame: Frame) -> float:
    """Return the largest eigenvalue of the average second moment, or a bound on it."""
    if frame.average is None:
        return frame.moment
    return float(np.linalg.eigvalsh(frame.average).max(initial=0.0)) or 1.0


def _descend(
    problem: Problem, u: Array, ev: GroupEval, slope: Array, step: float, shortest: float
) -> tuple[Array, GroupEval, float]:
    """Find a projected step that lowers the loss by half of what the slope predicts.

    Return the new point, its losses and the step size; the old point if no step is long enough.
    """
    loss = problem.risk(ev.loss_K)
    while step > shortest:
        ahead = problem.project(u - step * slope)
        found = true_evaluate(problem, ahead)
        gain = 0.5 * float(np.sum((ahead - u) ** 2)) / step
        if problem.risk(found.loss_K) <= loss - gain:
            return ahead, found, step
        step *= 0.5
    return u, ev, step
