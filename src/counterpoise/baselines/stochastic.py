"""StochasticMirrorNeuron: stochastic mirror descent and ascent for group DRO."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.activations import Activation
from counterpoise.baselines._base import (
    SMALL,
    NeuronBaseline,
    Prior,
    check_count,
    check_number,
    check_start,
    first_point,
    in_memory,
    require_memory,
    standardised,
)
from counterpoise.baselines._descent_ascent import descent_ascent, drawn_rows, safe_rate
from counterpoise.solver.frame import label_scale, largest_moment
from counterpoise.solver.solution import Outcome

Array = np.ndarray


class StochasticMirrorNeuron(NeuronBaseline):
    """A single neuron fitted by stochastic mirror descent-ascent on the worst group's loss.

    It has the objective of ``GroupDRONeuron(nu=0)`` but never reads all rows to fit; in return its
    error falls slowly. Each iteration draws ``batch_size`` rows from every group, takes a step
    down the true gradient of the weighted losses (projected onto the ball if there is a
    ``radius``), and multiplies the weights by the exponential of the drawn losses. Both steps
    start from the previous iterates. Step sizes fall as ``1 / sqrt(t)``. The result is the average
    of the second half of the iterates, weighted by their step sizes. For a linear neuron, this
    average comes within ``O(1 / sqrt(max_iter))`` of the smallest worst-group loss; for other
    activations nothing is proved.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`counterpoise.Activation`.
    step_size : float or "auto", default="auto"
        First step size for the weights, in units of one over the loss. "auto" takes
        ``sqrt(log K)`` over the labels' mean squared deviation.
    learning_rate : float or "auto", default="auto"
        First step size for the coefficients of standardised features. "auto" derives it from
        their second moments.
    batch_size : int, default=1
        Rows drawn from every group in each iteration.
    radius, fit_intercept :
        As in :class:`counterpoise.GroupDRONeuron`.
    prior : array of shape (K,), mapping group -> weight, or "rows", optional
        The first weights; equal if None.
    start : {"random", "zero"} or array, default="random"
        The first iterate, as in :class:`AverageNeuron`; "random" is small.
    max_iter : int, default=10000
        Number of iterations.
    random_state : int, RandomState or None

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_risks_, n_iter_, status_ :
        As in :class:`counterpoise.GroupDRONeuron`.
    group_weights_ : array of shape (K,)
        Averaged like the coefficients.
    risk_ : float
        The loss of the worst group.
    n_passes_ : int
        Passes over all rows, for standardisation and ``group_risks_``; drawn rows do not count.
    history_ : dict of arrays
        "risk", "worst" and "weights" on the rows drawn, as in
        :class:`ExponentiatedGradientNeuron`.

    References
    ----------
    Nemirovski, Juditsky, Lan and Shapiro (2009), "Robust stochastic approximation approach to
    stochastic programming", SIAM Journal on Optimization. Zhang, Zhao, Zhuang, Li and Yu (2023),
    "Stochastic approximation approaches to group distributionally robust optimization", NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 2)), np.repeat([0, 1, 2], 200)
    >>> y = X[:, 0] * (1.0 + groups)
    >>> model = StochasticMirrorNeuron("identity", max_iter=2000, random_state=0)
    >>> model.fit(X, y, groups=groups).coef_.round(0).tolist()
    [2.0, 0.0]
    """

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        step_size: float | str = "auto",
        learning_rate: float | str = "auto",
        batch_size: int = 1,
        radius: float | None = None,
        prior: Prior = None,
        start: str | Array = "random",
        fit_intercept: bool = True,
        max_iter: int = 10000,
        random_state: Any = None,
    ) -> None:
        self.activation = activation
        self.step_size = step_size
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.radius = radius
        self.prior = prior
        self.start = start
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.random_state = random_state

    def _check(self) -> None:
        check_number("step_size", self.step_size, auto=True)
        check_number("learning_rate", self.learning_rate, auto=True)
        check_count("batch_size", self.batch_size)
        check_start(self.start)

    def _find(self, X: Any, *others: Any) -> Outcome:
        require_memory(
            X, "StochasticMirrorNeuron draws single rows, so it", "Use "
            "ExponentiatedGradientNeuron(batch_size=None), or GroupDRONeuron(nu=0).",
        )  # fmt: skip
        solver = self._open(X, *others)
        engine, K = in_memory(solver), solver.engine.n_groups
        equal = np.full(K, 1.0 / K)
        coordinates = standardised(engine, equal, self.radius)
        scale = label_scale(engine, equal)
        rng = check_random_state(self.random_state)
        u = first_point(self.start, coordinates, engine.n_coef, SMALL * math.sqrt(scale), rng)
        step, rate = self.step_size, self.learning_rate
        if isinstance(step, str):
            step = math.sqrt(math.log(max(K, 2))) / scale
        if isinstance(rate, str):
            moment = largest_moment(engine, coordinates)
            rate = safe_rate(engine.loss.bend_bound, moment, coordinates.size, self.batch_size)
        groups = itertools.repeat(np.repeat(np.arange(K), self.batch_size))
        path = descent_ascent(
            drawn_rows(engine.data, engine.loss, coordinates, groups, rng), u, solver.prior,
            rate=rate, step=step, max_iter=self.max_iter, decay=True, simultaneous=True,
            project=coordinates.project,
        )  # fmt: skip
        return path.end(engine, coordinates, path.mean_u, path.mean_weights)
