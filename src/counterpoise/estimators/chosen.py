"""What every cross-validated estimator shares: the search, the choice, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from counterpoise.assessment.choice import (
    Choice,
    CostLimits,
    choices_by_fold,
    choose,
    confirmed,
)
from counterpoise.assessment.held_out import HeldOut
from counterpoise.assessment.intervals import RiskIntervals, check_level
from counterpoise.assessment.measures import Measure
from counterpoise.assessment.record import AbsoluteErrors, RiskComparison
from counterpoise.dual.divergences import check_prior
from counterpoise.estimators.asked import check_classes, check_cost
from counterpoise.estimators.base import FLOATS
from counterpoise.estimators.by_group import by_group, group_scores
from counterpoise.estimators.designs import (
    FEATURE,
    OWN,
    Candidate,
    Design,
    OwnDesign,
    base_group,
    group_numbers,
    known_group,
)
from counterpoise.estimators.far_search import FarSearch, partitions
from counterpoise.estimators.frontier import Frontier
from counterpoise.estimators.search import (
    HeldOutScores,
    Judgement,
    Search,
    given_splits,
    make_splits,
    sorted_numbers,
    sorted_rows,
)
from counterpoise.estimators.verdict import name_of, sentences
from counterpoise.rows.backends import backend_of, open_engine, to_host
from counterpoise.rows.classes import decides_class
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.frames import given
from counterpoise.rows.group_indicators import with_indicators
from counterpoise.rows.groups import GroupedData, as_labels, label_list, missing_labels
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sample import RowSample
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver.options import FitOptions, named_prior, per_group
from counterpoise.storage.packing import check_storable

Array = np.ndarray

# Pseudo-rows per coefficient that pull the fits of groups together, and losses that can be pooled.
PULLS, LOG = (10.0, 1.0), ("log", "multinomial")
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
    group_known: bool
    max_cost: float | None
    max_group_cost: float | None
    radius: float | None
    best_estimator_: Any
    best_params_: dict[str, Any]
    intervals_: RiskIntervals
    plain_intervals_: RiskIntervals
    cv_results_: dict[str, Any]
    frontier_: Frontier
    robust_: bool
    verdict_: str
    uses_group_: str
    group_base_: int | None
    group_coef_: Array
    group_intercept_: Array
    held_out_averages_: dict[str, float]
    held_out_absolute_: AbsoluteErrors
    groups_: Array
    coef_: Array
    intercept_: Any
    outputs_of: Any
    get_params: Any
    _check_flags: Any
    _checked: Any
    _note_features: Any
    _held_out: HeldOutScores | None

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
        X : array, CSR matrix or data frame of shape (n, d)
            Or rows of another kind, as in :class:`GroupDRONeuron`. They stay where they are, and
            all fits share their reads. The fold of such a row follows from its numbers, its group
            and ``random_state``, so folds are not stratified. ``cv`` must be a number of folds,
            groups must not overlap, and ``group_known=True`` is refused.
        y : array of shape (n,)
        groups : array of shape (n,), or memberships of shape (n, K), optional
            As in :class:`GroupDRONeuron`. If groups overlap, folds are stratified by the set of
            groups that rows belong to.
        sample_weight : array of shape (n,), optional
        """
        self._check_flags("fit_intercept", "group_known")
        check_level(self.level)
        limits = CostLimits(
            check_cost("max_cost", self.max_cost), check_cost("max_group_cost", self.max_group_cost)
        )
        candidates = self._candidates()
        search: Search | FarSearch
        backend = backend_of(X)
        if not (backend.is_memory or backend.in_place(X)):  # such as tensors on the CPU
            X, y, groups, sample_weight = map(to_host, (X, y, groups, sample_weight))
            backend = backend_of(X)
        if not backend.is_memory:
            search = self._far_search(candidates, X, y, groups, sample_weight)
        else:
            X, y, sample_weight = self._checked(X, y, sample_weight)
            search, order = self._search(candidates, X, y, groups, sample_weight)
        with single_threaded_blas():  # matrices are small, and sums have a fixed order
            heldout = search.run()
            plain = search.plain(heldout)
            choice = choose(heldout, plain, search.pooled, limits)
            fair = choices_by_fold(heldout, plain, search.pooled, limits)
            choice = confirmed(heldout, choice, plain, fair)
        self._fit_chosen(search, choice.chosen, X, y, groups, sample_weight)
        if choice.chosen == plain:  # which needs no luck to be chosen
            fair = [plain] * len(fair)
        found = search.judge(heldout, plain, fair, self.level)
        self._keep_held_out(found)
        self._held_out = None
        if found.scores is not None:
            own = (_in_order(scores, order, len(y)) for scores in found.scores)
            self._held_out = HeldOutScores(y, *own)
        self.cv_results_ = _results(search, heldout, choice)
        self.frontier_ = Frontier.of(self.cv_results_, choice.chosen, plain, search.measure.words)
        self.verdict_ = " ".join(
            sentences(search, choice, self.held_out_comparison(), self.cv_results_, plain)
        )
        return self

    def _fit_chosen(
        self, search: Search | FarSearch, index: int, X: Any, y: Any, groups: Any, weights: Any
    ) -> None:
        """Fit the chosen candidate to all rows."""
        chosen, design = search.candidates[index], search.design(index)
        params = design.parameters(chosen)
        params["prior"] = "rows" if chosen.pooled else self.prior
        found = RowGroups.of(groups, len(y)) if chosen.group else None
        features, self.group_base_ = X, None
        if found is not None:
            assert isinstance(search, Search)
            self.group_base_ = base_group(search.designs[0])
            codes = group_numbers(search.designs[0], found)
            features = with_indicators(X, codes, search.groups.n_groups, self.group_base_)
        self.best_params_ = params
        self.best_estimator_ = self.SINGLE(**self._options(), **params)
        self.best_estimator_.fit(features, y, groups=groups, sample_weight=weights)
        if hasattr(self, "feature_names_in_") and found is None:
            self.best_estimator_.feature_names_in_ = self.feature_names_in_
        self._adopt(self.best_estimator_)
        if not backend_of(X).is_memory:
            self._note_features(X, (y, groups, weights), self.best_estimator_.n_features_in_)
        self.robust_ = not chosen.pooled
        self.uses_group_ = chosen.group
        self.__dict__.pop("group_coef_", None)
        self.__dict__.pop("group_intercept_", None)
        if found is not None:
            assert isinstance(search, Search)
            self._keep_groups(search, index)

    def _keep_groups(self, search: Search, index: int) -> None:
        """Set coefficients by group; those of no known group are the mean over rows."""
        base, candidate = search.designs[0], search.candidates[index]
        d, K = base.data.n_features, base.groups.n_groups
        design = search.design(index)
        if isinstance(design, OwnDesign):
            rows = np.arange(len(base.data.y))
            coefs = replace(design, candidates=[candidate]).fits([(rows, rows[:0])])[0][0]
            self._describe_own(search, candidate, coefs)
        else:
            whole = np.column_stack([np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)])
            coefs = by_group(whole, d, K, self.group_base_)
        shares = base.groups.sums(base.weights)
        mean = np.tensordot(shares / shares.sum(), coefs, axes=1)
        both = np.concatenate([coefs, mean[None]])
        self.group_coef_, self.group_intercept_ = both[..., :d], both[..., -1]
        scalar = np.ndim(self.intercept_) == 0
        self.coef_ = mean[0, :d] if scalar else mean[:, :d]
        self.intercept_ = float(mean[0, -1]) if scalar else mean[:, -1]

    def _describe_own(self, search: Search, candidate: Candidate, coefs: Array) -> None:
        """Set what describes fits of single groups, which no solver has made together."""
        base = search.designs[0]
        scores = group_scores(base.data.X, base.groups.strata, coefs)
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        amounts = search.measure.loss.value(scores, base.data.y)
        mass = base.groups.sums(base.weights)
        self.group_risks_ = base.groups.sums(amounts, base.weights) / mass
        self.group_weights_ = mass / mass.sum()
        self.risk_ = float(self.group_weights_ @ self.group_risks_)
        self.status_ = f"Every group has its own coefficients: {name_of(candidate, math.inf)}."
        self.converged_ = True
        self.__dict__.pop("certificate_", None)  # nothing is proved about such fits

    def _keep_held_out(self, found: Judgement) -> None:
        """Set what is known about held-out rows; every fold's fit was chosen without the fold."""
        self.plain_intervals_, self.intervals_ = found.plain, found.ours
        self.held_out_averages_ = {"plain": found.plain_average, "ours": found.ours_average}
        if found.absolute is not None:
            self.held_out_absolute_ = found.absolute

    def beside_group(self, X: Any, groups: Any) -> Any:
        """Return the features that the chosen fit saw: with indicators of the group if it uses it.

        Fits of single groups saw none together, which is an error.
        """
        uses = getattr(self, "uses_group_", "")  # models of earlier versions do not have it
        if uses == OWN:
            raise ValueError(
                "the chosen fit is one per group, about which nothing is proved; fit with "
                "group_known=False for a certificate"
            )
        if not uses:
            return X
        X = given(X, "X")
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        codes = known_codes(given(groups, "groups"), self.groups_, X.shape[0])
        if (codes == len(self.groups_)).any():
            raise ValueError("groups must name a group of the fit for every row; got None")
        return with_indicators(X, codes, len(self.groups_), self.group_base_)

    @property
    def held_out_scores(self) -> HeldOutScores | None:
        """Scores of the rows of the fit by fits that had not seen them; None if stored."""
        return getattr(self, "_held_out", None)

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_held_out"}

    def _output(self, X: Any, kind: str, groups: Any = None) -> Any:
        """Predict rows; those of known groups by the coefficients of their group."""
        check_is_fitted(self)
        if not getattr(self, "uses_group_", ""):
            return super()._output(X, kind)  # type: ignore[misc]
        if not backend_of(X).is_memory:
            raise ValueError(
                f"a fit that uses the group predicts rows in memory; got {type(X).__name__}. "
                "Predict them in batches"
            )
        X = validate_data(self, given(X, "X"), accept_sparse="csr", dtype=FLOATS, reset=False)
        if groups is None:
            raise ValueError(
                "groups must hold the group of every row, because the chosen fit uses it "
                f"({self.uses_group_}); got None. Pass predict(X, groups=...), or fit with "
                "group_known=False"
            )
        codes = known_codes(given(groups, "groups"), self.groups_, X.shape[0])
        coefs = np.concatenate([self.group_coef_, self.group_intercept_[..., None]], axis=-1)
        return self.outputs_of(group_scores(X, codes, coefs), kind)

    @property
    def diagnose_(self) -> Any:
        """The diagnosis of the chosen fit; see :func:`diagnose` and :func:`diagnose_classes`."""
        check_is_fitted(self)
        return self.best_estimator_.diagnose_

    def diagnosis(self, feature_names: Sequence[str] | None = None) -> Any:
        """Diagnose the chosen fit; None for a stored model, and for one that uses the group."""
        if getattr(self, "uses_group_", None):  # its rows have further features
            return None
        return self.best_estimator_.diagnosis(feature_names)

    def kept_sample(self) -> RowSample | None:
        """Return the sample of rows that the chosen fit keeps; None for a stored model."""
        found: RowSample | None = self.best_estimator_.kept_sample()
        return found

    def held_out_comparison(self) -> RiskComparison:
        """Compare risks on the rows that the cross-validation held out."""
        check_is_fitted(self)
        folds = len(self.cv_results_["fold_worst"][0])
        if isinstance(self.cv, Integral):
            folds //= int(self.repeats)
        how = f"rows held out in {folds} folds"
        if self.frontier_.chosen != self.frontier_.plain:
            how += ", each by the fit that the other folds chose"
        average = self.cv_results_["average_risk"]
        known = {  # of models of earlier versions
            "plain": float(average[self.frontier_.plain]),
            "ours": float(average[self.frontier_.chosen]),
        }
        averages = getattr(self, "held_out_averages_", known)
        return RiskComparison(
            how=how,
            held_out=True,
            plain=self.plain_intervals_,
            ours=self.intervals_,
            plain_average=averages["plain"],
            ours_average=averages["ours"],
            absolute=getattr(self, "held_out_absolute_", None),
        )

    def chosen_estimator(self) -> Any:
        """Return the chosen estimator, unfitted, to fit to other rows."""
        if getattr(self, "uses_group_", ""):
            raise ValueError(
                "the chosen fit uses the group as a feature, which an estimator without "
                "cross-validation does not; fit with group_known=False, or add the group to X"
            )
        return self.SINGLE(**{**self._options(), **self.best_params_})

    def _search(
        self, candidates: list[Candidate], X: Any, y: Array, groups: Any, weights: Array | None
    ) -> tuple[Search, Array]:
        """Set up the search; return it, and the number of the user's row behind every row of it."""
        numbers, classes = self._numbers(y)
        intercept = bool(self.fit_intercept)
        data, own = sorted_rows(X, numbers, groups, weights, intercept=intercept)
        check_storable(own.labels)
        found = RowGroups.of(groups, len(y))
        order = sorted_numbers(len(y), found.strata, weights)
        prior = self.prior
        if isinstance(prior, str):
            prior = named_prior(prior, own.sums(data.weights_of(0, len(data.y))))
        prior_K = check_prior(per_group(prior, own.labels, "prior"), own.n_groups)
        repeats = 1
        if isinstance(self.cv, Integral) and not isinstance(self.cv, bool):
            kept = np.sort(order)
            strata = None if classes is None else classes[kept].astype(np.int64)
            pairs = make_splits(
                found.take(kept), int(self.cv), self.repeats, self.random_state, strata
            )
            repeats = int(self.repeats)
            place = np.argsort(order, kind="stable")
            splits = [(np.sort(place[train]), np.sort(place[test])) for train, test in pairs]
        else:
            if self.repeats != 1:
                raise ValueError(
                    f"repeats={self.repeats!r} needs a number of folds, but cv={self.cv!r} gives "
                    "the splits; leave repeats at 1"
                )
            splits = given_splits(self.cv, X, y, groups, weights)
            check_classes(splits, data, classes)
        measure = self._measure(data.y, data.row_weights if data.row_weights.size else None)
        design = Design(data, own, candidates, prior_K, self._fit_options(), measure)
        if not design.knows_floors(splits):  # every group is too small for a noise floor
            plain = dict.fromkeys(replace(candidate, reference=False) for candidate in candidates)
            design.candidates = list(plain)
        designs = [design, *self._known(design, X, numbers, groups, weights)]
        return Search(designs, splits, repeats), order

    def _far_search(
        self, candidates: list[Candidate], X: Any, y: Any, groups: Any, weights: Any
    ) -> FarSearch:
        """Set up the search over rows that stay where they are."""
        if not isinstance(self.cv, Integral) or isinstance(self.cv, bool):
            raise ValueError(
                f"cv must be a number of folds for rows that are not in memory; got "
                f"{self.cv!r}, and X of type {type(X).__name__}"
            )
        if self.group_known:
            raise ValueError(
                f"group_known=True needs rows in memory; got X of type {type(X).__name__}. Leave "
                f"it out, or fit {type(self).__name__} to a sample of the rows"
            )
        X, y, weights, classes = self._far_rows(X, y, weights)
        options, intercept = self._fit_options(), bool(self.fit_intercept)
        loss, centred = options.row_loss(), options.precondition is not None

        def open_rows(cut: FoldCut | None) -> SumEngine:
            return open_engine(
                X, y, groups, weights, loss, intercept=intercept, centred=centred, cut=cut
            )

        parts = partitions(open_rows, int(self.cv), self.repeats, self.random_state)
        check_storable(parts.census.labels)
        prior = self.prior
        if isinstance(prior, str):
            prior = named_prior(prior, parts.census.totals)
        prior_K = check_prior(per_group(prior, parts.census.labels, "prior"), len(parts.sizes))
        measure = self._measure(parts.typical, None)
        return FarSearch.over(parts, candidates, prior_K, options, measure, classes)

    def _far_rows(self, X: Any, y: Any, weights: Any) -> tuple[Any, Any, Any, Array | None]:
        """Return rows that stay where they are, with labels as numbers, and their classes."""
        return X, y, weights, None

    def _known(
        self, design: Design, X: Any, y: Array, groups: Any, weights: Array | None
    ) -> list[Design]:
        """Return the designs of candidates that use a known group."""
        if not self.group_known:
            return []
        found = RowGroups.of(groups, len(y))
        if found.overlap is not None:
            raise ValueError(
                "group_known=True needs one group per row; got groups that overlap. Leave it out, "
                "and add the memberships to the features"
            )
        if design.groups.n_groups < 2:
            return []
        if design.options.loss is not None and decides_class(found.codes, y):
            raise ValueError(
                "group_known=True needs groups that are known before the class is, but every "
                "group here has rows of one class; make groups without the label"
            )

        def build(features: Any) -> GroupedData:
            return GroupedData.build(
                features, y, groups, weights, intercept=bool(self.fit_intercept)
            )

        first = next(candidate for candidate in design.candidates if candidate.pooled)
        robust = [
            candidate for candidate in design.candidates
            if not (candidate.pooled or candidate.reference or candidate.quantile is not None)
            and candidate.alpha == first.alpha
        ]  # fmt: skip
        features = [replace(one, group=FEATURE) for one in (first, *robust)]
        pulls = PULLS if design.options.loss is None or design.options.loss.name in LOG else ()
        own = [replace(first, group=OWN, pull=pull) for pull in (*pulls, 0.0)]
        return known_group(design, X, found, features, [] if self.radius else own, build)

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


