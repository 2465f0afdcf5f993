"""What every cross-validated estimator shares: the search, the choice, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from counterpoise.assessment.held_out import Choice, HeldOut
from counterpoise.assessment.intervals import RiskIntervals, check_level
from counterpoise.assessment.measures import Measure
from counterpoise.assessment.record import RiskComparison
from counterpoise.dual.divergences import check_nu, check_prior
from counterpoise.estimators.frontier import Frontier
from counterpoise.estimators.search import Candidate, Search, given_splits, make_splits, sorted_rows
from counterpoise.rows.backends import backend_of
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sample import RowSample
from counterpoise.solver.options import FitOptions, named_prior, per_group
from counterpoise.solver.solve import PATH
from counterpoise.storage.packing import check_storable

Array = np.ndarray

# Default values of nu, as multiples of the average fit's loss.
SHARES = (math.inf, *PATH)
# Fitted attributes that the input validation sets.
KEPT = ("n_features_in_", "feature_names_in_")


class Chosen:
    """Mixin of estimators that choose the options of a ``single`` estimator by cross-validation.

    Subclasses list the candidates, say how rows are judged, and check their own options.
    """

    # The class of the estimator whose options are chosen, and the options that the search sets.
    SINGLE: ClassVar[Any]
    SEARCHED: ClassVar[tuple[str, ...]]

    prior: Any
    cv: Any
    repeats: int
    level: float
    random_state: Any
    fit_intercept: bool
    best_estimator_: Any
    best_params_: dict[str, Any]
    intervals_: RiskIntervals
    plain_intervals_: RiskIntervals
    cv_results_: dict[str, Any]
    frontier_: Frontier
    robust_: bool
    verdict_: str
    get_params: Any
    _check_flags: Any
    _checked: Any

    # -- for subclasses --------------------------------------------------------------------

    def _candidates(self) -> list[Candidate]:
        """List the candidates."""
        raise NotImplementedError(type(self).__name__)

    def _numbers(self, y: Array) -> tuple[Array, Array | None]:
        """Return labels as numbers, and the numbers of the rows' classes, if they have any."""
        return y, None

    def _measure(self, y: Array, weights: Array | None) -> Measure:
        """Return how rows are judged; ``y`` are numbers."""
        raise NotImplementedError(type(self).__name__)

    def _fit_options(self) -> FitOptions:
        """Return the options that all fits of the search share; none of them is certified."""
        options = {name: own for name, own in self._options().items() if name != "certificate"}
        return FitOptions(**options)

    # -- the fit ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
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
                f"{type(self).__name__} needs rows in memory; got {type(X).__name__}. Choose on a "
                f"sample of the rows, then fit {self.SINGLE.__name__} with best_params_ to all of "
                "them."
            )
        self._check_flags("fit_intercept")
        check_level(self.level)
        candidates = self._candidates()
        X, y, sample_weight = self._checked(X, y, sample_weight)
        search = self._search(candidates, X, y, groups, sample_weight)
        heldout = search.run()
        plain = search.plain(heldout)
        choice = heldout.choose(plain, search.pooled)
        chosen = search.candidates[choice.chosen]
        params = search.parameters(chosen)
        params["prior"] = "rows" if chosen.pooled else self.prior
        self.best_params_ = params
        self.best_estimator_ = self.SINGLE(**self._options(), **params)
        self.best_estimator_.fit(X, y, groups=groups, sample_weight=sample_weight)
        if hasattr(self, "feature_names_in_"):
            self.best_estimator_.feature_names_in_ = self.feature_names_in_
        self._adopt(self.best_estimator_)
        self.robust_ = not chosen.pooled
        self.intervals_ = search.intervals(choice.chosen, self.level)
        self.plain_intervals_ = search.intervals(plain, self.level)
        self.cv_results_ = _results(search, heldout)
        self.frontier_ = Frontier.of(self.cv_results_, choice.chosen, plain, search.measure.words)
        words = _sentences(self.cv_results_, choice, plain, search.groups, search.measure.words)
        self.verdict_ = " ".join(words)
        return self

    @property
    def diagnose_(self) -> Any:
        """The diagnosis of the chosen fit; see :func:`diagnose` and :func:`diagnose_classes`."""
        check_is_fitted(self)
        return self.best_estimator_.diagnose_

    def diagnosis(self, feature_names: Sequence[str] | None = None) -> Any:
        """Diagnose the chosen fit; None for a stored model."""
        return self.best_estimator_.diagnosis(feature_names)

    def kept_sample(self) -> RowSample | None:
        """Return the sample of rows that the chosen fit keeps; None for a stored model."""
        found: RowSample | None = self.best_estimator_.kept_sample()
        return found

    def held_out_comparison(self) -> RiskComparison:
        """Compare risks on the rows that the cross-validation held out."""
        check_is_fitted(self)
        average = self.cv_results_["average_risk"]
        return RiskComparison(
            how="rows held out by its cross-validation, which favors it slightly",
            held_out=True,
            plain=self.plain_intervals_,
            ours=self.intervals_,
            plain_average=float(average[self.frontier_.plain]),
            ours_average=float(average[self.frontier_.chosen]),
        )

    def chosen_estimator(self) -> Any:
        """Return the chosen estimator, unfitted, to fit to other rows."""
        return self.SINGLE(**{**self._options(), **self.best_params_})

    def _search(
        self, candidates: list[Candidate], X: Any, y: Array, groups: Any, weights: Array | None
    ) -> Search:
        numbers, classes = self._numbers(y)
        data, own = sorted_rows(X, numbers, groups, weights, intercept=bool(self.fit_intercept))
        check_storable(own.labels)
        prior = self.prior
        if isinstance(prior, str):
            prior = named_prior(prior, own.sums(data.weights_of(0, len(data.y))))
        prior_K = check_prior(per_group(prior, own.labels, "prior"), own.n_groups)
        repeats = 1
        if isinstance(self.cv, Integral) and not isinstance(self.cv, bool):
            strata = None if classes is None else data.y.astype(np.int64)
            splits = make_splits(own, int(self.cv), self.repeats, self.random_state, strata)
            repeats = int(self.repeats)
        else:
            if self.repeats != 1:
                raise ValueError(
                    f"repeats={self.repeats!r} needs a number of folds, but cv={self.cv!r} gives "
                    "the splits; leave repeats at 1"
                )
            splits = given_splits(self.cv, X, y, groups, weights)
            check_classes(splits, data, classes)
        search = Search(
            data, own, candidates, splits, prior_K, self._fit_options(),
            self._measure(data.y, data.row_weights if data.row_weights.size else None), repeats,
        )  # fmt: skip
        if not search.knows_floors():  # every group is too small for a noise floor
            plain = dict.fromkeys(replace(candidate, reference=False) for candidate in candidates)
            search.candidates = list(plain)
        return search

    def _adopt(self, fitted: Any) -> None:
        """Copy the fitted attributes of the chosen estimator."""
        for name, value in vars(fitted).items():
            if name.endswith("_") and name not in KEPT:
                setattr(self, name, value)

    def _options(self) -> dict[str, Any]:
        """Return the options that all fits share: those of the estimator not searched."""
        known = self.SINGLE().get_params(deep=False)
        mine = self.get_params(deep=False)
        return {name: mine[name] for name in mine if name in known and name not in self.SEARCHED}


