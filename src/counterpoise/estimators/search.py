"""The search of a cross-validation: splits, and all candidates judged on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.assessment.comparison import absolute_errors
from counterpoise.assessment.held_out import HeldOut, folds_of
from counterpoise.assessment.held_out_sums import LARGEST
from counterpoise.assessment.intervals import RiskIntervals
from counterpoise.assessment.measures import Measure
from counterpoise.assessment.record import AbsoluteErrors
from counterpoise.common.progress import stage
from counterpoise.estimators.designs import Candidate, Design
from counterpoise.losses import NeuronLoss
from counterpoise.rows.backends import has_memberships
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.memberships import RowGroups

Array = np.ndarray

# Numbers in a block of predictions: rows times candidates.
BLOCK = 1 << 22


class HeldOutScores(NamedTuple):
    """Linear scores of the rows of a fit, (n, S), by fits that had not seen them; NaN if none."""

    y: Array
    plain: Array
    ours: Array


class Judgement(NamedTuple):
    """The plain average and the chosen fits on held-out rows.

    ``absolute`` errors are known of neurons; ``scores`` are (n, S), if rows are in memory, in the
    order of the search.
    """

    plain: RiskIntervals
    ours: RiskIntervals
    plain_average: float
    ours_average: float
    absolute: AbsoluteErrors | None
    scores: tuple[Array, Array] | None = None


@dataclass
class Search:
    """Fits of every candidate to the training rows of every split, judged on the other rows.

    ``splits`` index the rows that all ``designs`` share.
    """

    designs: Sequence[Design]
    splits: Sequence[tuple[Array, Array]]
    repeats: int = 1
    coefs: list[list[Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = self.designs[0]
        self.y, self.groups, self.weights = first.data.y, first.groups, first.weights
        self.measure: Measure = first.measure
        weights = self.groups.weights(self.weights)
        assert weights is not None
        # One weight for every membership of a row.
        self.judged = self.measure.weights(self.groups.listed(self.y), self.groups.codes, weights)

    @property
    def candidates(self) -> list[Candidate]:
        return [candidate for design in self.designs for candidate in design.candidates]

    def design(self, index: int) -> Design:
        """Return the design of a candidate."""
        for design in self.designs:
            if index < len(design.candidates):
                return design
            index -= len(design.candidates)
        raise IndexError(index)

    @property
    def pooled(self) -> list[int]:
        """Indices of the plain averages over rows, which differ in ``alpha``."""
        first = self.designs[0]
        return [i for i, candidate in enumerate(first.candidates) if candidate.pooled]

    def plain(self, heldout: HeldOut) -> int:
        """Return the plain average with the lowest held-out average risk."""
        return min(self.pooled, key=lambda i: float(heldout.average[i]))

    def strengths(self) -> tuple[Array, Array]:
        """Return the ``nu`` of every candidate on all rows, and its unit."""
        nus, units = [], []
        for design in self.designs:
            design.measure_units()
            nus += [design.strength(candidate) for candidate in design.candidates]
            units += [design.units[candidate.alpha] for candidate in design.candidates]
        return np.array(nus), np.array(units)

    def run(self) -> HeldOut:
        """Fit and judge all candidates, keeping their coefficients in ``coefs``."""
        C, K, F = len(self.candidates), self.groups.n_groups, len(self.splits)
        sums, whole = np.zeros((F, C, K)), np.zeros((F, C))
        totals, squares = np.zeros((F, K)), np.zeros((F, K))
        moments = Moments(C, K)
        fitted = []
        for i, design in enumerate(self.designs):
            stage("cross-validation", i / len(self.designs))
            fitted.append(design.fits(self.splits))
        self.coefs = [list(of_fold) for of_fold in zip(*fitted, strict=True)]
        for fold, (_, test) in enumerate(self.splits):
            for part, amounts in self._amounts(test, fold):
                places, rows = self.groups.places(part)
                codes, weights = self.groups.codes[places], self.judged[places]
                moments.add(amounts[rows], codes, weights)
                for c, column in enumerate(amounts.T):
                    sums[fold, c] += np.bincount(codes, weights * column[rows], K)
                whole[fold] += self.weights[part] @ amounts
            places, _ = self.groups.places(test)
            codes, weights = self.groups.codes[places], self.judged[places]
            totals[fold] = np.bincount(codes, weights, K)
            squares[fold] = np.bincount(codes, weights**2, K)
        stage(None)
        overlaps = self.groups.overlap is not None
        weighed = np.array([self.weights[test].sum() for _, test in self.splits])
        measure = self.measure
        tests = np.concatenate([test for _, test in self.splits])
        reuse = len(tests) / len(np.unique(tests))
        return HeldOut(
            sums, totals, squares, moments.spread(), self.repeats, measure.floor, measure.bounded,
            measure.rooted, reuse, *((whole, weighed) if overlaps else ()),
        )  # fmt: skip

    def scores(self, choices: Sequence[int]) -> Array:
        """Return held-out scores of all rows, of one candidate per fold of the first partition.

        Rows that no fold holds out are NaN. The shape is (n, S).
        """
        out = np.full((len(self.y), self.measure.loss.n_scores), np.nan)
        for fold, index in enumerate(choices):
            test, place = self.splits[fold][1], index
            for design, coefs in zip(self.designs, self.coefs[fold], strict=True):
                if 0 <= place < len(design.candidates):
                    for part in _blocks(test, self._block(1)):
                        out[part] = design.scores(part, coefs[[place]])[:, 0]
                place -= len(design.candidates)
        return out

    def judge(self, heldout: HeldOut, plain: int, fair: Sequence[int], level: float) -> Judgement:
        """Judge the plain average, and the choice that every fold had no part in."""
        scores = self.scores([plain] * len(fair)), self.scores(fair)
        amounts = [self.amounts(own) for own in scores]
        intervals = [self.intervals(own, level) for own in amounts]
        averages = [self.average_amount(own) for own in amounts]
        loss, absolute = self.measure.loss, None
        if isinstance(loss, NeuronLoss):
            weights = self.weights if np.ptp(self.weights) else None
            plain_, ours = (loss.activation.value(own[:, 0]) for own in scores)
            absolute = absolute_errors(self.y, plain_, ours, self.groups, weights)
        return Judgement(intervals[0], intervals[1], averages[0], averages[1], absolute, scores)

    def amounts(self, scores: Array) -> Array:
        """Return what rows with these scores amount to; NaN where scores are."""
        seen = np.flatnonzero(np.isfinite(scores).all(axis=1))
        out = np.full(len(scores), np.nan)
        used = scores[seen, 0] if scores.shape[1] == 1 else scores[seen]
        out[seen] = self.measure.amounts(used, self.y[seen])
        return out

    def intervals(self, amounts: Array, level: float) -> RiskIntervals:
        """Return the risks of groups with intervals, from the amounts of held-out rows."""
        seen = np.flatnonzero(np.isfinite(amounts))
        places, rows = self.groups.places(seen)
        judged = self.judged[places]
        weights = None if np.ptp(judged) == 0 else judged
        return self.measure.intervals(
            amounts[seen][rows], self.groups.labels, self.groups.codes[places], weights, level
        )

    def average_amount(self, amounts: Array) -> float:
        """Return the mean over all held-out rows, weighted as the candidates' averages are."""
        seen = np.isfinite(amounts)
        weights = self.judged if self.groups.overlap is None else self.weights
        return float(np.average(amounts[seen], weights=weights[seen]))

    def _amounts(self, rows: Array, fold: int) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of rows, and their amounts under every candidate: (rows, C)."""
        S = self.measure.loss.n_scores
        for part in _blocks(rows, self._block(len(self.candidates) * S)):
            scores = np.concatenate(
                [d.scores(part, c) for d, c in zip(self.designs, self.coefs[fold], strict=True)],
                axis=1,
            )
            of = scores[:, :, 0] if S == 1 else scores
            y = self.y[part]
            columns = [self.measure.amounts(of[:, c], y) for c in range(scores.shape[1])]
            yield part, np.column_stack(columns)

    def _block(self, columns: int) -> int:
        widest = max(design.data.n_features for design in self.designs)
        return max(64, BLOCK // max(columns, widest))


class Moments:
    """Sums from which the covariance of candidates' losses in every group follows.

    Losses are taken relative to those of the first candidate, so that small differences between
    large losses are not lost to rounding.
    """

    def __init__(self, C: int, K: int) -> None:
        self.count, self.first, self.second = np.zeros(K), np.zeros((K, C)), np.zeros((K, C, C))

    def add(self, amounts: Array, codes: Array, weights: Array) -> None:
        """Add rows of groups; their weights count squared, as in the variance of a mean."""
        order = np.argsort(codes, kind="stable")
        own = np.minimum(amounts[order], LARGEST)  # whose squares are finite
        own[:, 1:] -= own[:, :1]
        squared, codes = weights[order] ** 2, codes[order]
        present, starts = np.unique(codes, return_index=True)
        for k, start, end in zip(present, starts, [*starts[1:], len(codes)], strict=True):
            part, w = own[start:end], squared[start:end]
            self.count[k] += w.sum()
            self.first[k] += w @ part
            self.second[k] += part.T @ (w[:, None] * part)

    def spread(self) -> Array:
        """Return the covariance of losses over the rows of every group: (K, C, C)."""
        count = np.where(self.count > 0, self.count, 1.0)
        mean = self.first / count[:, None]
        out = self.second / count[:, None, None] - mean[:, :, None] * mean[:, None, :]
        # From differences to losses: add that of the first candidate to all others.
        out[:, 1:, :] += out[:, :1, :]
        out[:, :, 1:] += out[:, :, :1]
        return np.asarray(out)


def _blocks(rows: Array, size: int) -> Iterator[Array]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def make_splits(
    groups: RowGroups,
    n_folds: int,
    repeats: Any,
    random_state: Any,
    classes: Array | None = None,
) -> list[tuple[Array, Array]]:
    """Make folds stratified by group; at most as many as the largest group has rows.

    With the numbers of the rows' ``classes``, folds are stratified by group and class. A seed makes
    the folds that held-out risks of other fits have (`assessment.folds`).
    """
    n_folds = check_folds(n_folds, repeats, groups.sizes, groups.n_rows)
    seed = random_state
    if not isinstance(seed, Integral):
        seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
    rng = np.random.default_rng(int(seed))
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


def check_folds(n_folds: int, repeats: Any, sizes: Array, n_rows: int) -> int:
    """Return the number of folds, at most as many as the largest group has rows."""
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds; got {n_folds!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, Integral) or repeats < 1:
        raise ValueError(f"repeats must be a positive integer; got {repeats!r}")
    largest = int(sizes.max())
    if largest < 2:
        raise ValueError(
            "cross-validation needs a group with two rows or more; got n_samples = "
            f"{n_rows} in {len(sizes)} group(s) of 1 sample. Merge groups, or fit without "
            "cross-validation"
        )
    return min(n_folds, largest)


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
    return np.asarray(built.X)[:, 0].astype(np.int64)


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
