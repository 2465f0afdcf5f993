"""Designs: the candidates of a cross-validation that share their features, and how they are fitted.

`Design` fits the features as given, or with indicators of a known group beside them. `OwnDesign`
fits every group for itself, more or less pooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from counterpoise.assessment.diagnosis.floors import filled, large_enough, noise_floors
from counterpoise.assessment.measures import Measure
from counterpoise.estimators.by_group import by_group, group_scores, own_fits
from counterpoise.estimators.folds import CutRows, fitted_together
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.cells import CellsEngine
from counterpoise.rows.engines.lockstep import in_lockstep
from counterpoise.rows.group_indicators import with_indicators
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.indexed import in_order
from counterpoise.rows.memberships import RowGroups
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running, solver_for
from counterpoise.solver.solver import Solver

Array = np.ndarray

# Candidates are fitted to this relative accuracy: the noise of held-out rows exceeds it by far.
CANDIDATE_TOL = 1e-5
# Fits in lockstep may take so many numbers at once for a matrix of every cell.
MOST_NUMBERS = 1 << 26
# How a group that is known at prediction enters a fit.
UNUSED, FEATURE, OWN = "", "group as a feature", "one fit per group"


@dataclass(frozen=True)
class Candidate:
    """A set of options to try.

    If ``relative``, ``nu`` is a multiple of the average fit's loss. ``pooled`` marks the plain
    average over rows. ``quantile`` is of the labels of a neuron, and ``alpha`` the ridge of other
    models; ``shows_alpha`` if others have another one. ``group`` says how a group that is known at
    prediction enters, and ``pull`` how strongly fits of groups are pooled.
    """

    nu: float
    relative: bool = True
    pooled: bool = False
    quantile: float | None = None
    reference: bool = False
    alpha: float | None = None
    shows_alpha: bool = False
    group: str = UNUSED
    pull: float = 0.0

    @property
    def family(self) -> str:
        """Name of the options that the candidate shares with others that differ in ``nu``."""
        words = [f"alpha {self.alpha:g}"] if self.shows_alpha else []
        if self.group == OWN:
            return ", ".join(
                [f"partial pooling, {self.pull:g}" if self.pull else "own fits", *words]
            )
        if self.group == FEATURE:
            words.append(FEATURE)
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
class Design:
    """Candidates that are fitted to the same features.

    ``groups`` of the rows of ``data`` may overlap; ``options`` are shared by all fits.
    """

    data: GroupedData
    groups: RowGroups
    candidates: Sequence[Candidate]
    prior: Array
    options: FitOptions
    measure: Measure
    units: dict[float | None, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = self.data.weights_of(0, len(self.data.y))

    def average(self, solver: Solver) -> Measured:
        """Fit the plain average to a solver's rows, as the reference for the candidates."""
        coef, found = solver.average()
        return Measured(coef, float(solver.prior @ found.loss_K))

    def measure_units(self) -> None:
        """Fit the plain averages to all rows; their losses are the units of ``nu``."""
        if not self.units:
            whole = self.solver(np.arange(len(self.data.y)))
            with running(whole):
                for alpha in dict.fromkeys(other.alpha for other in self.candidates):
                    self.units[alpha] = self.average(_with_ridge(whole, alpha)).unit

    def parameters(self, candidate: Candidate) -> dict[str, Any]:
        """Return the options of the estimator for a candidate, except the prior."""
        self.measure_units()
        level, floors = candidate.truncation(self.data.y), None
        if candidate.reference:
            whole = self.solver(np.arange(len(self.data.y)))
            with running(whole):
                solver = _with_ridge(whole, candidate.alpha)
                average = self.average(solver).average
                floors = references(solver.variant(truncate=level), average)
        reference = None
        if floors is not None:
            reference = dict(zip(label_list(self.groups.labels), floors.tolist(), strict=True))
        out = dict(nu=self.strength(candidate), reference=reference)
        if candidate.alpha is None:
            return {**out, "truncate": level}
        return {**out, "alpha": candidate.alpha}

    def strength(self, candidate: Candidate) -> float:
        """Return the ``nu`` of a candidate on all rows, once the units are measured."""
        return candidate.strength(self.units[candidate.alpha])

    def knows_floors(self, splits: Sequence[tuple[Array, Array]]) -> bool:
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
            for train, _ in splits
        )

    def solver(self, rows: Array) -> Solver:
        """Open a solver for some rows, which may lack some groups."""
        own = self.groups.take(rows)
        X = self.data.X[rows] if self.data.is_sparse else in_order(self.data.X, rows)
        weights = self.weights[rows] if self.data.row_weights.size else None
        groups = own.strata if own.overlap is None else own.overlap
        options = self._options_for(np.flatnonzero(own.sizes))
        return open_solver(
            X, self.data.y[rows], groups, weights, options=options, check_input=False
        )

    def _solver_of(self, engine: SumEngine) -> Solver:
        """Return a solver for an engine, which may lack some groups."""
        present = np.searchsorted(self.groups.labels, engine.census.labels)
        return solver_for(engine, self._options_for(present))

    def _options_for(self, present: Array) -> FitOptions:
        """Return the options for rows of these groups."""
        return replace(self.options, prior=self.prior[present] / self.prior[present].sum())

    def fits(self, splits: Sequence[tuple[Array, Array]]) -> list[Array]:
        """Fit every candidate to the training rows of every split.

        The result of a split has shape (C, scores, d + 1), with intercepts last. Fits of different
        splits and families run in lockstep, so that one read of the rows serves them all.
        """
        if self.groups.overlap is not None:
            return [self._fitted(train) for train, _ in splits]
        out: list[Array] = []
        for run, parts, kept in fitted_together(splits, len(self.data.y)):
            if not self._at_once(self.groups.n_groups * kept.shape[1]):
                out += [self._fitted(splits[s][0]) for s in run]
                continue
            loss, centred = self.options.row_loss(), self.options.precondition is not None
            rows = CutRows.of(self.data, parts, kept, loss, centred=centred)
            with single_threaded_blas():
                out += self._fit_together(rows, [splits[s][0] for s in run])
        return out

    def _at_once(self, cells: int) -> int:
        """Return how many fits may ask for a matrix of every cell at once."""
        return MOST_NUMBERS // (cells * (self.data.n_coef * self.measure.loss.n_scores) ** 2)

    def _fitted(self, rows: Array) -> Array:
        """Fit every candidate to some rows."""
        whole = self.solver(rows)
        found: dict[Candidate, Array] = {}
        measured: dict[float | None, Measured] = {}
        with running(whole):
            whole.frame  # noqa: B018  measured once, for all variants
            for family in self._families():
                alpha = family[0].alpha
                solver = _with_ridge(whole, alpha)
                if alpha not in measured:
                    measured[alpha] = self.average(solver)
                found |= self._follow(solver, family, measured[alpha], self.data.y[rows])
        return self._stacked(found)

    def _fit_together(self, rows: CutRows, trains: Sequence[Array]) -> list[Array]:
        """Fit every candidate to all training sets in lockstep."""
        alphas = dict.fromkeys(candidate.alpha for candidate in self.candidates)

        def averages(s: int, seat: SumEngine) -> dict[float | None, tuple[Solver, Measured]]:
            solver = self._solver_of(rows.training(s, seat))
            solvers = {alpha: _with_ridge(solver, alpha) for alpha in alphas}
            return {alpha: (own, self.average(own)) for alpha, own in solvers.items()}

        some = max(1, self._at_once(rows.engine.n_groups))
        solved = in_lockstep(rows.engine, [partial(averages, s) for s in range(len(trains))], some)

        def paths(s: int, family: list[Candidate], seat: SumEngine) -> dict[Candidate, Array]:
            solver, measured = solved[s][family[0].alpha]
            engine = solver.engine
            assert isinstance(engine, CellsEngine)
            return self._follow(
                solver.reading(engine.over(seat)), family, measured, self.data.y[trains[s]]
            )

        jobs = [(s, family) for s in range(len(trains)) for family in self._families()]
        ended = in_lockstep(rows.engine, [partial(paths, s, family) for s, family in jobs], some)
        found: list[dict[Candidate, Array]] = [{} for _ in trains]
        for (s, _), coefs in zip(jobs, ended, strict=True):
            found[s] |= coefs
        return [self._stacked(coefs) for coefs in found]

    def _stacked(self, found: dict[Candidate, Array]) -> Array:
        return self.padded(np.array([found[candidate] for candidate in self.candidates]))

    def padded(self, coefs: Array) -> Array:
        """Return coefficients with the scores as an axis, and intercepts of 0 where none is fit."""
        coefs = coefs.reshape(len(coefs), self.measure.loss.n_scores, -1)
        return coefs if self.data.intercept else np.pad(coefs, ((0, 0), (0, 0), (0, 1)))

    def _families(self) -> list[list[Candidate]]:
        """Return the candidates that differ in ``nu`` alone, together."""
        families: dict[Any, list[Candidate]] = {}
        for candidate in self.candidates:
            families.setdefault((candidate.alpha, candidate.family), []).append(candidate)
        return list(families.values())

    def _follow(
        self, solver: Solver, members: Sequence[Candidate], measured: Measured, y: Array
    ) -> dict[Candidate, Array]:
        """Fit the candidates of a family, each from the one before and all from the average."""
        first = members[0]
        if first.pooled:
            return {first: measured.average}
        own = solver.variant(truncate=first.truncation(y))
        if first.reference:
            floors = references(own, measured.average)
            own = own if floors is None else own.variant(reference=floors)
        strengths = [member.strength(measured.unit) for member in members]
        tol = max(solver.options.tol, CANDIDATE_TOL)
        ends = own.points(strengths, measured.average, tol=tol)
        return {member: ends[nu] for member, nu in zip(members, strengths, strict=True)}

    def scores(self, rows: Array, coefs: Array) -> Array:
        """Return the scores of some rows under every fit: (rows, C, S)."""
        C, S, _ = coefs.shape
        W = coefs[:, :, : self.data.n_features].reshape(C * S, -1).T
        with single_threaded_blas():
            found = np.asarray(self.data.X[rows] @ W) + coefs[:, :, -1].reshape(-1)
        return found.reshape(len(rows), C, S)


