"""The search of a cross-validation over rows that stay where they are.

The rows are cut into folds by `FoldCut` and read by their own engine, whose groups are the cells of
this cut. All fits advance in lockstep, so that one read serves them all, and held-out rows are
judged by sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from counterpoise.assessment.diagnosis.floors import large_enough, one_class
from counterpoise.assessment.held_out import HeldOut
from counterpoise.assessment.held_out_sums import (
    CandidateSums,
    ClassMass,
    PairMoments,
    Sums,
    amount_sums,
)
from counterpoise.assessment.measures import Measure
from counterpoise.assessment.record import AbsoluteErrors
from counterpoise.common.progress import stage
from counterpoise.estimators.designs import Candidate, Design
from counterpoise.estimators.folds import CutRows
from counterpoise.estimators.search import Judgement, Moments, check_folds
from counterpoise.losses import NeuronLoss
from counterpoise.rows.census import Census
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.cells import CellsEngine
from counterpoise.rows.engines.overlapping import OverlappingEngine
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.groups import label_list
from counterpoise.rows.sample import RowSample
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solver import Solver

Array = np.ndarray
# Opens the engine of all rows, or of the cells that they are cut into.
Opener = Callable[[FoldCut | None], SumEngine]


@dataclass(frozen=True)
class Outline:
    """What a design needs to know of rows that it does not have; ``y`` is a sample of labels."""

    y: Array
    n_features: int
    intercept: bool

    @property
    def n_coef(self) -> int:
        return self.n_features + int(self.intercept)


@dataclass(frozen=True)
class GroupSizes:
    """The groups of such rows, and how many rows they have."""

    labels: Array
    sizes: Array

    @property
    def n_groups(self) -> int:
        return len(self.labels)


@dataclass
class FarDesign(Design):
    """Candidates that are fitted to rows that stay where they are.

    ``cuts`` are partitions of the same rows into folds. Levels of truncation come from a sample of
    the labels, and are the same for all folds.
    """

    cuts: Sequence[CutRows] = ()

    def __post_init__(self) -> None:
        self.weights = np.empty(0)

    def solver(self, rows: Array) -> Solver:
        """Open a solver for all rows."""
        cut = self.cuts[0]
        everything = np.ones(len(cut.codes_A), dtype=bool)
        return self._solver_of(CellsEngine(cut.engine, cut.codes_A, cut.labels, everything))

    def fits(self, splits: Sequence[tuple[Array, Any]] = ()) -> list[Array]:
        """Fit every candidate to the training rows of every fold, one partition after the other."""
        out: list[Array] = []
        for cut in self.cuts:
            whole: Any = slice(None)  # of the sample of labels
            out += self._fit_together(cut, [whole] * len(cut.kept_SA))
        return out


class FarSearch:
    """Fits of every candidate to all folds but one, judged on the rows of that fold.

    Attributes
    ----------
    design : FarDesign
    folds : list of arrays of shape (A,)
        For every partition, the fold that holds out each cell; -1 if none does.
    """

    def __init__(self, design: FarDesign, folds: list[Array], classes: Array | None = None) -> None:
        self._design, self.folds, self.classes = design, folds, classes
        self.designs = [design]
        self.groups, self.measure = design.groups, design.measure
        self.candidates: list[Candidate] = list(design.candidates)
        self.coefs: list[Array] = []
        self.factors: list[Array | None] = []

    @classmethod
    def over(
        cls, parts: Partitions, candidates: Sequence[Candidate], prior: Array, options: FitOptions,
        measure: Measure, classes: Array | None = None,
    ) -> FarSearch:  # fmt: skip
        """Set up the search over rows that are cut into folds; labels number the ``classes``."""
        census = parts.census
        data: Any = Outline(parts.typical, census.n_features, census.intercept)
        groups: Any = GroupSizes(census.labels, parts.sizes)
        design = FarDesign(data, groups, candidates, prior, options, measure, cuts=parts.cuts)
        if not knows_floors(design, measure.loss.n_scores):
            plain = dict.fromkeys(replace(candidate, reference=False) for candidate in candidates)
            design.candidates = list(plain)
        return cls(design, parts.folds, classes)

    def design(self, index: int) -> Design:
        return self._design

    @property
    def pooled(self) -> list[int]:
        """Indices of the plain averages over rows, which differ in ``alpha``."""
        return [i for i, candidate in enumerate(self.candidates) if candidate.pooled]

    def plain(self, heldout: HeldOut) -> int:
        """Return the plain average with the lowest held-out average risk."""
        return min(self.pooled, key=lambda i: float(heldout.average[i]))

    def strengths(self) -> tuple[Array, Array]:
        """Return the ``nu`` of every candidate on all rows, and its unit."""
        design = self._design
        design.measure_units()
        nus = [design.strength(candidate) for candidate in self.candidates]
        return np.array(nus), np.array([design.units[one.alpha] for one in self.candidates])

    def run(self) -> HeldOut:
        """Fit and judge all candidates, keeping their coefficients in ``coefs``."""
        stage("cross-validation", 0.0)
        self.factors = [self._factors(cut) for cut in self._design.cuts]
        fits = self._design.fits()
        F, K = len(fits) // len(self.folds), self.groups.n_groups
        C = len(self.candidates)
        self.coefs = [np.array(fits[r * F : (r + 1) * F]) for r in range(len(self.folds))]
        sums, totals = np.zeros((len(fits), C, K)), np.zeros((len(fits), K))
        squares, moments = np.zeros((len(fits), K)), Moments(C, K)
        for r, (cut, fold_A) in enumerate(zip(self._design.cuts, self.folds, strict=True)):
            question = CandidateSums(self.measure, self.coefs[r], fold_A, self.factors[r])
            found = Sums.of(cut.engine.ask(question), C)
            held = np.flatnonzero(fold_A >= 0)
            at = (r * F + fold_A[held], cut.codes_A[held])
            sums[at[0], :, at[1]], totals[at] = found.amounts[held], found.mass[held]
            squares[at] = found.squares[held]
            np.add.at(moments.count, cut.codes_A, found.squares)
            np.add.at(moments.first, cut.codes_A, found.first)
            np.add.at(moments.second, cut.codes_A, found.second)
        stage(None)
        measure = self.measure
        return HeldOut(
            sums, totals, squares, moments.spread(), len(self.folds), measure.floor,
            measure.bounded, measure.rooted,
        )  # fmt: skip

    def _factors(self, cut: CutRows) -> Array | None:
        """Return the factors of weights by class, for every cell.

        All rows of a class must not be in the same fold, as no other fold could then learn it.
        """
        if self.classes is None:
            return None
        C, labels = len(self.classes), label_list(self.classes)
        mass_AC = cut.engine.ask(ClassMass(C))
        for c in range(C):
            if (cut.kept_SA @ mass_AC[:, c] == 0).any():
                raise ValueError(
                    f"cross-validation needs rows of every class in two folds or more, but class "
                    f"{labels[c]!r} has too few rows; give more rows of it, or fit without "
                    "cross-validation"
                )
        mass_KC = np.zeros((self.groups.n_groups, C))
        np.add.at(mass_KC, cut.codes_A, mass_AC)
        factor_KC = self.measure.class_factors(mass_KC)
        return None if factor_KC is None else factor_KC[cut.codes_A]

    def judge(self, heldout: HeldOut, plain: int, fair: Sequence[int], level: float) -> Judgement:
        """Judge the plain average, and the choice that every fold had no part in."""
        cut, fold_A = self._design.cuts[0], self.folds[0]
        K, F = self.groups.n_groups, len(fair)
        both = np.stack([self.coefs[0][:, plain], self.coefs[0][np.arange(F), fair]], axis=1)
        totals = heldout.totals[:F].sum(axis=0)
        risks = [
            sum(heldout.sums[f, c] for f, c in enumerate(chosen)) / np.where(totals > 0, totals, 1)
            for chosen in ([plain] * F, fair)
        ]
        centre_K2 = np.stack(risks, axis=1)
        unit = float(centre_K2.max()) or 1.0
        loss = self.measure.loss
        activation = loss.activation if isinstance(loss, NeuronLoss) else None
        answer = cut.engine.ask(PairMoments(
            self.measure, both, fold_A, self.factors[0], centre_K2[cut.codes_A], unit, activation
        ))  # fmt: skip
        sums_K = np.zeros((K, *answer.shape[1:]))
        np.add.at(sums_K, cut.codes_A, answer)
        mass = sums_K[:, 0, 0].sum()
        averages = [float(totals @ risk / mass) for risk in risks]
        own = [amount_sums(sums_K[:, i], centre_K2[:, i], unit) for i in range(2)]
        intervals = [self.measure.intervals_of(sums, self.groups.labels, level) for sums in own]
        absolute = None
        if activation is not None:
            weights, off = sums_K[:, :, 6], sums_K[:, :, 7]
            means = np.full(off.shape, np.nan)
            np.divide(off, weights, out=means, where=weights > 0)
            over_all = off.sum(axis=0) / weights.sum(axis=0)
            absolute = AbsoluteErrors(
                plain=means[:, 0], ours=means[:, 1],
                plain_average=float(over_all[0]), ours_average=float(over_all[1]),
            )  # fmt: skip
        return Judgement(intervals[0], intervals[1], averages[0], averages[1], absolute)


@dataclass(frozen=True)
class Partitions:
    """The rows cut into folds, several times.

    Attributes
    ----------
    census : Census
        Of the groups.
    sizes : array of shape (K,)
        Rows of every group.
    typical : array
        A sample of the labels, with the same share of every group's rows.
    cuts : list of CutRows
    folds : list of arrays of shape (A,)
        The fold that holds out each cell; -1 if none does.
    """

    census: Census
    sizes: Array
    typical: Array
    cuts: list[CutRows]
    folds: list[Array]


def partitions(open_rows: Opener, n_folds: int, repeats: Any, random_state: Any) -> Partitions:
    """Cut the rows into folds, once for every repeat."""
    whole = open_rows(None)
    if isinstance(whole, OverlappingEngine):
        raise ValueError(
            "cross-validation needs one group per row unless rows are in memory; got groups that "
            "overlap. Choose on a sample of the rows, then fit with best_params_ to all of them"
        )
    census, sample = whole.census, whole.sample()
    del whole  # which may keep the rows on workers, where cells need the room
    n_folds = check_folds(n_folds, repeats, sample.counts, census.n_rows)
    seed = random_state
    if not isinstance(seed, Integral):
        seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
    out = Partitions(census, sample.counts, typical_labels(sample), [], [])
    for repeat in range(int(repeats)):
        cut = FoldCut(census.labels, n_folds, int(seed) + repeat)
        engine = open_rows(cut)
        codes_A, fold_A = cut.origin(engine.census.labels)
        # Rows of a group that all fell into one fold are never held out.
        alone = np.bincount(codes_A, minlength=census.n_groups) == 1
        fold_A = np.where(alone[codes_A], -1, fold_A)
        kept_SA = fold_A != np.arange(n_folds)[:, None]
        if kept_SA.all(axis=1).any():
            raise ValueError(
                f"cross-validation needs rows to hold out in each of {n_folds} folds; got "
                f"n_samples = {census.n_rows}. Use fewer folds, or fit without cross-validation"
            )
        out.cuts.append(CutRows(engine, codes_A, kept_SA, census.labels))
        out.folds.append(fold_A)
    return out


def typical_labels(sample: RowSample) -> Array:
    """Return labels of a sample that has the same share of every group's rows."""
    drawn = np.bincount(sample.codes, minlength=len(sample.counts))
    share = float((drawn / np.maximum(sample.counts, 1)).min())
    first = np.searchsorted(sample.codes, sample.codes)  # codes are sorted
    wanted = np.ceil(share * sample.counts)[sample.codes]
    return np.asarray(sample.y[np.arange(len(first)) - first < wanted])


def knows_floors(design: FarDesign, n_scores: int) -> bool:
    """Return whether every fold leaves a group large enough for a noise floor."""
    count = design.data.n_coef * max(1, n_scores - 1)
    mixed = np.ones(design.groups.n_groups, dtype=bool)
    if design.options.loss is not None:
        mixed = ~one_class(design.solver(np.empty(0)).engine)
    for cut in design.cuts:
        rows_A = cut.engine.sample().counts
        for kept in cut.kept_SA:
            sizes = np.bincount(cut.codes_A[kept], rows_A[kept], design.groups.n_groups)
            if not (large_enough(sizes, count) & mixed).any():
                return False
    return True
