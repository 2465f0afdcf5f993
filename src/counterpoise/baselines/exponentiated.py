"""ExponentiatedGradientNeuron: GroupDRO as it is commonly trained."""

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
    Prior,
    check_count,
    check_number,
    check_start,
    first_point,
    in_memory,
    require_memory,
    standardised,
)
from counterpoise.baselines._descent_ascent import all_rows, descent_ascent, drawn_rows, safe_rate
from counterpoise.dual.divergences import KL
from counterpoise.dual.objective import Objective
from counterpoise.solver.frame import label_scale, largest_moment
from counterpoise.solver.problem import Problem
from counterpoise.solver.solution import Outcome

Array = np.ndarray


class ExponentiatedGradientNeuron(Baseline):
    """A single neuron by GroupDRO: exponentiated gradient on the group weights.

    It aims at the worst group's loss, ``GroupDRONeuron(nu=0)``. Each iteration multiplies the
    weight of group ``g`` by ``exp(step_size * (loss_g + adjustment / sqrt(n_g)))``, normalises,
    and makes one step down the *true* gradient of the losses so weighted. It differs in what it
    lacks: step sizes are constants to be tuned (``step_size`` in units of one over the loss),
    true gradients can leave a ReLU dead, and nothing says when it is done, so it makes
    ``max_iter`` iterations and returns the last.

    Features are standardised inside (the mean only with an intercept), so that learning rates mean
    the same for all data; coefficients are those of the features as given.

    Parameters
    ----------
    activation : str or Activation, default="relu"
    step_size : float, default=0.01
        Of the weights.
    learning_rate : float or "auto", default="auto"
        Of the coefficients of standardised features. "auto" takes one over the largest curvature
        that any group's loss may have (more, if rows are drawn).
    adjustment : float >= 0, default=0.0
        The group adjustment ``C``: ``C / sqrt(n_g)`` is added to the loss of group ``g`` when
        weights are updated, ``n_g`` being its number of rows (their sample weights).
    batch_size : int, optional
        None looks at all rows in every iteration, wherever they are kept. A number draws as many
        rows, in memory: for each a group, all being equally likely, then a row of it. As in the
        published code a group that is absent from a batch has loss 0 (its adjustment still
        counts), so its weight falls by normalisation alone.
    prior : array of shape (K,), mapping group -> weight, or "rows", optional
        The weights to start from; equal when None.
    start : {"random", "zero"} or array, default="random"
        The first iterate, as in :class:`AverageNeuron`; "random" is small.
    fit_intercept : bool, default=True
    max_iter : int, default=1000
        Iterations made.
    random_state : int, RandomState or None
        For the start and the batches.

    Attributes
    ----------
    coef_, intercept_, activation_, groups_, group_weights_, group_risks_, n_iter_, n_passes_, \
status_ :
        As in :class:`counterpoise.GroupDRONeuron`.
    risk_ : float
        The loss of the worst group.
    history_ : dict of arrays
        "risk" (losses under the weights), "worst" and "weights" (T, K): losses before the step of
        each iteration and weights after, of the batch where there is one.

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
        equal = np.full(K, 1.0 / K)
        coordinates = standardised(engine, equal)
        rng = check_random_state(self.random_state)
        size = SMALL * math.sqrt(label_scale(engine, equal))
        u = first_point(self.start, coordinates, engine.n_coef, size, rng)
        rows = math.inf
        if self.batch_size is None:
            objective = Objective(KL(), 0.0, prior, solver.reference)
            look = all_rows(Problem(engine, coordinates, objective))
        else:
            rows = self.batch_size / K
            batches = (rng.randint(K, size=self.batch_size) for _ in itertools.count())
            look = drawn_rows(in_memory(solver).data, engine.activation, coordinates, batches, rng)
        rate = self.learning_rate
        if isinstance(rate, str):
            moment = largest_moment(engine, coordinates)
            rate = safe_rate(engine.activation.beta, moment, coordinates.size, rows)
        path = descent_ascent(
            look, u, prior, rate=rate, step=self.step_size, max_iter=self.max_iter,
            bonus=self.adjustment / np.sqrt(engine.census.totals),
        )  # fmt: skip
        return path.end(engine, coordinates, path.u, path.weights)
