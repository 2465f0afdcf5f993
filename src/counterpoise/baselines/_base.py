"""Code shared by the baselines: from rows to a fit, option checks, and starting points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from counterpoise.activations import Activation
from counterpoise.estimators.base import Neuron
from counterpoise.estimators.neuron import NEURON, GroupDRONeuron, plain_average
from counterpoise.rows.backends import backend_of
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver import coordinates as coords
from counterpoise.solver.options import FitOptions
from counterpoise.solver.problem import Problem
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solve import open_solver
from counterpoise.solver.solver import Solver
from counterpoise.solver.stacked import Stacked
from counterpoise.solver.units import check_units, mean_squares

Array = np.ndarray

# The scores of a random start are about this share of the labels' standard deviation.
SMALL = 0.1
# A variance below this share of the squares it was computed from is rounding.
ROUNDING = 1e-10


class Baseline(Neuron):
    """A neuron; subclasses implement the method that fits it."""

    activation: str | Activation
    fit_intercept: bool
    max_iter: int

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the neuron; parameters as in :meth:`counterpoise.GroupDRONeuron.fit`."""
        self._check_flags("fit_intercept")
        self._check()
        X, y, sample_weight = self._checked(X, y, sample_weight)
        with single_threaded_blas():
            found = self._find(X, y, groups, sample_weight)
        self._keep(X, (y, groups, sample_weight), found)
        return self

    def plain_twin(self) -> GroupDRONeuron:
        """The same neuron, unfitted, for the plain average over rows."""
        return plain_average(self, NEURON)  # max_iter and tol have other meanings here

    def _check(self) -> None:
        """Raise ValueError for invalid options, before any row is read."""

    def _find(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Outcome:
        raise NotImplementedError(type(self).__name__)

    def _open(self, X: Any, y: Any, groups: Any, sample_weight: Any, **options: Any) -> Solver:
        """Open the rows and check the options, as ``solve`` does."""
        asked = FitOptions.of(self, polish=False, **options)
        return open_solver(X, y, groups, sample_weight, options=asked, check_input=False)


def outcome(engine: SumEngine, w: Array, **found: Any) -> Outcome:
    """Make the outcome for the user's coefficients ``w``, intercept last."""
    return Outcome(
        coef=w[: engine.n_features].copy(),
        intercept=float(w[-1]) if engine.census.intercept else 0.0,
        labels=engine.census.labels,
        n_passes=engine.passes,
        **found,
    )


def standardised(
    engine: SumEngine, prior: Array, radius: float | None = None
) -> coords.Coordinates:
    """Return coordinates of standardised features, with groups weighted by ``prior``.

    Features are centred only if there is an intercept. Takes two passes. The mean and deviation
    are exact, because methods with a fixed number of steps depend on the coordinates.
    """
    d, (squares, units) = engine.n_features, mean_squares(engine, prior)
    if units is not None:
        check_units(units, "scale", radius)
    if not engine.census.intercept:
        return coords.scaled(squares, np.zeros(d), False, radius, units)
    ones = np.zeros((engine.n_groups, d + 1))
    ones[:, d] = 1.0
    mean = prior @ engine.apply_moments(ones)[:, :d]
    offset = ((mean - engine.shift) * (1.0 if units is None else units)) ** 2
    squares[:d] -= offset
    squares[:d][squares[:d] < ROUNDING * offset] = 0.0  # constant columns
    return coords.scaled(squares, mean, True, radius, units)


def true_evaluate(problem: Problem, u: Array) -> GroupEval:
    """Return losses and true gradients at ``u``, with the left slope at ``u = 0``.

    At other points, almost no row is at a kink.
    """
    found = problem.evaluate(u, surrogate=False)
    assert isinstance(problem.engine, SumEngine)
    sigma = problem.engine.activation
    if sigma.has_kink and not u.any():
        return GroupEval(found.loss_K, float(sigma.left_slope(np.zeros(1))[0]) * found.grad_KD)
    return found


def first_point(
    start: Any, coordinates: coords.Coordinates | Stacked, n_coef: int, size: float, rng: Any
) -> Array:
    """Return the first iterate: zero, a random point, or the user's coefficients.

    The scores of a random point have about the given ``size``.
    """
    assert isinstance(coordinates, coords.Coordinates)
    if isinstance(start, str) and start == "zero":
        return np.zeros(coordinates.size)
    if isinstance(start, str):
        d = len(coordinates.shift)
        w = rng.normal(size=d)  # for standardised features, whatever the solver's coordinates
        if coordinates.basis.ndim == 1:
            w *= coordinates.basis[:d]
        elif coordinates.scale is not None:
            w /= coordinates.scale
        if coordinates.intercept:
            mean = coordinates.mean  # mean of the shifted features
            w = np.append(w, -w @ (coordinates.shift + (0.0 if mean is None else mean)))
        u = coordinates.from_user(w)
        norm = float(np.linalg.norm(u))
        return coordinates.project(u * (size / norm)) if norm > 0 else u
    w = np.asarray(start, dtype=float)
    if w.shape != (n_coef,):
        raise ValueError(
            f"start must hold {n_coef} coefficients for these rows (the intercept last, if any); "
            f"got shape {w.shape}"
        )
    return coordinates.project(coordinates.from_user(w))


def check_start(start: Any) -> None:
    """Check that ``start`` is a known name or an array of finite numbers."""
    if isinstance(start, str):
        if start not in ("zero", "random"):
            raise ValueError(
                f"start={start!r} is not known; use 'zero', 'random' or an array of coefficients"
            )
        return
    try:
        finite = np.isfinite(np.asarray(start, dtype=float)).all()
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise ValueError(
            f"start must be 'zero', 'random' or an array of finite coefficients; got {start!r}"
        )


def check_number(name: str, value: Any, *, zero: bool = False, auto: bool = False) -> None:
    """Check for a positive finite number; ``zero`` and ``auto`` also allow 0 and "auto"."""
    if auto and isinstance(value, str) and value == "auto":
        return
    number = isinstance(value, (int, float, np.integer, np.floating))
    good = number and not isinstance(value, bool) and math.isfinite(value)
    if not (good and (value > 0 or (zero and value == 0))):
        what = "a finite number >= 0" if zero else "a positive finite number"
        raise ValueError(
            f"{name} must be {what}{' or ' + repr('auto') if auto else ''}; got {value!r}"
        )


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}")


def require_memory(X: Any, what: str, remedy: str) -> None:
    """Raise ValueError if the rows are not in memory, before reading any."""
    if backend_of(X).in_place(X):
        raise ValueError(
            f"{what} needs its rows in memory; got X of type {type(X).__name__}. {remedy}"
        )


def in_memory(solver: Solver) -> MemoryEngine:
    assert isinstance(solver.engine, MemoryEngine)
    return solver.engine


Prior = Array | Mapping[Any, float] | str | None