@dataclass
class OwnDesign(Design):
    """Fits of every group for itself, pulled towards those with the group as a feature.

    ``beside`` has the same rows, with indicators of the groups; ``base`` is the group without one.
    """

    beside: GroupedData | None = None
    base: int | None = None

    def measure_units(self) -> None:
        self.units = {candidate.alpha: math.nan for candidate in self.candidates}

    def strength(self, candidate: Candidate) -> float:
        return candidate.nu

    def fits(self, splits: Sequence[tuple[Array, Array]]) -> list[Array]:
        """Fit every candidate: an array of shape (C, K, scores, d + 1) for every split."""
        return [self._fitted(train) for train, _ in splits]

    def _fitted(self, rows: Array) -> Array:
        pooled = self.pooled(rows)
        X = self.data.X[rows] if self.data.is_sparse else in_order(self.data.X, rows)
        y, codes, weights = self.data.y[rows], self.groups.strata[rows], self.weights[rows]
        return np.array(
            [
                own_fits(X, y, codes, weights, pooled, self._options(candidate), candidate.pull)
                for candidate in self.candidates
            ]
        )

    def pooled(self, rows: Array) -> Array:
        """Return the coefficients of every group with the group as a feature: (K, S, d + 1)."""
        assert self.beside is not None
        beside = Design(
            self.beside, self.groups, self.candidates, self.prior, self.options, self.measure
        )
        solver = beside.solver(rows)
        with running(solver):
            coef = _with_ridge(solver, self.candidates[0].alpha).average()[0]
        whole = beside.padded(np.asarray(coef)[None])[0]
        return by_group(whole, self.data.n_features, self.groups.n_groups, self.base)

    def _options(self, candidate: Candidate) -> FitOptions:
        if candidate.alpha is None:
            return self.options
        return replace(self.options, ridge=candidate.alpha)

    def scores(self, rows: Array, coefs: Array) -> Array:
        X, codes = self.data.X[rows], self.groups.strata[rows]
        with single_threaded_blas():
            return np.stack([group_scores(X, codes, own) for own in coefs], axis=1)


