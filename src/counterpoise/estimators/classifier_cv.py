"""GroupDROClassifierCV: robustness and ridge of a classifier, chosen by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if

from counterpoise.assessment.measures import Measure, classifier_measure
from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.asked import checked_flags, checked_nus, distinct
from counterpoise.estimators.chosen import Chosen
from counterpoise.estimators.classes import has_probabilities, row_loss
from counterpoise.estimators.classifier import GroupDROClassifier
from counterpoise.estimators.designs import Candidate
from counterpoise.estimators.linear import TINY
from counterpoise.losses import Loss
from counterpoise.rows.classes import class_numbers
from counterpoise.solver.options import FitOptions

Array = np.ndarray


class GroupDROClassifierCV(Chosen, GroupDROClassifier):
    """A :class:`GroupDROClassifier` whose robustness is chosen by cross-validation.

    The search covers ``nu`` (a path from the plain average to the worst group, with warm starts),
    the use of reference risks and, if several are given, the ridge ``alpha``. The score is a
    held-out measure of the worst group, on folds stratified by group and class. A robust fit
    must beat the plain average over rows (logistic regression) on the worst group by one percent,
    and in 95 % of resamples of the held-out rows. Among those that are as good for the worst group
    as the best, within one standard error of the difference, the one with the lowest average is
    chosen. If none pays, the result is the plain average, and ``verdict_`` says so.

    Parameters
    ----------
    loss, divergence, radius, prior, fit_intercept, precondition, max_iter, tol :
        As in :class:`GroupDROClassifier`.
    scoring : {"loss", "log_loss", "error", "balanced_error"}, default="loss"
        What is measured on the held-out rows of every group. "loss" is what the fit minimises: log
        loss for ``loss="log"``. "error" is the share of misclassified rows. "balanced_error" is the
        mean, over the classes that a group has, of the error among its rows of the class. Errors
        are coarser than losses and need larger groups to choose by.
    nus : sequence of floats, optional
        Values of ``nu`` to try, in units of the loss. None tries multiples of the average fit's
        loss, from infinity through 10, 3, 1, ... to 0.
    alphas : sequence of floats, default=(1e-8,)
        Strengths of the ridge to try. With several, the plain average that a robust fit must beat
        is the one with the lowest held-out average.
    reference : sequence of bool, default=(False, True)
        Whether to subtract from each group's loss the loss of a classifier fitted to that group
        alone.
    cv : int, scikit-learn splitter or list of (train, test) index arrays, default=5
        Number of folds, stratified by group and class, or the splits themselves. Rows that are not
        in memory need a number, and their folds are not stratified.
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
        have over the plain average: 0.1 allows 10 %. Errors are in units
        of ``scoring``. None sets no limit.
    level : float, default=0.95
        Confidence level of ``intervals_``.
    random_state : int, RandomState or None, default=0
        Seed for the assignment of rows to folds.

    Attributes
    ----------
    best_estimator_ : GroupDROClassifier
        The chosen fit, on all rows. ``classes_``, ``coef_``, ``intercept_``, ``groups_``,
        ``group_weights_``, ``group_risks_``, ``risk_``, ``nu_``, ``n_iter_``, ``status_`` and
        ``certificate_`` are copied from it.
    best_params_ : dict
        "nu", "alpha", "prior" and "reference" (by group) of the chosen fit.
    robust_ : bool
        Whether a robust fit was chosen; False means the plain average over rows, or one that uses
        the group (``uses_group_``).
    verdict_ : str
        What was chosen and why, in words.
    intervals_, plain_intervals_ : RiskIntervals
        Held-out measure of every group and of the worst, for the choice and for the plain average
        over rows; Wilson intervals for errors. The rows of a fold are predicted by the candidate
        that the other folds choose, so that no row judges its own choice.
    uses_group_ : str
        How the chosen fit uses a known group; empty if it does not.
    group_coef_, group_intercept_ : arrays of shape (K + 1, S, d) and (K + 1, S)
        If the chosen fit uses the group: the coefficients of every group and, last, their mean
        over rows, for rows of no known group (``None``). ``coef_`` and ``intercept_`` are that
        mean. S is the number of scores of a row: 1, or the number of classes.
    frontier_ : Frontier
        Average and worst-group measure of all candidates; prints as a table, and plots.
    cv_results_ : dict of arrays
        One entry per candidate: "family", "nu", "nu_share", "alpha", "reference",
        "worst_group_risk", "standard_error", "beats_average" (share of resamples), "average_risk",
        "group_risks" (C, K), "fold_worst" (C, F). Risks are in units of ``scoring``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(1200, 2)), np.repeat(["a", "b"], [1000, 200])
    >>> score = np.where(groups == "a", X[:, 0], X[:, 1])
    >>> y = np.where(3 * score + rng.logistic(size=1200) > 0, "yes", "no")
    >>> model = GroupDROClassifierCV().fit(X, y, groups=groups)
    >>> model.robust_
    True
    """

    SINGLE: ClassVar[Any] = GroupDROClassifier
    SEARCHED: ClassVar[tuple[str, ...]] = ("nu", "alpha", "reference", "prior")

    reference: Any

    def __init__(
        self,
        loss: str | Loss = "log",
        *,
        scoring: str = "loss",
        divergence: str | Divergence = "kl",
        nus: Sequence[float] | None = None,
        alphas: Sequence[float] = (TINY,),
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
        random_state: Any = 0,
    ) -> None:
        self.loss = loss
        self.scoring = scoring
        self.divergence = divergence
        self.nus = nus
        self.alphas = alphas
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
        self.random_state = random_state

    def predict(self, X: Any, groups: Any = None) -> Any:
        """Predict classes.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, d)
        groups : array of shape (n,), optional
            The group of every row, for a fit that uses it (``uses_group_``); others ignore it. Rows
            of None get the mean coefficients.
        """
        return self._output(X, "predict", groups)

    def decision_function(self, X: Any, groups: Any = None) -> Any:
        """Return linear scores: one per row for two classes, else one per row and class."""
        return self._output(X, "scores", groups)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, groups: Any = None) -> Any:
        """Return the probability of every class: (n, n_classes), for the log loss."""
        return self._output(X, "probabilities", groups)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, groups: Any = None) -> Any:
        """Return the logarithm of the probability of every class."""
        return self._output(X, "log_probabilities", groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return the accuracy: the share of rows whose class is predicted."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def plain_twin(self) -> GroupDROClassifier:
        """Return the same classifier, unfitted, for the plain average over rows."""
        alpha = distinct(self.alphas, "alphas")[0]
        if hasattr(self, "frontier_"):
            alpha = float(self.cv_results_["alpha"][self.frontier_.plain])
        shared = {**self._options(), "alpha": alpha}
        shared.pop("divergence")
        return GroupDROClassifier(**shared, nu=math.inf, prior="rows")

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        X, codes, self.classes_, sample_weight = self._classes(X, y, sample_weight)
        return X, self.classes_[codes.astype(np.intp)], sample_weight

    def _far_rows(self, X: Any, y: Any, weights: Any) -> tuple[Any, Any, Any, Array | None]:
        X, y, self.classes_, weights = self._classes(X, y, weights)
        return X, y, weights, self.classes_

    def _numbers(self, y: Array) -> tuple[Array, Array | None]:
        numbers = class_numbers(y, self.classes_)
        return numbers, numbers

    def _fit_options(self) -> FitOptions:
        options = {**self._options(), "loss": row_loss(self.loss, len(self.classes_))}
        return FitOptions(**options, ridge=float(distinct(self.alphas, "alphas")[0]))

    def _measure(self, y: Array, weights: Array | None) -> Measure:
        return classifier_measure(self.scoring, row_loss(self.loss, len(self.classes_)))

    def _candidates(self) -> list[Candidate]:
        """List the candidates; the plain averages over rows come first."""
        nus, references = checked_nus(self.nus), checked_flags("reference", self.reference)
        alphas = distinct(self.alphas, "alphas")
        for alpha in alphas:
            number = isinstance(alpha, Real) and not isinstance(alpha, (bool, np.bool_))
            if not (number and 0 <= alpha < math.inf):
                raise ValueError(f"alphas must list finite numbers >= 0; got {alpha!r}")
        first = Candidate(math.inf, pooled=True, shows_alpha=len(alphas) > 1)
        out = [replace(first, alpha=float(alpha)) for alpha in alphas]
        robust = replace(first, pooled=False, relative=self.nus is None)
        for alpha in alphas:
            for reference in references:
                out += [
                    replace(robust, nu=nu, reference=reference, alpha=float(alpha))
                    for nu in nus
                    # With nu = inf, reference risks only add a constant.
                    if not (reference and nu == math.inf and False in references)
                ]
        return out