def checked_nus(nus: Sequence[float] | None) -> tuple[float, ...]:
    """Return the values of ``nu`` to try, from large to small; multiples of the loss if None."""
    if nus is not None and (isinstance(nus, (str, Real)) or np.ndim(nus) != 1):
        raise ValueError(f"nus must be a list of numbers >= 0, or None; got {nus!r}")
    found = SHARES if nus is None else tuple(check_nu(nu) for nu in nus)
    if not found:
        raise ValueError("nus is empty; give at least one value, or None for a default path")
    return tuple(sorted(set(found), reverse=True))


def checked_flags(name: str, values: Any) -> list[bool]:
    """Return distinct True or False."""
    for flag in distinct(values, name):
        if not isinstance(flag, (bool, np.bool_)):
            raise ValueError(f"{name} must list True or False; got {flag!r}")
    return [bool(flag) for flag in distinct(values, name)]


def distinct(values: Any, names: str) -> list[Any]:
    """Return the values without repetitions; a single value becomes a list of one."""
    if values is None or isinstance(values, (bool, np.bool_, Real, str)):
        values = [values]
    try:
        out = list(dict.fromkeys(values))
    except TypeError:
        raise ValueError(f"{names} must be a flat list; got {values!r}") from None
    if not out:
        raise ValueError(f"{names} must list at least one choice")
    return out


