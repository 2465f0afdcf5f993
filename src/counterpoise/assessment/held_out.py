"""Held-out losses of candidates, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from counterpoise.rows.memberships import RowGroups

Array = np.ndarray

# A candidate replaces the plain average only if it is better on this share of the folds, and by
# this share of the risk overall.
NEEDED_WINS, NEEDED_GAIN = 0.8, 0.01
# A fold is reported if its worst-group risk is this many times the median.
STRIKING = 3.0


def stratified_folds(
    codes: Array,
    n_groups: int,
    n_folds: int,
    rng: np.random.Generator,
    classes: Array | None = None,
) -> Array:
    """The fold that holds out each row; every group is spread evenly over the folds.

    With the numbers of the rows' ``classes``, so is every class of a group. A group's only row is
    never held out (-1), because the group would be missing without it. Nor are the rows of a class
    that all fell into one fold.
    """
    fold = np.empty(len(codes), dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    start = 0
    for size in np.bincount(codes, minlength=n_groups):
        rows = rng.permutation(order[start : start + size])
        if classes is not None:
            rows = rows[np.argsort(classes[rows], kind="stable")]
        # Small groups start at a random fold, or the first folds would hold all their rows.
        dealt = (np.arange(size) + rng.integers(n_folds)) % n_folds
        fold[rows] = dealt if size > 1 else -1
        start += size
    return fold if classes is None else _keeping_classes(fold, classes)


def folds_of(
    groups: RowGroups, n_folds: int, rng: np.random.Generator, classes: Array | None = None
) -> Array:
    """The fold that holds out each row, as `stratified_folds`; groups may overlap.

    If they do, rows of the same pattern of memberships are spread evenly.
    """
    if groups.overlap is None:
        return stratified_folds(groups.strata, groups.n_groups, n_folds, rng, classes)
    # Patterns may have one row each, so folds are dealt across them.
    rows = rng.permutation(groups.n_rows)
    if classes is not None:
        rows = rows[np.argsort(classes[rows], kind="stable")]
    rows = rows[np.argsort(groups.strata[rows], kind="stable")]
    fold = np.empty(groups.n_rows, dtype=np.int64)
    fold[rows] = (np.arange(groups.n_rows) + rng.integers(n_folds)) % n_folds
    fold[groups.index[groups.sizes[groups.codes] == 1]] = -1
    return fold if classes is None else _keeping_classes(fold, classes)


def _keeping_classes(fold: Array, classes: Array) -> Array:
    """Hold out no row (-1) of a class that would be missing without one fold."""
    for c in np.unique(classes):
        own = classes == c
        if len(np.unique(fold[own])) == 1:
            fold[own] = -1
    return fold


@dataclass(frozen=True)
class HeldOut:
    """Losses of ``C`` candidates on held-out rows.

    Attributes
    ----------
    sums : array of shape (F, C, K)
        Sums of the weighted losses of the rows that each fold held out, by group.
    totals : array of shape (F, K)
        Sums of the weights of these rows; a group may be missing from a fold.
    repeats : int
        Number of independent partitions; their folds follow one another.
    floor : float
        Risks below this count as zero.
    bounded : bool
        Whether a loss is at most one, as errors are. Then means over folds are plain ones, since
        no row can dominate a fold and risks may be zero. Otherwise they are geometric.
    rows : array of shape (C,), optional
        Mean loss of each candidate over all held-out rows, if groups overlap.
    """

    sums: Array
    totals: Array
    repeats: int = 1
    floor: float = 0.0
    bounded: bool = False
    rows: Array | None = None

    @property
    def n_folds(self) -> int:
        return len(self.sums)

    def worst(self, folds: Sequence[int]) -> Array:
        """Risk of every candidate on the worst group of these folds together: shape (C,)."""
        chosen = list(folds)
        totals = self.totals[chosen].sum(axis=0)
        seen = totals > 0
        risks = self.sums[chosen].sum(axis=0)[:, seen] / totals[seen]
        least = 0.0 if self.bounded else max(self.floor, float(np.finfo(float).tiny))
        return np.maximum(risks.max(axis=1), least)

    @cached_property
    def fold_worst(self) -> Array:
        """Worst-group risk of every candidate on every fold: (F, C)."""
        return np.array([self.worst([f]) for f in range(self.n_folds)])

    @cached_property
    def scores(self) -> Array:
        """The typical held-out worst-group risk of every candidate.

        The geometric mean over folds, averaged in logarithms with that over pairs of folds.
        Logarithms limit the influence of a single corrupted row, which can raise the risk of its
        fold a hundredfold. Pairs of folds are less noisy, because the worst of many small groups
        is often chance. For bounded losses both means are plain.
        """
        if self.bounded:
            singles = self.fold_worst.mean(axis=0)
            pairs = [self.worst(pair) for pair in self._pairs()]
            return 0.5 * (singles + np.mean(pairs, axis=0))
        singles = np.log(self.fold_worst).mean(axis=0)
        pairs = [np.log(self.worst(pair)) for pair in self._pairs()]
        return np.exp(0.5 * (singles + np.mean(pairs, axis=0)))

    @property
    def errors(self) -> Array:
        """Standard errors of ``scores``, from the spread over folds.

        Repeats use the same rows again: they make the score steadier, but add no rows.
        """
        n = np.sqrt(self.n_folds // self.repeats)
        if self.bounded:
            return self.fold_worst.std(axis=0, ddof=1) / n
        return self.scores * np.log(self.fold_worst).std(axis=0, ddof=1) / n

    @property
    def group_risks(self) -> Array:
        """Mean held-out loss of every candidate in every group: (C, K); NaN without rows."""
        totals = self.totals.sum(axis=0)
        out = np.full(self.sums.shape[1:], np.nan)
        np.divide(self.sums.sum(axis=0), totals, out=out, where=totals > 0)
        return out

    @property
    def average(self) -> Array:
        """Mean held-out loss of every candidate over all rows: (C,)."""
        if self.rows is not None:
            return self.rows
        return self.sums.sum(axis=(0, 2)) / self.totals.sum()

    def wins(self, candidate: int, other: int) -> int:
        """Count the folds on which the candidate's worst-group risk is below the other's."""
        return int(np.sum(self.fold_worst[:, candidate] < self.fold_worst[:, other]))

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of folds of the same partition."""
        per = self.n_folds // self.repeats
        for repeat in range(self.repeats):
            for a, b in combinations(range(per), 2):
                yield repeat * per + a, repeat * per + b

    def choose(self, average: int = 0, others: Sequence[int] = ()) -> Choice:
        """The candidate with the lowest score among those that reliably beat the ``average`` one.

        If there is none, the ``average`` itself. ``others`` are averages of another kind, which are
        not chosen.
        """
        wins = np.array([self.wins(c, average) for c in range(len(self.scores))])
        robust = np.ones(len(self.scores), dtype=bool)
        robust[[other for other in others if other != average]] = False
        pays = self.scores <= (1.0 - NEEDED_GAIN) * self.scores[average]
        pays &= (wins >= NEEDED_WINS * self.n_folds) & robust
        best = int(np.argmin(np.where(robust, self.scores, np.inf)))
        chosen = int(np.argmin(np.where(pays, self.scores, np.inf))) if pays.any() else average
        spoken = best if chosen == average else chosen
        worst = self.fold_worst[:, spoken]
        striking = int(np.sum(worst > STRIKING * float(np.median(worst))))
        striking = 0 if self.bounded else striking
        return Choice(chosen, best, spoken, int(wins[spoken]), self.n_folds, striking)


class Choice(NamedTuple):
    """A choice among candidates.

    ``spoken`` is the candidate to report on: the chosen one or, if that is the average, the best.
    ``wins`` counts the folds on which it beats the average, and ``striking`` the folds that are far
    worse than the median.
    """

    chosen: int
    best: int
    spoken: int
    wins: int
    n_folds: int
    striking: int
