"""The search of a cross-validation: candidates, splits, and all the fits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.assessment.diagnosis.floors import filled, large_enough, noise_floors
from counterpoise.assessment.held_out import HeldOut, folds_of
from counterpoise.assessment.intervals import RiskIntervals
from counterpoise.assessment.measures import Measure
from counterpoise.common.progress import stage
from counterpoise.rows.backends import has_memberships
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.sorting import take_rows
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running
from counterpoise.solver.solver import Solver

Array = np.ndarray

# Numbers in a block of predictions: rows times candidates.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Candidate:
    """A set of options to try.

    If ``relative``, ``nu`` is a multiple of the average fit's loss. ``pooled`` marks the plain
    average over rows. ``quantile`` is of the labels of a neuron, and ``alpha`` the ridge of other
    models; ``shows_alpha`` if others have another one.
    """

    nu: float
    relative: bool = True
    pooled: bool = False
    quantile: float | None = None
    reference: bool = False
    alpha: float | None = None
    shows_alpha: bool = False

    @property
    def family(self) -> str:
        """Name of the options that the candidate shares with others that differ in ``nu``."""
        words = [f"alpha {self.alpha:g}"] if self.shows_alpha else []
        if self.pooled:
            return ", ".join(["average", *words])
        if self.quantile is not None:
            words.append(f"truncated at {self.quantile:g}")
        if self.reference:
            words.append("reference risks")
        return ", ".join(words) or "plain"

    def strength(self, unit: float) -> float:
        """Return ``nu`` in units of the loss."""
        return self.nu * unit if self.relative and 0 < self.nu < math.inf else self.nu

    def truncation(self, y: Array) -> float | None:
        """Return the level at which to clip labels; None for no clipping."""
        if self.quantile is None:
            return None
        level = float(np.quantile(np.abs(y), self.quantile))
        return level if level > 0 else None


class Measured(NamedTuple):
    """The plain average fit to some rows, and its loss, which is the unit of ``nu``.

    ``average`` holds the user's coefficients, intercept last.
    """

    average: Array
    unit: float


@dataclass
class Search:
    """Fits of every candidate to the training rows of every split, judged on the other rows.

    ``splits`` index the rows of ``data``, whose ``groups`` may overlap; ``options`` are shared by
    all fits.
    """

    data: GroupedData
    groups: RowGroups
    candidates: Sequence[Candidate]
    splits: Sequence[tuple[Array, Array]]
    prior: Array
    options: FitOptions
    measure: Measure
    repeats: int = 1
    coefs: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = self.data.weights_of(0, len(self.data.y))
        weights = self.groups.weights(self.weights)
        assert weights is not None
        # One weight for every membership of a row.
        y = self.groups.listed(self.data.y)
        self.judged = self.measure.weights(y, self.groups.codes, weights)
        self.units: dict[float | None, float] = {}

    def run(self) -> HeldOut:
        """Fit and judge all candidates, keeping their coefficients in ``coefs``."""
        sums, totals, every, K = [], [], [], self.groups.n_groups
        for fold, (train, test) in enumerate(self.splits):
            stage(f"cross-validation, fold {fold + 1} of {len(self.splits)}",
                  fold / len(self.splits))  # fmt: skip
            self.coefs.append(self._fits(train))
            added = np.zeros((len(self.candidates), K))
            whole = np.zeros(len(self.candidates))
            for losses, part in self._losses(test, self.coefs[-1]):
                places, rows = self.groups.places(test[part])
                codes, weights = self.groups.codes[places], self.judged[places]
                for c, column in enumerate(losses.T):
                    added[c] += np.bincount(codes, weights * column[rows], K)
                whole += self.weights[test[part]] @ losses
            sums.append(added)
            every.append(whole)
            places, _ = self.groups.places(test)
            totals.append(np.bincount(self.groups.codes[places], self.judged[places], K))
        stage(None)
        average = None
        if self.groups.overlap is not None:
            seen = sum(float(self.weights[test].sum()) for _, test in self.splits)
            average = np.sum(every, axis=0) / seen
        floor, bounded = self.measure.floor, self.measure.bounded
        return HeldOut(np.array(sums), np.array(totals), self.repeats, floor, bounded, average)

    @property
    def pooled(self) -> list[int]:
        """Indices of the plain averages over rows, which differ in ``alpha``."""
        return [i for i, candidate in enumerate(self.candidates) if candidate.pooled]

    def plain(self, heldout: HeldOut) -> int:
        """Return the plain average with the lowest held-out average risk."""
        return min(self.pooled, key=lambda i: float(heldout.average[i]))

    def average(self, solver: Solver) -> Measured:
        """Fit the plain average to a solver's rows, as the reference for the candidates."""
        coef, found = solver.average()
        return Measured(coef, float(solver.prior @ found.loss_K))

    def parameters(self, candidate: Candidate) -> dict[str, Any]:
        """Return the options of the estimator for a candidate, except the prior."""
        whole = self._solver(np.arange(len(self.data.y)))
        with running(whole):
            whole.frame  # noqa: B018  measured once, for all variants
            for alpha in dict.fromkeys(other.alpha for other in self.candidates):
                solver = self._with_ridge(whole, alpha)
                measured = self.average(solver)
                self.units[alpha] = measured.unit
                if alpha != candidate.alpha:
                    continue
                level, floors = candidate.truncation(self.data.y), None
                if candidate.reference:
                    floors = references(solver.variant(truncate=level), measured.average)
        reference = None
        if floors is not None:
            reference = dict(zip(label_list(self.groups.labels), floors.tolist(), strict=True))
        out = dict(nu=self.strength(candidate), reference=reference)
        if candidate.alpha is None:
            return {**out, "truncate": level}
        return {**out, "alpha": candidate.alpha}

    @staticmethod
    def _with_ridge(solver: Solver, alpha: float | None) -> Solver:
        return solver if alpha in (None, solver.options.ridge) else solver.variant(ridge=alpha)

    def strength(self, candidate: Candidate) -> float:
        """Return the ``nu`` of a candidate on all rows, once :meth:`parameters` is known."""
        return candidate.strength(self.units[candidate.alpha])

    def knows_floors(self) -> bool:
        """Return whether every split has a group large enough for a noise floor.

        A group of one class has none: a constant score serves it.
        """
        K, scores = self.groups.n_groups, self.measure.loss.n_scores
        count = self.data.n_coef * max(1, scores - 1)
        mixed = np.ones(K, dtype=bool)
        if self.options.loss is not None:
            y, codes = self.groups.listed(self.data.y), self.groups.codes
            mixed = np.array([np.ptp(y[codes == k]) > 0 for k in range(K)])
        return all(
            (large_enough(self.groups.take(train).sizes, count) & mixed).any()
            for train, _ in self.splits
        )

    def intervals(self, candidate: int, level: float) -> RiskIntervals:
        """Return intervals from held-out losses; each row counts once, even with repeats."""
        losses, times = np.zeros(len(self.data.y)), np.zeros(len(self.data.y))
        for (_, test), coefs in zip(self.splits, self.coefs, strict=True):
            for block, part in self._losses(test, coefs[[candidate]]):
                losses[test[part]] += block[:, 0]
                times[test[part]] += 1
        seen = np.flatnonzero(times)
        places, rows = self.groups.places(seen)
        judged = self.judged[places]
        weights = None if np.ptp(judged) == 0 else judged
        means, codes = (losses[seen] / times[seen])[rows], self.groups.codes[places]
        return self.measure.intervals(means, self.groups.labels, codes, weights, level)

    def _solver(self, rows: Array) -> Solver:
        """Open a solver for some rows, which may lack some groups."""
        own = self.groups.take(rows)
        present = np.flatnonzero(own.sizes)
        X = self.data.X[rows] if self.data.is_sparse else take_rows(self.data.X, rows)
        weights = self.weights[rows] if self.data.row_weights.size else None
        prior = self.prior[present] / self.prior[present].sum()
        options = replace(self.options, prior=prior)
        groups = own.strata if own.overlap is None else own.overlap
        return open_solver(
            X, self.data.y[rows], groups, weights, options=options, check_input=False
        )

    def _fits(self, rows: Array) -> Array:
        """Return the coefficients of every candidate: (C, scores, d + 1), intercepts last."""
        whole = self._solver(rows)
        found: dict[Candidate, Array] = {}
        with running(whole):
            whole.frame  # noqa: B018  measured once, for all variants
            for alpha in dict.fromkeys(candidate.alpha for candidate in self.candidates):
                solver = self._with_ridge(whole, alpha)
                members = [other for other in self.candidates if other.alpha == alpha]
                found |= self._families(solver, members, self.data.y[rows])
        coefs = np.array([found[candidate] for candidate in self.candidates])
        coefs = coefs.reshape(len(coefs), self.measure.loss.n_scores, -1)
        return coefs if self.data.intercept else np.pad(coefs, ((0, 0), (0, 0), (0, 1)))

    def _families(
        self, solver: Solver, candidates: Sequence[Candidate], y: Array
    ) -> dict[Candidate, Array]:
        """Fit candidates; those that differ in ``nu`` alone start from one another."""
        families: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            families.setdefault(candidate.family, []).append(candidate)
        found: dict[Candidate, Array] = {}
        measured = self.average(solver)
        for members in families.values():
            first = members[0]
            if first.pooled:
                found[first] = measured.average
                continue
            own = solver.variant(truncate=first.truncation(y))
            if first.reference:
                floors = references(own, measured.average)
                own = own if floors is None else own.variant(reference=floors)
            ends = own.points([member.strength(measured.unit) for member in members])
            for member in members:
                found[member] = ends[member.strength(measured.unit)].coef
        return found

    def _losses(self, rows: Array, coefs: Array) -> Iterator[tuple[Array, slice]]:
        """Yield amounts of some rows under every fit, a block of rows at a time: (rows, C)."""
        C, S, _ = coefs.shape
        W = coefs[:, :, : self.data.n_features].reshape(C * S, -1).T
        bias = coefs[:, :, -1].reshape(-1)
        size = max(64, BLOCK // max(C * S, self.data.n_features))
        for start in range(0, len(rows), size):
            part = slice(start, min(start + size, len(rows)))
            with single_threaded_blas():
                scores = np.asarray(self.data.X[rows[part]] @ W) + bias
            scores = scores.reshape(len(scores), C, S)
            y = self.data.y[rows[part]]
            of = scores[:, :, 0] if S == 1 else scores
            columns = [self.measure.amounts(of[:, c], y) for c in range(C)]
            yield np.column_stack(columns), part


def references(solver: Solver, average: Array) -> Array | None:
    """Return noise floors of all groups, for labels clipped as in the fit; None if unknown."""
    engine = solver.engine
    if solver.options.truncate is not None:
        engine = engine.variant(truncate=solver.options.truncate)
    losses = engine.evaluate(average, surrogate=False).loss_K
    return filled(noise_floors(solver), losses)


def make_splits(
    groups: RowGroups,
    n_folds: int,
    repeats: Any,
    random_state: Any,
    classes: Array | None = None,
) -> list[tuple[Array, Array]]:
    """Make folds stratified by group; at most as many as the largest group has rows.

    With the numbers of the rows' ``classes``, folds are stratified by group and class.
    """
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds; got {n_folds!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, Integral) or repeats < 1:
        raise ValueError(f"repeats must be a positive integer; got {repeats!r}")
    largest = int(groups.sizes.max())
    if largest < 2:
        raise ValueError(
            "cross-validation needs a group with two rows or more; got n_samples = "
            f"{groups.n_rows} in {groups.n_groups} group(s) of 1 sample. Merge groups, or fit "
            "without cross-validation"
        )
    state = check_random_state(random_state)
    rng = np.random.default_rng(state.randint(np.iinfo(np.int32).max))
    n_folds = min(n_folds, largest)
    splits = []
    for _ in range(int(repeats)):
        fold = folds_of(groups, n_folds, rng, classes)
        pairs = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]
        if not all(len(test) for _, test in pairs):  # classes of few rows are never held out
            raise ValueError(
                f"cross-validation needs rows to hold out in each of {n_folds} folds without "
                f"losing a class; got n_samples = {groups.n_rows}. Use fewer folds, or fit without "
                "cross-validation"
            )
        splits += pairs
    return splits