def check_classes(
    splits: Sequence[tuple[Array, Array]], data: GroupedData, classes: Array | None
) -> None:
    """Raise ValueError if the training rows of a split lack a class."""
    if classes is None:
        return
    whole = np.unique(data.y)
    for i, (train, _) in enumerate(splits):
        lost = np.setdiff1d(whole, data.y[train])
        if len(lost):
            raise ValueError(
                f"cv gave split {i} whose training rows lack a class (number {int(lost[0])} of "
                f"{len(whole)} in sorted order); stratify the splits by class, or give cv as a "
                "number of folds"
            )


def _results(search: Search, heldout: HeldOut) -> dict[str, Any]:
    candidates = search.candidates
    nus = np.array([search.strength(candidate) for candidate in candidates])
    units = np.array([search.units[candidate.alpha] for candidate in candidates])
    shares = np.full(len(nus), np.nan)
    np.divide(nus, units, out=shares, where=units > 0)
    out = dict(
        family=[candidate.family for candidate in candidates],
        nu=nus,
        nu_share=shares,
        quantile=[candidate.quantile for candidate in candidates],
        reference=[candidate.reference for candidate in candidates],
        worst_group_risk=heldout.scores,
        standard_error=heldout.errors,
        average_risk=heldout.average,
        group_risks=heldout.group_risks,
        fold_worst=heldout.fold_worst.T,
    )
    if candidates[0].alpha is not None:
        del out["quantile"]
        out["alpha"] = np.array([candidate.alpha for candidate in candidates])
    return out


def _sentences(
    results: dict[str, Any], choice: Choice, plain: int, groups: RowGroups, words: str
) -> list[str]:
    """Say what was chosen and why."""
    worst, error, average = (
        results[name] for name in ("worst_group_risk", "standard_error", "average_risk")
    )
    chosen, best = choice.chosen, choice.best
    gain = 1.0 - worst[choice.spoken] / worst[plain] if worst[plain] > 0 else 0.0

    def name(i: int) -> str:
        family = results["family"][i]
        return f"nu = {results['nu'][i]:.3g}" + ("" if family == "plain" else f" ({family})")

    out = []
    if chosen != plain:
        out.append(
            f"Chose {name(chosen)}: the held-out {words} of the worst group is "
            f"{worst[chosen]:.4g} +- {error[chosen]:.2g}, compared with {worst[plain]:.4g} for the "
            f"plain average ({gain:.0%} lower, and lower on {choice.wins} of {choice.n_folds} "
            f"folds). The average {words} is {average[chosen]:.4g}, compared with "
            f"{average[plain]:.4g}."
        )
    elif best == plain:
        out.append(
            f"Chose the plain average over rows: no robust fit has a lower held-out {words} on "
            f"the worst group than its {worst[plain]:.4g} +- {error[plain]:.2g}."
        )
    else:
        out.append(
            "Chose the plain average over rows: the best robust fit, "
            f"{name(best)}, has a held-out worst-group {words} of {worst[best]:.4g}, compared with "
            f"{worst[plain]:.4g} ({gain:.1%} lower, and lower on {choice.wins} of {choice.n_folds} "
            "folds). This gain is too small or too inconsistent to rule out chance."
        )
    if choice.striking:
        out.append(
            f"On {choice.striking} of {choice.n_folds} folds, the {words} of the worst group is "
            "far higher than on the others: a few rows dominate it. Check these rows before "
            "trusting any fit."
        )
    single = [label_list(groups.labels)[k] for k in np.flatnonzero(groups.sizes == 1)]
    if single:
        out.append(f"Groups with one row cannot be judged: {', '.join(map(str, single[:5]))}.")
    return out