def known_codes(groups: Any, labels: Array, n: int) -> Array:
    """Number the groups of rows to predict; raise ValueError for one that the fit did not see.

    None, or another missing value, stands for no known group, which has the number K.
    """
    values = as_labels(groups)
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.shape != (n,):
        raise ValueError(f"groups must have one label per row: {n}; got shape {values.shape}")
    number = {label: k for k, label in enumerate(label_list(labels))}
    number[None] = len(number)
    gone = missing_labels(values)
    plain = [None if no else v for v, no in zip(label_list(values), gone, strict=True)]
    strange = [value for value in plain if value not in number]
    if strange:
        raise ValueError(
            f"groups has {strange[0]!r}, which the fit did not see; it knows "
            f"{', '.join(map(repr, label_list(labels)[:5]))}{', ...' * (len(labels) > 5)}. Give "
            "None for rows of other groups, which get the mean coefficients"
        )
    return np.array([number[value] for value in plain], dtype=np.int64)


def _in_order(values: Array, order: Array, n: int) -> Array:
    """Return values of sorted rows in the order of the user's rows; NaN for rows left out."""
    out = np.full((n, *values.shape[1:]), np.nan)
    out[order] = values
    return out


def _results(search: Search | FarSearch, heldout: HeldOut, choice: Choice) -> dict[str, Any]:
    candidates = search.candidates
    nus, units = search.strengths()
    shares = np.full(len(nus), np.nan)
    np.divide(nus, units, out=shares, where=units > 0)
    out = dict(
        family=[candidate.family for candidate in candidates],
        nu=nus,
        nu_share=shares,
        quantile=[candidate.quantile for candidate in candidates],
        reference=[candidate.reference for candidate in candidates],
        worst_group_risk=heldout.worst(),
        standard_error=choice.error,
        beats_average=choice.sure,
        average_risk=heldout.average,
        group_risks=heldout.group_risks,
        fold_worst=heldout.fold_worst.T,
    )
    if candidates[0].alpha is not None:
        del out["quantile"]
        out["alpha"] = np.array([candidate.alpha for candidate in candidates])
    return out
