"""GroupDRONeuronCV: the degree of robustness, chosen by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from counterpoise.activations import Activation
from counterpoise.assessment.diagnosis.diagnose import Diagnosis
from counterpoise.assessment.held_out import Choice, HeldOut
from counterpoise.assessment.intervals import check_level
from counterpoise.assessment.record import RiskComparison
from counterpoise.dual.divergences import Divergence, check_nu, check_prior
from counterpoise.estimators.base import Neuron
from counterpoise.estimators.frontier import Frontier
from counterpoise.estimators.neuron import GroupDRONeuron, plain_average
from counterpoise.estimators.search import Candidate, Search, given_splits, make_splits, sorted_rows
from counterpoise.rows.backends import backend_of
from counterpoise.rows.groups import label_list
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sample import RowSample
from counterpoise.solver.options import FitOptions, named_prior, per_group
from counterpoise.solver.solve import PATH
from counterpoise.storage.packing import check_storable

Array = np.ndarray

# Default values of nu, as multiples of the average fit's loss.
SHARES = (math.inf, *PATH)
# Options that the search sets for every fit.
CHOSEN = ("nu", "truncate", "reference", "prior")
# Fitted attributes that the input validation sets.
KEPT = ("n_features_in_", "feature_names_in_")


class GroupDRONeuronCV(Neuron):
    """A :class:`GroupDRONeuron` whose robustness is chosen by cross-validation.

    The search covers ``nu`` (a path from the plain average to the worst group, with warm starts),
    the truncation of labels, and the use of reference risks. The score is the held-out risk of
    the worst group, on folds stratified by group. A robust fit must beat the plain average over
    rows by one percent, and on at least four fifths of the folds. Otherwise the result is the
    plain average, and ``verdict_`` says so.

    Parameters
    ----------
    activation, divergence, radius, prior, fit_intercept, precondition, max_iter, tol :
        As in :class:`GroupDRONeuron`.
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
        groups, the score is a mean over these groups, not a worst group.
    repeats : int, default=1
        Number of times to draw the folds. More repeats stabilise the choice if groups are small.
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
        Whether a robust fit was chosen; False means the plain average over rows.
    verdict_ : str
        What was chosen and why, in words.
    intervals_ : RiskIntervals
        Held-out risk of every group, and of the worst, for the chosen candidate. These rows also
        chose it, so the risks are slightly optimistic. On the other hand, the fits used fewer
        rows than ``best_estimator_``.
    plain_intervals_ : RiskIntervals
        The same for the plain average over rows, for comparison.
    frontier_ : Frontier
        Average and worst-group risk of all candidates; prints as a table, and plots.
    cv_results_ : dict of arrays
        One entry per candidate: "family", "nu", "nu_share", "quantile", "reference",
        "worst_group_risk" (the score), "standard_error", "average_risk", "group_risks" (C, K),
        "fold_worst" (C, F).

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
        level: float = 0.95,
        radius: float | None = None,
        prior: Array | Mapping[Any, float] | str | None = None,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: Any = 0,
    ) -> None:
        self.activation = activation
        self.divergence = divergence
        self.nus = nus
        self.truncate = truncate
        self.reference = reference
        self.cv = cv
        self.repeats = repeats
        self.level = level
        self.radius = radius
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> GroupDRONeuronCV:
        """Choose by cross-validation, then fit to all rows.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, d), in memory
        y : array of shape (n,)
        groups : array of shape (n,), or memberships of shape (n, K), optional
            As in :class:`GroupDRONeuron`. If groups overlap, folds are stratified by the set of
            groups that rows belong to.
        sample_weight : array of shape (n,), optional
        """
        if not backend_of(X).is_memory:
            raise ValueError(
                f"GroupDRONeuronCV needs rows in memory; got {type(X).__name__}. Choose on a "
                "sample of the rows, then fit GroupDRONeuron with best_params_ to all of them."
            )
        self._check_flags("fit_intercept")
        check_level(self.level)
        candidates = self._candidates()
        X, y, sample_weight = self._checked(X, y, sample_weight)
        search = self._search(candidates, X, y, groups, sample_weight)
        heldout = search.run()
        choice = heldout.choose()
        chosen = search.candidates[choice.chosen]
        params = search.parameters(chosen)
        params["prior"] = "rows" if chosen.pooled else self.prior
        self.best_params_ = params
        self.best_estimator_ = GroupDRONeuron(**self._options(), **params)
        self.best_estimator_.fit(X, y, groups=groups, sample_weight=sample_weight)
        if hasattr(self, "feature_names_in_"):
            self.best_estimator_.feature_names_in_ = self.feature_names_in_
        self._adopt(self.best_estimator_)
        self.robust_ = not chosen.pooled
        self.intervals_ = search.intervals(choice.chosen, self.level)
        self.plain_intervals_ = search.intervals(0, self.level)
        self.cv_results_ = _results(search.candidates, heldout, search.unit)
        self.frontier_ = Frontier.of(self.cv_results_, choice.chosen)
        self.verdict_ = " ".join(_sentences(self.cv_results_, choice, search.groups))
        return self

    @property
    def diagnose_(self) -> Diagnosis:
        """The diagnosis of the chosen fit; see :func:`diagnose`."""
        check_is_fitted(self)
        return self.best_estimator_.diagnose_

    def diagnosis(self, feature_names: Sequence[str] | None = None) -> Diagnosis | None:
        """Diagnose the chosen fit; None for a stored model."""
        return self.best_estimator_.diagnosis(feature_names)

    def kept_sample(self) -> RowSample | None:
        """Return the sample of rows that the chosen fit keeps; None for a stored model."""
        return self.best_estimator_.kept_sample()

    def plain_twin(self) -> GroupDRONeuron:
        """Return the same neuron, unfitted, for the plain average over rows."""
        return plain_average(self)

    def held_out_comparison(self) -> RiskComparison:
        """Compare risks on the rows that the cross-validation held out."""
        check_is_fitted(self)
        average = self.cv_results_["average_risk"]
        return RiskComparison(
            how="rows held out by its cross-validation, which favors it slightly",
            held_out=True,
            plain=self.plain_intervals_,
            ours=self.intervals_,
            plain_average=float(average[0]),
            ours_average=float(average[self.frontier_.chosen]),
        )

    def chosen_estimator(self) -> GroupDRONeuron:
        """Return the chosen :class:`GroupDRONeuron`, unfitted, to fit to other rows."""
        return GroupDRONeuron(**{**self._options(), **self.best_params_})

    def _search(
        self, candidates: list[Candidate], X: Any, y: Array, groups: Any, weights: Array | None
    ) -> Search:
        data, own = sorted_rows(X, y, groups, weights, intercept=bool(self.fit_intercept))
        check_storable(own.labels)
        prior = self.prior
        if isinstance(prior, str):
            prior = named_prior(prior, own.sums(data.weights_of(0, len(data.y))))
        prior_K = check_prior(per_group(prior, own.labels, "prior"), own.n_groups)
        repeats = 1
        if isinstance(self.cv, Integral) and not isinstance(self.cv, bool):
            splits = make_splits(own, int(self.cv), self.repeats, self.random_state)
            repeats = int(self.repeats)
        else:
            if self.repeats != 1:
                raise ValueError(
                    f"repeats={self.repeats!r} needs a number of folds, but cv={self.cv!r} gives "
                    "the splits; leave repeats at 1"
                )
            splits = given_splits(self.cv, X, y, groups, weights)
        options = FitOptions(**self._options())
        search = Search(data, own, candidates, splits, prior_K, options, repeats)
        if not search.knows_floors():  # every group is too small for a noise floor
            plain = dict.fromkeys(replace(candidate, reference=False) for candidate in candidates)
            search.candidates = list(plain)
        return search

    def _adopt(self, fitted: GroupDRONeuron) -> None:
        """Copy the fitted attributes of the chosen estimator."""
        for name, value in vars(fitted).items():
            if name.endswith("_") and name not in KEPT:
                setattr(self, name, value)

    def _options(self) -> dict[str, Any]:
        """Return the options that all fits share: those of `GroupDRONeuron` not searched over."""
        known = GroupDRONeuron().get_params(deep=False)
        mine = self.get_params(deep=False)
        return {name: mine[name] for name in mine if name in known and name not in CHOSEN}

    def _candidates(self) -> list[Candidate]:
        """List the candidates; the plain average over rows comes first."""
        relative = self.nus is None
        if self.nus is not None and (isinstance(self.nus, (str, Real)) or np.ndim(self.nus) != 1):
            raise ValueError(f"nus must be a list of numbers >= 0, or None; got {self.nus!r}")
        nus = SHARES if self.nus is None else tuple(check_nu(nu) for nu in self.nus)
        if not nus:
            raise ValueError("nus is empty; give at least one value, or None for a default path")
        quantiles, references = _distinct(self.truncate), _distinct(self.reference)
        for q in quantiles:
            number = isinstance(q, Real) and not isinstance(q, (bool, np.bool_))
            if q is not None and not (number and 0 < q < 1):
                raise ValueError(
                    f"truncate must list quantiles between 0 and 1, or None; got {q!r}. A level in "
                    "units of the labels belongs to GroupDRONeuron(truncate=...)"
                )
        for flag in references:
            if not isinstance(flag, (bool, np.bool_)):
                raise ValueError(f"reference must list True or False; got {flag!r}")
        out = [Candidate(math.inf, pooled=True)]
        for quantile in quantiles:
            for reference in references:
                out += [
                    Candidate(nu, relative, quantile=quantile, reference=bool(reference))
                    for nu in sorted(set(nus), reverse=True)
                    # With nu = inf, reference risks only add a constant.
                    if not (reference and nu == math.inf and False in references)
                ]
        return out


