"""Candidates, splits, and the fits of every candidate to every split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.activations import get_activation
from counterpoise.engines.sorting import take_rows
from counterpoise.floors import filled, noise_floors
from counterpoise.groups import GroupedData
from counterpoise.heldout import HeldOut, stratified_folds
from counterpoise.intervals import RiskIntervals, loss_intervals
from counterpoise.solver import prepare, running
from counterpoise.task import Task

Array = np.ndarray

# Predictions made at once: rows times candidates.
BLOCK = 1 << 22
# Held-out risks below this share of the labels' mean square are rounding.
FLOOR = 1e-14


@dataclass(frozen=True)
class Candidate:
    """One way to fit. ``nu`` is a multiple of the average fit's loss if ``relative``; ``pooled``
    is the plain average over rows."""

    nu: float
    relative: bool = True
    pooled: bool = False
    quantile: float | None = None
    reference: bool = False

    @property
    def family(self) -> str:
        """What the candidate has in common with others that differ in ``nu``."""
        if self.pooled:
            return "average"
        words = []
        if self.quantile is not None:
            words.append(f"truncated at {self.quantile:g}")
        if self.reference:
            words.append("reference risks")
        return ", ".join(words) or "plain"

    def strength(self, unit: float) -> float:
        """``nu`` in units of the loss."""
        return self.nu * unit if self.relative and 0 < self.nu < math.inf else self.nu

    def truncation(self, y: Array) -> float | None:
        """The level to clip labels at; None where there is nothing to clip."""
        if self.quantile is None:
            return None
        level = float(np.quantile(np.abs(y), self.quantile))
        return level if level > 0 else None


class Measured(NamedTuple):
    """Of some rows: the unit of ``nu``, the plain average fit, and groups' noise floors."""

    unit: float
    average: Array
    floors: Array | None


