"""ExponentiatedGradientNeuron and -Classifier: GroupDRO in its common form."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.activations import Activation
from counterpoise.baselines._base import (
    SMALL,
    Baseline,
    ClassifierBaseline,
    NeuronBaseline,
    Prior,
    check_count,
    check_number,
    check_start,
    first_point,
    in_memory,
    require_memory,
    score_scale,
    standardised,
    standardised_ridge,
)
from counterpoise.baselines._descent_ascent import all_rows, descent_ascent, drawn_rows, safe_rate
from counterpoise.dual.divergences import KL
from counterpoise.dual.objective import Objective
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.solver.frame import largest_moment
from counterpoise.solver.problem import Problem
from counterpoise.solver.solution import Outcome
from counterpoise.solver.stacked import Stacked

Array = np.ndarray


class ExponentiatedGradient(Baseline):
    """The method, for any loss."""

    step_size: float
    learning_rate: float | str
    adjustment: float
    batch_size: int | None
    start: str | Array
    random_state: Any

    def _check(self) -> None:
        check_number("step_size", self.step_size)
        check_number("learning_rate", self.learning_rate, auto=True)
        check_number("adjustment", self.adjustment, zero=True)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_start(self.start)

    def _find(self, X: Any, *others: Any) -> Outcome:
        if self.batch_size is not None:
            require_memory(X, f"batch_size={self.batch_size}", "Use batch_size=None.")
        solver = self._open(X, *others)
        engine, prior, K = solver.engine, solver.prior, solver.engine.n_groups
        equal, alpha = np.full(K, 1.0 / K), solver.options.ridge
        each = standardised(engine, equal)
        ridge = standardised_ridge(engine, each, prior, alpha)
        n_scores = engine.loss.n_scores
        coordinates = each if n_scores == 1 else Stacked(each, n_scores)
        rng = check_random_state(self.random_state)
        size = SMALL * score_scale(engine, equal)
        u = first_point(self.start, coordinates, engine.n_coef, size, rng)
        rows = math.inf
        if self.batch_size is None:
            objective = Objective(KL(), 0.0, prior, solver.reference)
            look = all_rows(Problem(engine, coordinates, objective, ridge))
        else:
            rows = self.batch_size / K
            batches = (rng.randint(K, size=self.batch_size) for _ in itertools.count())
            data = in_memory(solver).data
            look = drawn_rows(data, engine.loss, coordinates, batches, rng, ridge)
        rate = self.learning_rate
        if isinstance(rate, str):
            moment = largest_moment(engine, each)
            rate = safe_rate(engine.loss.bend_bound, moment, each.size, rows)
            if ridge is not None:
                rate /= 1.0 + rate * alpha * float(ridge.gram.max(initial=0.0))
        path = descent_ascent(
            look, u, prior, rate=rate, step=self.step_size, max_iter=self.max_iter,
            bonus=self.adjustment / np.sqrt(engine.census.totals),
        )  # fmt: skip
        return path.end(engine, coordinates, path.u, path.weights, ridge)


class ExponentiatedGradientNeuron(ExponentiatedGradient, NeuronBaseline):
    """A single neuron fitted by GroupDRO: exponentiated gradient on the group weights.

    It minimises the loss of the worst group, as ``GroupDRONeuron(nu=0)`` does. Each iteration
    multiplies the weight of group ``g`` by ``exp(step_size * (loss_g + adjustment / sqrt(n_g)))``,
    normalises the weights, and takes one step down the *true* gradient of the weighted losses.
    Unlike ``GroupDRONeuron``, it has constant step sizes that need tuning (``step_size`` in units
    of one over the loss), its true gradients can leave a ReLU dead, and it has no stopping
    criterion: it runs ``max_iter`` iterations and returns the last.

    Features are standardised internally (centred only with an intercept), so that learning rates
    have the same meaning for all data. Coefficients are for the features as given.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    step_size : float, default=0.01
        Step size for the weights.
    learning_rate : float or "auto", default="auto"
        Step size for the coefficients of standardised features. "auto" takes one over a bound on
        the curvature of any group's loss; the bound is larger if rows are drawn.
    adjustment : float >= 0, default=0.0
        The group adjustment ``C``. Updates of the weights add ``C / sqrt(n_g)`` to the loss of
        group ``g``, where ``n_g`` is its number of rows (or their total sample weight).
    batch_size : int, optional
        None reads all rows in every iteration, wherever they are stored. A number draws that many
        rows, which must be in memory: each draw picks a group uniformly, then one of its rows. As
        in the published code, a group that is absent from a batch has loss 0 (plus its
        adjustment), so its weight falls by normalisation alone.
    prior : array of shape (K,), mapping group -> weight, or "rows", optional
        The first weights; equal if None.
    start : {"random", "zero"} or array, default="random"
        The first iterate, as in :class:`AverageNeuron`; "random" is small.
    fit_intercept : bool, default=True
    max_iter : int, default=1000
        Number of iterations.
    random_state : int, RandomState or None
        Seed for the start and the batches.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_weights_, group_risks_, n_iter_, n_passes_, \
