"""Sizes that squares cannot hold: units of features, and the range of labels.

The solver squares features and labels. A feature of 1e-170 or 1e170 has a square that is zero or
infinite in double precision. Such a feature is measured in a power of two of its own, which costs
no digits. Labels have no such freedom, because their squares are what is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.losses import NeuronLoss
from counterpoise.rows.census import Census
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question

Array = np.ndarray

# Mean squares within these bounds leave room for sums, products and squares of gradients.
LEAST_SQUARE, LARGEST_SQUARE = 2.0**-700, 2.0**700
# Labels between these have squares, and shares of squares, that double precision can hold.
LEAST_LABEL, LARGEST_LABEL = 1e-90, 1e140
# A constant above this size hides no variation whose square vanishes.
PLAIN_SHIFT = 1e-140
LARGEST_EXPONENT = 1000


@dataclass(frozen=True, eq=False)
class Magnitudes(Question):
    """Sums of ``|x - shift|`` for every feature: (K, d)."""

    alike = True

    shift: Array

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        if sparse.issparse(X):
            return np.asarray(abs(X).T @ weights, dtype=float).ravel()
        return weights @ np.abs(X - self.shift)


@dataclass(frozen=True, eq=False)
class UnitSquares(Question):
    """Sums of ``((x - shift) units)^2`` for every feature: (K, d)."""

    alike = True

    shift: Array
    units: Array

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        if sparse.issparse(X):
            return np.asarray((X.multiply(self.units).power(2)).T @ weights, dtype=float).ravel()
        return weights @ ((X - self.shift) * self.units) ** 2


def feature_units(engine: SumEngine, squares: Array) -> Array | None:
    """Return a power of two for every feature, or None if features can be squared as they are.

    ``squares`` are the mean squares of the shifted features. Ordinary features need no pass; a
    column of zeros needs one, to tell it from one whose squares vanish.
    """
    shift = engine.shift
    check_centre(shift)
    squares = squares[: len(shift)]
    vanished = squares == 0
    empty = vanished & (shift == 0)
    extreme = ~((squares > LEAST_SQUARE) & (squares < LARGEST_SQUARE))
    extreme &= ~(vanished & (np.abs(shift) > PLAIN_SHIFT)) & ~empty
    if empty.any() and not _all_zero(engine, empty):
        extreme |= empty
    if not extreme.any():
        return None
    with np.errstate(over="ignore"):
        sums = engine.ask(Magnitudes(shift))
        sizes = (sums / engine.census.totals[:, None]).max(axis=0) + np.abs(shift)
    units = np.where(extreme, powers_of_two(sizes), 1.0)
    return units if (units != 1.0).any() else None


def powers_of_two(sizes: Array) -> Array:
    """Return factors, powers of two, that make these sizes ordinary; 1 for a size of zero."""
    finite = np.where(np.isfinite(sizes), sizes, np.finfo(float).max)
    exponents = np.clip(np.frexp(finite)[1], -LARGEST_EXPONENT, LARGEST_EXPONENT)
    return np.where(sizes > 0, np.ldexp(1.0, -exponents), 1.0)


def sample_units(X: Array) -> Array | None:
    """Return units for centred rows in memory; None if they need none."""
    sizes = np.abs(X).max(axis=0, initial=0.0)
    extreme = (sizes > 0) & ~((sizes > LEAST_SQUARE**0.5) & (sizes < LARGEST_SQUARE**0.5))
    return np.where(extreme, powers_of_two(sizes), 1.0) if extreme.any() else None


def mean_squares(engine: SumEngine, weights_K: Array) -> tuple[Array, Array | None]:
    """Compute what ``engine.mean_squares`` does, in units if features need them."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = engine.mean_squares(weights_K)
    units = feature_units(engine, squares)
    return (squares if units is None else unit_squares(engine, weights_K, units)), units


def unit_squares(engine: SumEngine, weights_K: Array, units: Array) -> Array:
    """Compute the mean squares of shifted features in their ``units``."""
    sums = engine.ask(UnitSquares(engine.shift, units))
    means = (weights_K / engine.census.totals) @ sums
    return np.append(means, 1.0) if engine.census.intercept else means


def check_units(units: Array, precondition: str | None, radius: float | None) -> None:
    """Raise ValueError for options that refer to the features' own units."""
    for name, value in (("precondition", precondition), ("radius", radius)):
        if (value is None) == (name == "precondition"):
            where = int(np.flatnonzero(units != 1.0)[0])
            raise ValueError(
                f"{name}={value!r} needs features whose squares double precision can hold, and "
                f"feature {where} has a typical size of {1.0 / units[where]:.0e}; multiply the "
                "column by a power of ten"
            )


def check_centre(shift: Array) -> None:
    """Raise ValueError if the features are so large that their mean overflows."""
    bad = np.flatnonzero(~np.isfinite(shift))
    if len(bad):
        raise ValueError(
            f"X: feature {int(bad[0])} has values near the largest double, so its mean overflows; "
            "divide the column by a power of ten"
        )


def check_label_sizes(census: Census, truncate: float | None = None) -> None:
    """Raise ValueError if squared errors cannot be held in double precision.

    Labels are clipped to ``[-truncate, truncate]`` first.
    """
    largest = census.label_size if truncate is None else min(census.label_size, truncate)
    if largest > LARGEST_LABEL:
        raise ValueError(
            f"y: labels reach {largest:.3g}, so squared errors overflow; divide y by a power of "
            "ten, and multiply predictions by it"
        )
    if 0 < largest < LEAST_LABEL:
        raise ValueError(
            f"y: no label exceeds {largest:.3g} in absolute value, so squared errors vanish; "
            "multiply y by a power of ten, and divide predictions by it"
        )


def _all_zero(engine: SumEngine, columns: Array) -> bool:
    """Return whether these columns, whose squares are zero, hold nothing but zeros.

    Single precision cannot hold numbers whose squares vanish in double.
    """
    if engine.rounding > np.finfo(float).eps:
        return True
    w = np.zeros((1, engine.width))
    factors = np.random.default_rng(0).uniform(1.0, 2.0, int(columns.sum()))
    w[0, np.flatnonzero(columns)] = 2.0**900 * factors
    linear = engine.variant(loss=NeuronLoss())
    return not linear.separation(w, np.zeros(engine.width)).any()
