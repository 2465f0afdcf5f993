"""The search of GroupDRONeuronCV: candidates, splits, and all the fits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.activations import get_activation
from counterpoise.assessment.diagnosis.floors import filled, large_enough, noise_floors
from counterpoise.assessment.held_out import HeldOut, folds_of
from counterpoise.assessment.intervals import RiskIntervals, group_intervals
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
# Held-out risks below this share of the labels' mean square count as rounding.
FLOOR = 1e-14


@dataclass(frozen=True)
class Candidate:
    """A set of options to try.

    If ``relative``, ``nu`` is a multiple of the average fit's loss. ``pooled`` marks the plain
    average over rows.
    """

    nu: float
    relative: bool = True
    pooled: bool = False
    quantile: float | None = None
    reference: bool = False

    @property
    def family(self) -> str:
        """Name of the options that the candidate shares with others that differ in ``nu``."""
        if self.pooled:
            return "average"
        words = []
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
    repeats: int = 1
    coefs: list[Array] = field(default_factory=list)
    unit: float = math.nan

    def __post_init__(self) -> None:
        self.weights = self.data.weights_of(0, len(self.data.y))

    def run(self) -> HeldOut:
        """Fit and judge all candidates, keeping their coefficients in ``coefs``."""
        sums, totals, every = [], [], []
        for fold, (train, test) in enumerate(self.splits):
            stage(f"cross-validation, fold {fold + 1} of {len(self.splits)}",
                  fold / len(self.splits))  # fmt: skip
            self.coefs.append(self._fits(train))
            weights = self.weights[test]
            added = np.zeros((len(self.candidates), self.groups.n_groups))
            whole = np.zeros(len(self.candidates))
            for losses, part in self._losses(test, self.coefs[-1]):
                own = self.groups.take(test[part])
                for c, column in enumerate(losses.T):
                    added[c] += own.sums(weights[part], column)
                whole += weights[part] @ losses
            sums.append(added)
            every.append(whole)
            totals.append(self.groups.take(test).sums(weights))
        stage(None)
        floor = FLOOR * float(np.average(self.data.y**2, weights=self.weights))
        rows = None
        if self.groups.overlap is not None:
            seen = sum(float(self.weights[test].sum()) for _, test in self.splits)
            rows = np.sum(every, axis=0) / seen
        return HeldOut(np.array(sums), np.array(totals), self.repeats, floor, rows)

    def measure(self, solver: Solver) -> Measured:
        """Fit the plain average to a solver's rows, as the reference for the candidates."""
        coef, found = solver.average()
        return Measured(coef, float(solver.prior @ found.loss_K))

    def parameters(self, candidate: Candidate) -> dict[str, Any]:
        """Return the parameters of ``GroupDRONeuron`` for a candidate, except the prior."""
        solver = self._solver(np.arange(len(self.data.y)))
        with running(solver):
            measured = self.measure(solver)
            self.unit = measured.unit
            level, floors = candidate.truncation(self.data.y), None
            if candidate.reference:
                floors = references(solver.variant(truncate=level), measured.average)
        reference = None
        if floors is not None:
            reference = dict(zip(label_list(self.groups.labels), floors.tolist(), strict=True))
        return dict(nu=candidate.strength(self.unit), truncate=level, reference=reference)

    def knows_floors(self) -> bool:
        """Return whether every split has a group large enough for a noise floor."""
        return all(
            large_enough(self.groups.take(train).sizes, self.data.n_coef).any()
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
        weights = self.weights[seen] if self.data.row_weights.size else None
        own = self.groups.take(seen)
        return group_intervals(losses[seen] / times[seen], own, weights, level=level)

    def _solver(self, rows: Array) -> Solver:
        """Open a solver for some rows, which may lack some groups."""
        own = self.groups.take(rows)
        present = np.flatnonzero(own.sizes)
        X = self.data.X[rows] if self.data.is_sparse else take_rows(self.data.X, rows)
        weights = self.weights[rows] if self.data.row_weights.size else None
        prior = self.prior[present] / self.prior[present].sum()
        options = replace(self.options, prior=prior)
        return open_solver(
            X, self.data.y[rows], own.overlap or own.strata, weights, options=options,
            check_input=False,
        )  # fmt: skip

    def _fits(self, rows: Array) -> Array:
        """Return the coefficients of every candidate, intercept last: (C, d + 1)."""
        solver, y = self._solver(rows), self.data.y[rows]
        families: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            families.setdefault(candidate.family, []).append(candidate)
        found: dict[Candidate, Array] = {}
        with running(solver):
            solver.frame  # noqa: B018  measured once, for all variants
            measured = self.measure(solver)
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
        coefs = np.array([found[candidate] for candidate in self.candidates])
        return coefs if self.data.intercept else np.pad(coefs, ((0, 0), (0, 1)))

    def _losses(self, rows: Array, coefs: Array) -> Iterator[tuple[Array, slice]]:
        """Yield losses of some rows under every fit, a block of rows at a time: (rows, C)."""
        sigma = get_activation(self.options.activation)
        W, bias = coefs[:, : self.data.n_features].T, coefs[:, -1]
        size = max(64, BLOCK // max(len(coefs), self.data.n_features))
        for start in range(0, len(rows), size):
            part = slice(start, min(start + size, len(rows)))
            with single_threaded_blas():
                scores = np.asarray(self.data.X[rows[part]] @ W) + bias
            yield (sigma.value(scores) - self.data.y[rows[part], None]) ** 2, part


def references(solver: Solver, average: Array) -> Array | None:
    """Return noise floors of all groups, for labels clipped as in the fit; None if unknown."""
    engine = solver.engine
    if solver.options.truncate is not None:
        engine = engine.variant(truncate=solver.options.truncate)
    losses = engine.evaluate(average, surrogate=False).loss_K
    return filled(noise_floors(solver), losses)


def make_splits(
    groups: RowGroups, n_folds: int, repeats: Any, random_state: Any
) -> list[tuple[Array, Array]]:
    """Make folds stratified by group; at most as many as the largest group has rows."""
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds; got {n_folds!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, Integral) or repeats < 1:
        raise ValueError(f"repeats must be a positive integer; got {repeats!r}")
    largest = int(groups.sizes.max())
    if largest < 2:
        raise ValueError(
            "cross-validation needs a group with two rows or more; got n_samples = "
            f"{groups.n_rows} in {groups.n_groups} group(s) of 1 sample. Merge groups, or fit "
            "GroupDRONeuron"
        )
    state = check_random_state(random_state)
    rng = np.random.default_rng(state.randint(np.iinfo(np.int32).max))
    n_folds = min(n_folds, largest)
    splits = []
    for _ in range(int(repeats)):
        fold = folds_of(groups, n_folds, rng)
        splits += [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]
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
    rows = sorted_numbers(y, found.strata, weights)
    return data, RowGroups.of(found.overlap[rows], len(rows))


def sorted_numbers(y: Array, codes: Any, weights: Any) -> Array:
    """Return the numbers of the user's rows in the order in which they are sorted."""
    column = np.arange(len(y), dtype=float)[:, None]
    return GroupedData.build(column, y, codes, weights, intercept=False).X[:, 0].astype(np.int64)


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
    came = sorted_numbers(y, RowGroups.of(groups, len(y)).strata, weights)
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