status_ :
        As in :class:`counterpoise.GroupDRONeuron`.
    risk_ : float
        The loss of the worst group.
    history_ : dict of arrays
        "risk" (weighted loss), "worst" and "weights" (T, K). Each entry holds the losses before
        the iteration's step and the weights after it, measured on the batch if there is one.

    References
    ----------
    Sagawa, Koh, Hashimoto and Liang (2020), "Distributionally robust neural networks for group
    shifts", ICLR; Algorithm 1 and its published code.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = X[:, 0] * (1.0 + groups)
    >>> model = ExponentiatedGradientNeuron("identity", step_size=0.1, random_state=0)
    >>> model.fit(X, y, groups=groups).group_weights_.round(1).tolist()
    [0.5, 0.0, 0.5]
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        step_size: float = 0.01,
        learning_rate: float | str = "auto",
        adjustment: float = 0.0,
        batch_size: int | None = None,
        prior: Prior = None,
        start: str | Array = "random",
        fit_intercept: bool = True,
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.activation = activation
        self.step_size = step_size
        self.learning_rate = learning_rate
        self.adjustment = adjustment
        self.batch_size = batch_size
        self.prior = prior
        self.start = start
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.random_state = random_state


class ExponentiatedGradientClassifier(ExponentiatedGradient, ClassifierBaseline):
    """A linear classifier fitted by GroupDRO: exponentiated gradient on the group weights.

    The method is that of :class:`ExponentiatedGradientNeuron`, with the gradient of the loss. It
    minimises the loss of the worst group plus the ridge, as ``GroupDROClassifier(nu=0)`` does, but
    has step sizes to tune and no stopping criterion.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
        As in :class:`counterpoise.GroupDROClassifier`.
    alpha : float >= 0, default=1e-8
        Strength of the ridge, as in :class:`counterpoise.GroupDROClassifier`. Models that can fit
        every row need a strong one, or few iterations, to gain from this method.
    step_size, learning_rate, adjustment, batch_size, prior, start, fit_intercept, max_iter, \
random_state :
        As in :class:`ExponentiatedGradientNeuron`. An array ``start`` holds the coefficients of
        one class after the other, each followed by its intercept if there is one.

    Attributes
    ----------
    classes_, coef_, intercept_, loss_, groups_, group_weights_, group_risks_, n_iter_, \
n_passes_, status_ :
        As in :class:`counterpoise.GroupDROClassifier`.
    risk_ : float
        The loss of the worst group plus the ridge.
    history_ : dict of arrays
        As in :class:`ExponentiatedGradientNeuron`.

    References
    ----------
    Sagawa, Koh, Hashimoto and Liang (2020), "Distributionally robust neural networks for group
    shifts", ICLR; Algorithm 1 and its published code.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = X[:, 0] * (groups != 1) + rng.logistic(size=600) > 0
    >>> model = ExponentiatedGradientClassifier(step_size=0.1, random_state=0)
    >>> int(model.fit(X, y, groups=groups).group_weights_.argmax())
    1
    """

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        alpha: float = TINY,
        step_size: float = 0.01,
        learning_rate: float | str = "auto",
        adjustment: float = 0.0,
        batch_size: int | None = None,
        prior: Prior = None,
        start: str | Array = "random",
        fit_intercept: bool = True,
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.step_size = step_size
        self.learning_rate = learning_rate
        self.adjustment = adjustment
        self.batch_size = batch_size
        self.prior = prior
        self.start = start
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.random_state = random_state
