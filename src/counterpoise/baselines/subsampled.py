"""SubsampledClassifier: as many rows of every group as the smallest has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.baselines._base import (
    ClassifierBaseline,
    check_count,
    in_memory,
    outcome,
    require_memory,
)
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.solution import Outcome, Solution
from counterpoise.solver.solve import solve

Array = np.ndarray


class SubsampledClassifier(ClassifierBaseline):
    """Logistic regression on as many rows of every group as the smallest group has.

    Rows are drawn without replacement; the others are not used. With several draws, the
    coefficients are averaged. On a single group this is logistic regression. Groups with very few
    rows leave little to fit; :class:`AverageClassifier` with ``prior=None`` balances groups without
    dropping rows.

    Parameters
    ----------
    loss : {"log", "squared_hinge"} or Loss, default="log"
    n_draws : int, default=1
        Number of subsamples.
    alpha, radius, fit_intercept, precondition, max_iter, tol :
        As in :class:`counterpoise.GroupDROClassifier`.
    random_state : int, RandomState or None
        Seed for the draws.

    Attributes
    ----------
    classes_, coef_, intercept_, loss_, groups_, n_iter_, n_passes_, status_ :
        As in :class:`counterpoise.GroupDROClassifier`; iterations and passes over subsamples are
        summed over draws.
    group_risks_ : array of shape (K,)
        Mean loss of every group, over all its rows.
    group_weights_ : array of shape (K,)
        Equal.
    risk_ : float
        The average loss on the subsample plus the ridge, averaged over draws.
    n_drawn_ : int
        Rows drawn from every group.

    References
    ----------
    Idrissi, Arjovsky, Pezeshki and Lopez-Paz (2022), "Simple data balancing achieves competitive
    worst-group-accuracy", CLeaR. For last layers, with several draws: Kirichenko, Izmailov and
    Wilson (2023), "Last layer re-training is sufficient for robustness to spurious correlations",
    ICLR.

    Examples
    --------
    >>> import numpy as np
    >>> X, groups = np.zeros((8, 1)), np.repeat(["large", "small"], [6, 2])
    >>> y = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    >>> model = SubsampledClassifier(random_state=0).fit(X, y, groups=groups)
    >>> model.n_drawn_, model.predict_proba(X)[0].round(3).tolist()
    (2, [0.5, 0.5])
    """

    n_drawn_: int

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        n_draws: int = 1,
        alpha: float = TINY,
        radius: float | None = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.n_draws = n_draws
        self.alpha = alpha
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _check(self) -> None:
        check_count("n_draws", self.n_draws)

    def _find(self, X: Any, *others: Any) -> Outcome:
        require_memory(
            X, "SubsampledClassifier draws single rows, so it", "Use AverageClassifier(prior=None)."
        )
        engine = in_memory(self._open(X, *others))
        rng = check_random_state(self.random_state)
        fits = [self._draw(engine.data, engine.census.labels, rng) for _ in range(self.n_draws)]
        coef = np.mean([np.atleast_2d(fit.coef) for fit in fits], axis=0)
        if engine.census.intercept:
            intercept = np.mean([np.atleast_1d(fit.intercept) for fit in fits], axis=0)
            coef = np.column_stack([coef, intercept])
        losses = engine.evaluate(coef.reshape(-1), surrogate=False).loss_K
        engine.counter.count += sum(fit.n_passes for fit in fits)
        worst = next((fit for fit in fits if not fit.converged), fits[0])
        return outcome(
            engine,
            coef.reshape(-1),
            losses=losses,
            weights=np.full(engine.n_groups, 1.0 / engine.n_groups),
            risk=float(np.mean([fit.risk for fit in fits])),
            n_iter=sum(fit.n_iter for fit in fits),
            converged=worst.converged,
            status=worst.status,
            history={"risk": np.array([fit.risk for fit in fits])},
        )

    def _draw(self, data: GroupedData, labels: Array, rng: Any) -> Solution:
        """Fit a subsample of rows that are sorted by group."""
        weights = data.weights_of(0, len(data.y))
        groups = [
            start + np.flatnonzero(weights[start:end] > 0)
            for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True)
        ]
        sizes = [len(rows) for rows in groups]
        self.n_drawn_ = count = min(sizes)
        if len(groups) > 1:
            groups = [np.sort(rng.permutation(rows)[:count]) for rows in groups]
        rows = np.concatenate(groups)
        if len(np.unique(data.y[rows])) < len(self.classes_):
            raise ValueError(
                f"groups={labels.tolist()[int(np.argmin(sizes))]!r} has {count} rows, and as many "
                "rows of every group do not hold every class; merge small groups, cross groups "
                "with y, or use AverageClassifier(prior=None)"
            )
        return solve(
            data.X[rows], data.y[rows], np.repeat(np.arange(len(groups)), [len(g) for g in groups]),
            weights[rows], nu=math.inf, options=self._options(prior=None), check_input=False,
        )  # fmt: skip
