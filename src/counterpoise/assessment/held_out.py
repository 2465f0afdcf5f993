"""Folds that hold out rows of every group, and the losses of candidates on these rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterpoise.rows.memberships import RowGroups

Array = np.ndarray

# Samples of the groups' risks that candidates are compared on.
DRAWS = 1000


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
    squares : array of shape (F, K), optional
        Sums of the squared weights; ``totals`` if None, as for weights of one.
    spread : array of shape (K, C, C), optional
        Covariance of the candidates' losses over the rows of a group; zero if None.
    repeats : int
        Number of independent partitions; their folds follow one another.
    floor : float
        Risks below this count as zero.
    bounded : bool
        Whether a loss is at most one, as errors are, so that no row can dominate a fold.
    rooted : bool
        Whether the root of a risk is what people are shown.
    reuse : float, optional
        How often a row is held out, on average over the rows that are; ``repeats`` if None.
    rows, row_totals : arrays of shape (F, C) and (F,), optional
        Sums of the weighted losses of the rows that each fold held out, and of their weights, if
        groups overlap.
    """

    sums: Array
    totals: Array
    squares: Array | None = None
    spread: Array | None = None
    repeats: int = 1
    floor: float = 0.0
    bounded: bool = False
    rooted: bool = False
    reuse: float | None = None
    rows: Array | None = None
    row_totals: Array | None = None

    @property
    def n_folds(self) -> int:
        return len(self.sums)

    @property
    def per_partition(self) -> int:
        """Folds of one partition of the rows."""
        return self.n_folds // self.repeats

    @cached_property
    def fold_worst(self) -> Array:
        """Worst-group risk of every candidate on every fold: (F, C)."""
        return np.array([self.worst([f]) for f in range(self.n_folds)])

    def worst(self, folds: Sequence[int] | None = None) -> Array:
        """Risk of every candidate on the worst group of these folds together: shape (C,)."""
        return np.maximum(np.nanmax(self.risks(folds), axis=1), self._least)

    def risks(self, folds: Sequence[int] | None = None) -> Array:
        """Mean loss of every candidate in every group of these folds: (C, K); NaN without rows."""
        chosen = slice(None) if folds is None else list(folds)
        totals = self.totals[chosen].sum(axis=0)
        out = np.full(self.sums.shape[1:], np.nan)
        np.divide(self.sums[chosen].sum(axis=0), totals, out=out, where=totals > 0)
        return out

    @property
    def group_risks(self) -> Array:
        """Mean held-out loss of every candidate in every group: (C, K); NaN without rows."""
        return self.risks()

    @property
    def average(self) -> Array:
        """Mean held-out loss of every candidate over all rows: (C,)."""
        return self.average_of()

    def average_of(self, folds: Sequence[int] | None = None) -> Array:
        """Mean loss of every candidate over the rows of these folds: (C,)."""
        chosen = slice(None) if folds is None else list(folds)
        if self.rows is not None and self.row_totals is not None:
            return self.rows[chosen].sum(axis=0) / self.row_totals[chosen].sum()
        return self.sums[chosen].sum(axis=(0, 2)) / self.totals[chosen].sum()

    def draws(self, folds: Sequence[int] | None = None) -> Array:
        """Worst-group risks of all candidates for other rows of the same kind: (draws, C).

        A normal approximation to resampling the rows of every group. All candidates see the same
        rows, so their differences vary far less than their risks.
        """
        chosen = slice(None) if folds is None else list(folds)
        totals = self.totals[chosen].sum(axis=0)
        squares = (self.totals if self.squares is None else self.squares)[chosen].sum(axis=0)
        means = self.risks(folds)
        used = self.n_folds if folds is None else len(folds)
        reuse = self.repeats if self.reuse is None else self.reuse
        repeats = max(1.0, reuse * used / self.n_folds)
        rng = np.random.default_rng(0)
        out = np.full((DRAWS, len(means)), self._least)
        for k in np.flatnonzero(totals > 0):
            # Repeats use the same rows again: they add no rows.
            size = max(totals[k] ** 2 / squares[k] / repeats, 1.0)
            mean = means[:, k]
            # Equal losses are still a sample: another row may differ.
            drawn = mean + rng.standard_normal((DRAWS, 1)) * mean / size
            if self.spread is not None:
                values, vectors = np.linalg.eigh(self.spread[k] / size)
                root = vectors * np.sqrt(np.maximum(values, 0.0))
                drawn += rng.standard_normal((DRAWS, len(mean))) @ root.T
            np.maximum(out, drawn, out=out)
        return out

    def shown(self, risks: Array) -> Array:
        """Risks in the units that people are shown."""
        return np.sqrt(np.maximum(risks, 0.0)) if self.rooted else risks

    @property
    def _least(self) -> float:
        return 0.0 if self.bounded else max(self.floor, float(np.finfo(float).tiny))
