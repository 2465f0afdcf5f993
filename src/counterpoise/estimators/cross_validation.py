"""GroupDRONeuronCV: the degree of robustness, chosen by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from counterpoise.activations import Activation, get_activation
from counterpoise.assessment.measures import Measure
from counterpoise.assessment.metrics import worst_group_risk
from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.asked import checked_flags, checked_nus, distinct
from counterpoise.estimators.base import Neuron
from counterpoise.estimators.chosen import Chosen
from counterpoise.estimators.classifier_cv import GroupDROClassifierCV
from counterpoise.estimators.designs import Candidate
from counterpoise.estimators.frontier import Frontier
from counterpoise.estimators.neuron import GroupDRONeuron, plain_average
from counterpoise.losses import NeuronLoss
from counterpoise.solver.certificate import Region, RegionProof

Array = np.ndarray


class GroupDRONeuronCV(Chosen, Neuron):
    """A :class:`GroupDRONeuron` whose robustness is chosen by cross-validation.

    The search covers ``nu`` (a path from the plain average to the worst group, with warm starts),
    the truncation of labels, and the use of reference risks. The score is the held-out risk of
    the worst group, on folds stratified by group. A robust fit must
    beat the plain average over rows on the worst group by one percent, and in 95 % of resamples of
    the held-out rows. Among those that are as good for the worst group as the best, within one
    standard error of the difference, the one with the lowest average is chosen. If none pays, the
    result is the plain average, and ``verdict_`` says so.

    Parameters
    ----------
    activation, divergence, radius, prior, fit_intercept, precondition, max_iter, tol, certificate :
        As in :class:`GroupDRONeuron`. Only the chosen fit is certified.
    nus : sequence of floats, optional
        Values of ``nu`` to try, in units of the loss. None tries multiples of the average fit's
        loss, from infinity through 10, 3, 1, ... to 0.
    truncate : sequence of quantiles or None, default=(None, 0.99)
        Levels at which to clip labels before a fit, as quantiles of ``|y|``; None for no
        clipping. Held-out risks always use the original labels.
    reference : sequence of bool, default=(False, True)
        Whether to subtract from each group's risk the risk of a neuron fitted to that group alone.
    cv : int, scikit-learn splitter or list of (train, test) index arrays, default=5
        Number of folds, stratified by group, or the splits themselves. If splits hold out whole
        groups, the score is a mean over these groups, not a worst group. Rows that are not in
        memory need a number, and their folds are not stratified.
    repeats : int, default=1
        Number of times to draw the folds. More repeats stabilise the choice if groups are small.
    group_known : bool, default=False
        Whether the group of a row is known when predictions are made, and may be used. If True,
        the search also tries the plain average and robust fits with the group as a feature, one
        fit per group (for groups with five rows per coefficient), and partial pooling between the
        two; ``predict`` then needs ``groups`` if such a fit was chosen. The default is False: the
        group may be unknown, forbidden, or part of the label.
    max_cost, max_group_cost : float, optional
        Largest relative rise of the held-out error over all rows, and of any group, that a fit may
        have over the plain average: 0.1 allows 10 %. Errors are root mean
        squared ones. None sets no limit.
    level : float, default=0.95
        Confidence level of ``intervals_``.
    random_state : int, RandomState or None, default=0
        Seed for the assignment of rows to folds.

    Attributes
    ----------
    best_estimator_ : GroupDRONeuron
        The chosen fit, on all rows. ``coef_``, ``intercept_``, ``groups_``, ``group_weights_``,
        ``group_risks_``, ``risk_``, ``nu_``, ``n_iter_``, ``status_``, ``certificate_`` and
        ``diagnose_`` are copied from it.
    best_params_ : dict
        "nu", "prior", "truncate" and "reference" (by group) of the chosen fit. Options of this
        estimator, such as ``activation``, are not included.
    robust_ : bool
        Whether a robust fit was chosen; False means the plain average over rows, or one that uses
        the group (``uses_group_``).
    verdict_ : str
        What was chosen and why, in words.
    intervals_ : RiskIntervals
        Held-out risk of every group, and of the worst. The rows of a fold are predicted by the
        candidate that the other folds choose, so that no row judges its own choice.
    plain_intervals_ : RiskIntervals
        The same for the plain average over rows, for comparison.
    uses_group_ : str
        How the chosen fit uses a known group; empty if it does not.
    group_coef_, group_intercept_ : arrays of shape (K + 1, S, d) and (K + 1, S)
        If the chosen fit uses the group: the coefficients of every group and, last, their mean
        over rows, for rows of no known group (``None``). ``coef_`` and ``intercept_`` are that
        mean. S is the number of scores of a row: 1, or the number of classes.
    frontier_ : Frontier
        Average and worst-group risk of all candidates; prints as a table, and plots.
    cv_results_ : dict of arrays
        One entry per candidate: "family", "nu", "nu_share", "quantile", "reference",
        "worst_group_risk", "standard_error", "beats_average" (share of resamples), "average_risk",
        "group_risks" (C, K), "fold_worst" (C, F).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 3)), np.repeat(["a", "b", "c"], [400, 100, 100])
    >>> slope = {"a": 1.0, "b": 1.2, "c": 2.0}
    >>> y = X[:, 0] * [slope[g] for g in groups] + 0.1 * rng.normal(size=600)
    >>> model = GroupDRONeuronCV("identity").fit(X, y, groups=groups)
    >>> model.robust_
    True
    """

    SINGLE: ClassVar[Any] = GroupDRONeuron
    SEARCHED: ClassVar[tuple[str, ...]] = ("nu", "truncate", "reference", "prior")

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        divergence: str | Divergence = "kl",
        nus: Sequence[float] | None = None,
        truncate: Sequence[float | None] = (None, 0.99),
        reference: Sequence[bool] = (False, True),
        cv: Any = 5,
        repeats: int = 1,
        group_known: bool = False,
        max_cost: float | None = None,
        max_group_cost: float | None = None,
        level: float = 0.95,
        radius: float | None = None,
        prior: Array | Mapping[Any, float] | str | None = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        certificate: str = "run",
        random_state: Any = 0,
    ) -> None:
        self.activation = activation
        self.divergence = divergence
        self.nus = nus
        self.truncate = truncate
        self.reference = reference
        self.cv = cv
        self.repeats = repeats
        self.group_known = group_known
        self.max_cost = max_cost
        self.max_group_cost = max_group_cost
        self.level = level
        self.radius = radius
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
        self.certificate = certificate
        self.random_state = random_state

    def predict(self, X: Any, groups: Any = None) -> Any:
        """Predict rows; see :meth:`GroupDRONeuron.predict`.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, d)
        groups : array of shape (n,), optional
            The group of every row, for a fit that uses it (``uses_group_``); others ignore it. Rows
            of None get the mean coefficients.
        """
        return self._output(X, "predict", groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return the coefficient of determination of the predictions."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def worst_group_risk(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> float:
        """Return the mean squared error of the worst group among the given rows."""
        predicted = self.predict(X, groups)
        return worst_group_risk(y, predicted, groups=groups, sample_weight=sample_weight)

    def certify(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        radii: Sequence[float] | None = None,
    ) -> tuple[Region, ...]:
        """Prove how much better other coefficients near the chosen fit can be, on these rows.

        See :meth:`GroupDRONeuron.certify`.
        """
        check_is_fitted(self)
        X = self.beside_group(X, groups)
        found = self.best_estimator_.certify(X, y, groups, sample_weight, radii=radii)
        self.certificate_ = self.best_estimator_.certificate_
        return found

    def region_proof(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        radii: Sequence[float] | None = None,
    ) -> RegionProof:
        """Return what :meth:`certify` proves, and leave the certificate as it is."""
        check_is_fitted(self)
        chosen: GroupDRONeuron = self.best_estimator_
        X = self.beside_group(X, groups)
        return chosen.region_proof(X, y, groups, sample_weight, radii=radii)

    def plain_twin(self) -> GroupDRONeuron:
        """Return the same neuron, unfitted, for the plain average over rows."""
        return plain_average(self)

    def _measure(self, y: Array, weights: Array | None) -> Measure:
        # Held-out risks below a tiny share of the labels' mean square count as rounding.
        unit = float(np.average(y**2, weights=weights))
        return Measure(NeuronLoss(get_activation(self.activation)), unit=unit, rooted=True)

    def _candidates(self) -> list[Candidate]:
        """List the candidates; the plain average over rows comes first."""
        nus, quantiles = checked_nus(self.nus), distinct(self.truncate, "truncate")
        references = checked_flags("reference", self.reference)
        for q in quantiles:
            number = isinstance(q, Real) and not isinstance(q, (bool, np.bool_))
            if q is not None and not (number and 0 < q < 1):
                raise ValueError(
                    f"truncate must list quantiles between 0 and 1, or None; got {q!r}. A level in "
                    "units of the labels belongs to GroupDRONeuron(truncate=...)"
                )
        out = [Candidate(math.inf, pooled=True)]
        for quantile in quantiles:
            for reference in references:
                out += [
                    Candidate(nu, self.nus is None, quantile=quantile, reference=reference)
                    for nu in nus
                    # With nu = inf, reference risks only add a constant.
                    if not (reference and nu == math.inf and False in references)
                ]
        return out


def frontier(
    X: Any, y: Any, groups: Any = None, sample_weight: Any = None, *, activation: Any = "relu",
    loss: Any = None, **options: Any,
) -> Frontier:  # fmt: skip
    """Compute held-out average and worst-group risks along ``nu``, and the chosen point.

    This fits a :class:`GroupDRONeuronCV` or, if ``loss`` is given, a
    :class:`GroupDROClassifierCV`, and returns its ``frontier_``.

    Parameters
    ----------
    X, y, groups, sample_weight, activation, **options :
        As in :class:`GroupDRONeuronCV`.
    loss : {"log", "squared_hinge"}, optional
        The loss of a classifier; ``options`` are then those of :class:`GroupDROClassifierCV`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(300, 2)), np.repeat([0, 1, 2], 100)
    >>> y = X[:, 0] * (1 + groups)
    >>> found = frontier(X, y, groups, activation="identity", truncate=None, reference=False)
    >>> bool(found.worst[found.chosen] <= found.worst[0])
    True
    >>> frontier(X, y > 0.5, groups, loss="log", nus=[0.1]).measure
    'log loss'
    """
    model: Chosen = (
        GroupDRONeuronCV(activation, **options)
        if loss is None
        else GroupDROClassifierCV(loss, **options)
    )
    found: Frontier = model.fit(X, y, groups=groups, sample_weight=sample_weight).frontier_
    return found