@dataclass
class Search:
    """Every candidate, fitted to the training rows of every split and judged on the others.

    ``splits`` number the rows of ``data``; ``options`` are those of ``prepare``.
    """

    data: GroupedData
    candidates: Sequence[Candidate]
    splits: Sequence[tuple[Array, Array]]
    prior: Array
    options: dict[str, Any]
    repeats: int = 1
    coefs: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.codes = self.data.codes
        self.weights = self.data.weights_of(0, len(self.codes))

    def run(self) -> HeldOut:
        """Fit and judge; the coefficients are kept in ``coefs``."""
        sums, totals, K = [], [], self.data.n_groups
        for train, test in self.splits:
            self.coefs.append(self._fits(train))
            codes, weights = self.codes[test], self.weights[test]
            added = np.zeros((len(self.candidates), K))
            for losses, part in self._losses(test, self.coefs[-1]):
                for c, column in enumerate(losses.T):
                    added[c] += np.bincount(codes[part], weights[part] * column, K)
            sums.append(added)
            totals.append(np.bincount(codes, weights, K))
        floor = FLOOR * float(np.average(self.data.y**2, weights=self.weights))
        return HeldOut(np.array(sums), np.array(totals), self.repeats, floor)

    def measure(self, task: Task) -> Measured:
        """What candidates are relative to, on the rows of a task."""
        totals = task.engine.census.totals
        average = task.variant(prior=totals / totals.sum()).fit(math.inf)
        floors = None
        if any(candidate.reference for candidate in self.candidates):
            floors = filled(noise_floors(task), average.losses)
        return Measured(
            float(task.prior @ average.losses), np.append(average.coef, average.intercept), floors
        )

    def on_all_rows(self) -> Measured:
        task = self._task(np.arange(len(self.codes)))
        with running(task):
            return self.measure(task)

    def intervals(self, candidate: int, level: float) -> RiskIntervals:
        """Of held-out losses; a row counts once, however often it was held out."""
        losses, times = np.zeros(len(self.codes)), np.zeros(len(self.codes))
        for (_, test), coefs in zip(self.splits, self.coefs, strict=True):
            for block, part in self._losses(test, coefs[[candidate]]):
                losses[test[part]] += block[:, 0]
                times[test[part]] += 1
        seen = np.flatnonzero(times)
        present, codes = np.unique(self.codes[seen], return_inverse=True)
        weights = self.weights[seen] if self.data.row_weights.size else None
        labels = self.data.labels[present]
        return loss_intervals(losses[seen] / times[seen], labels, codes, weights, level=level)

    def _task(self, rows: Array) -> Task:
        """The problem of some rows, whose groups may be fewer than all."""
        present, codes = np.unique(self.codes[rows], return_inverse=True)
        X = self.data.X[rows] if self.data.is_sparse else take_rows(self.data.X, rows)
        weights = self.weights[rows] if self.data.row_weights.size else None
        prior = self.prior[present] / self.prior[present].sum()
        return prepare(
            X, self.data.y[rows], codes, weights, prior=prior, check_input=False, **self.options
        )

    def _fits(self, rows: Array) -> Array:
        """Coefficients of every candidate, intercept last: (C, d + 1)."""
        task, y = self._task(rows), self.data.y[rows]
        families: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            families.setdefault(candidate.family, []).append(candidate)
        found: dict[Candidate, Array] = {}
        with running(task):
            task.frame  # noqa: B018  measured once, for all variants
            measured = self.measure(task)
            for members in families.values():
                first = members[0]
                if first.pooled:
                    found[first] = measured.average
                    continue
                changes: dict[str, Any] = dict(truncate=first.truncation(y))
                if first.reference and measured.floors is not None:
                    changes["reference"] = measured.floors
                path = task.variant(**changes).path([m.strength(measured.unit) for m in members])
                for member in members:
                    fit = path[member.strength(measured.unit)]
                    found[member] = np.append(fit.coef, fit.intercept)
        return np.array([found[candidate] for candidate in self.candidates])

    def _losses(self, rows: Array, coefs: Array) -> Iterator[tuple[Array, slice]]:
        """Losses of some rows under every fit, a block of rows at a time: (rows, C)."""
        sigma = get_activation(self.options["activation"])
        W, bias = coefs[:, : self.data.n_features].T, coefs[:, -1]
        size = max(64, BLOCK // len(coefs))
        for start in range(0, len(rows), size):
            part = slice(start, min(start + size, len(rows)))
            scores = np.asarray(self.data.X[rows[part]] @ W) + bias
            yield (sigma.value(scores) - self.data.y[rows[part], None]) ** 2, part


def make_splits(
    data: GroupedData, n_folds: int, repeats: Any, random_state: Any
) -> list[tuple[Array, Array]]:
    """Folds stratified by group; fewer if the largest group has fewer rows."""
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds; got {n_folds!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, Integral) or repeats < 1:
        raise ValueError(f"repeats must be a positive integer; got {repeats!r}")
    codes = data.codes
    largest = int(np.diff(data.offsets).max())
    if largest < 2:
        raise ValueError(
            f"cross-validation needs a group with two rows or more; got n_samples = {len(codes)} "
            f"in {data.n_groups} group(s) of 1 sample. Merge groups, or fit GroupDRONeuron"
        )
    state = check_random_state(random_state)
    rng = np.random.default_rng(state.randint(np.iinfo(np.int32).max))
    n_folds = min(n_folds, largest)
    splits = []
    for _ in range(int(repeats)):
        fold = stratified_folds(codes, data.n_groups, n_folds, rng)
        splits += [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]
    return splits


def given_splits(
    cv: Any, data: GroupedData, X: Any, y: Array, groups: Any, weights: Any
) -> list[tuple[Array, Array]]:
    """Splits of a user's rows, as splits of the sorted ``data`` made of them."""
    splitter = hasattr(cv, "split") and not isinstance(cv, str)
    pairs = cv.split(X, y, groups) if splitter else cv
    try:
        numbers = np.arange(len(y))
        # A list without entries is no list of integers to numpy.
        pairs = [[numbers[part] if len(part) else numbers[:0] for part in pair] for pair in pairs]
        pairs = [(train, test) for train, test in pairs]
    except (IndexError, TypeError, ValueError):
        raise ValueError(
            "cv must be a number of folds, a scikit-learn splitter, or pairs of index arrays "
            f"(train, test); got {cv!r}"
        ) from None
    if len(pairs) < 2:
        raise ValueError(f"cv must give at least two splits; got {len(pairs)}")
    # Sort the row numbers as the rows were sorted.
    column = numbers[:, None].astype(float)
    came = GroupedData.build(column, y, groups, weights, intercept=False).X[:, 0].astype(np.int64)
    place = np.full(len(y), -1)
    place[came] = np.arange(len(came))
    splits = []
    for pair in pairs:
        train, test = (np.sort(place[rows][place[rows] >= 0]) for rows in pair)
        if not len(train) or not len(test):
            raise ValueError("cv gave a split with no rows (of positive weight) on one side")
        splits.append((train, test))
    return splits