def sorted_rows(
    X: Any, y: Array, groups: Any, weights: Array | None, *, intercept: bool
) -> tuple[GroupedData, RowGroups]:
    """Sort rows by group, or by pattern if groups overlap; return them and their groups."""
    found = RowGroups.of(groups, len(y))
    if found.overlap is None:
        data = GroupedData.build(X, y, groups, weights, intercept=intercept)
        return data, RowGroups.of_codes(data.labels, data.codes)
    data = GroupedData.build(X, y, found.strata, weights, intercept=intercept)
    rows = sorted_numbers(len(y), found.strata, weights)
    return data, RowGroups.of(found.overlap[rows], len(rows))


def sorted_numbers(n: int, codes: Array, weights: Any) -> Array:
    """Return the numbers of the user's rows in the order in which they are sorted."""
    column = np.arange(n, dtype=float)[:, None]
    built = GroupedData.build(column, np.zeros(n), codes, weights, intercept=False)
    return built.X[:, 0].astype(np.int64)


def given_splits(cv: Any, X: Any, y: Array, groups: Any, weights: Any) -> list[tuple[Array, Array]]:
    """Translate splits of the user's rows into splits of the sorted rows."""
    numbers = np.arange(len(y))
    if hasattr(cv, "split") and not isinstance(cv, str):
        with warnings.catch_warnings():  # splitters that ignore groups warn about them
            warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
            strata = RowGroups.of(groups, len(y)).strata if has_memberships(groups, X) else groups
            pairs = list(cv.split(X, y, strata))
    else:
        try:
            pairs = list(cv)
        except TypeError:
            pairs = [None]
    try:
        # numpy cannot index with an empty list, whose dtype is float.
        pairs = [[numbers[part] if len(part) else numbers[:0] for part in pair] for pair in pairs]
        pairs = [(train, test) for train, test in pairs]
    except (IndexError, TypeError, ValueError):
        raise ValueError(
            "cv must be a number of folds, a scikit-learn splitter, or pairs of index arrays "
            f"(train, test); got {cv!r}"
        ) from None
    if len(pairs) < 2:
        raise ValueError(f"cv must give at least two splits; got {len(pairs)}")
    came = sorted_numbers(len(y), RowGroups.of(groups, len(y)).strata, weights)
    place = np.full(len(y), -1)
    place[came] = np.arange(len(came))
    splits = []
    for pair in pairs:
        train, test = (np.sort(place[rows][place[rows] >= 0]) for rows in pair)
        if not len(train) or not len(test):
            raise ValueError("cv gave a split with no rows (of positive weight) on one side")
        if len(np.intersect1d(train, test)):
            raise ValueError(
                "cv gave a split whose test rows are also among its training rows; make the two "
                "disjoint"
            )
        splits.append((train, test))
    return splits