def _distinct(values: Any) -> list[Any]:
    """Return the values without repetitions; a single value becomes a list of one."""
    if values is None or isinstance(values, (bool, np.bool_, Real, str)):
        values = [values]
    try:
        out = list(dict.fromkeys(values))
    except TypeError:
        raise ValueError(f"truncate and reference must be flat lists; got {values!r}") from None
    if not out:
        raise ValueError("truncate and reference must list at least one choice each")
    return out


def _results(candidates: Sequence[Candidate], heldout: HeldOut, unit: float) -> dict[str, Any]:
    nus = np.array([candidate.strength(unit) for candidate in candidates])
    return dict(
        family=[candidate.family for candidate in candidates],
        nu=nus,
        nu_share=nus / unit if unit > 0 else np.full(len(nus), np.nan),
        quantile=[candidate.quantile for candidate in candidates],
        reference=[candidate.reference for candidate in candidates],
        worst_group_risk=heldout.scores,
        standard_error=heldout.errors,
        average_risk=heldout.average,
        group_risks=heldout.group_risks,
        fold_worst=heldout.fold_worst.T,
    )


def _sentences(results: dict[str, Any], choice: Choice, groups: RowGroups) -> list[str]:
    """Say what was chosen and why."""
    worst, error, average = (
        results[name] for name in ("worst_group_risk", "standard_error", "average_risk")
    )
    chosen, best = choice.chosen, choice.best
    gain = 1.0 - worst[choice.spoken] / worst[0]

    def name(i: int) -> str:
        family = results["family"][i]
        return f"nu = {results['nu'][i]:.3g}" + ("" if family == "plain" else f" ({family})")

    out = []
    if chosen != 0:
        out.append(
            f"Chose {name(chosen)}: the held-out risk of the worst group is "
            f"{worst[chosen]:.4g} +- {error[chosen]:.2g}, compared with {worst[0]:.4g} for the "
            f"plain average ({gain:.0%} lower, and lower on {choice.wins} of {choice.n_folds} "
            f"folds). The average risk is {average[chosen]:.4g}, compared with {average[0]:.4g}."
        )
    elif best == 0:
        out.append(
            "Chose the plain average over rows: no robust fit has a lower held-out risk on the "
            f"worst group than its {worst[0]:.4g} +- {error[0]:.2g}."
        )
    else:
        out.append(
            "Chose the plain average over rows: the best robust fit, "
            f"{name(best)}, has a held-out worst-group risk of {worst[best]:.4g}, compared with "
            f"{worst[0]:.4g} ({gain:.1%} lower, and lower on {choice.wins} of {choice.n_folds} "
            "folds). This gain is too small or too inconsistent to rule out chance."
        )
    if choice.striking:
        out.append(
            f"On {choice.striking} of {choice.n_folds} folds, the risk of the worst group is far "
            "higher than on the others: a few rows dominate it. Check these rows before trusting "
            "any fit."
        )
    single = [label_list(groups.labels)[k] for k in np.flatnonzero(groups.sizes == 1)]
    if single:
        out.append(f"Groups with one row cannot be judged: {', '.join(map(str, single[:5]))}.")
    return out


def frontier(
    X: Any, y: Any, groups: Any = None, sample_weight: Any = None, *, activation: Any = "relu",
    **options: Any,
) -> Frontier:  # fmt: skip
    """Compute held-out average and worst-group risks along ``nu``, and the chosen point.

    This fits a :class:`GroupDRONeuronCV` and returns its ``frontier_``.

    Parameters
    ----------
    X, y, groups, sample_weight, activation, **options :
        As in :class:`GroupDRONeuronCV`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(300, 2)), np.repeat([0, 1, 2], 100)
    >>> y = X[:, 0] * (1 + groups)
    >>> found = frontier(X, y, groups, activation="identity", truncate=None, reference=False)
    >>> bool(found.worst[found.chosen] <= found.worst[0])
    True
    """
    return (
        GroupDRONeuronCV(activation, **options)
        .fit(X, y, groups=groups, sample_weight=sample_weight)
        .frontier_
    )