def known_group(
    design: Design,
    X: Any,
    groups: RowGroups,
    features: Sequence[Candidate],
    own: Sequence[Candidate],
    build: Any,
) -> list[Design]:
    """Return the designs of candidates that use the group: as a feature, and one fit each.

    ``X`` and ``groups`` are the user's rows; ``build`` sorts features as the design's rows are.
    """
    base = base_group(design)
    data = build(with_indicators(X, group_numbers(design, groups), design.groups.n_groups, base))
    given = (design.groups, features, design.prior, design.options, design.measure)
    out = [Design(data, *given)]
    if own:
        out.append(OwnDesign(
            design.data, design.groups, own, design.prior, design.options, design.measure,
            beside=data, base=base,
        ))  # fmt: skip
    return out


def group_numbers(design: Design, groups: RowGroups) -> Array:
    """Number the groups of the user's rows as the design does; 0 for groups without weight."""
    number = {label: k for k, label in enumerate(label_list(design.groups.labels))}
    numbers = [number.get(label, 0) for label in label_list(groups.labels)]
    return np.array(numbers, dtype=np.int64)[groups.strata]


def base_group(design: Design) -> int | None:
    """Return the group without an indicator: the largest, or none without an intercept."""
    return int(np.argmax(design.groups.sizes)) if design.data.intercept else None


def _with_ridge(solver: Solver, alpha: float | None) -> Solver:
    return solver if alpha in (None, solver.options.ridge) else solver.variant(ridge=alpha)


def references(solver: Solver, average: Array) -> Array | None:
    """Return noise floors of all groups, for labels clipped as in the fit; None if unknown."""
    engine = solver.engine
    if solver.options.truncate is not None:
        engine = engine.variant(truncate=solver.options.truncate)
    losses = engine.evaluate(average, surrogate=False).loss_K
    return filled(noise_floors(solver, average), losses)
