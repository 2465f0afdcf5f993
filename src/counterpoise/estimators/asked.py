"""Checks of what a cross-validated estimator was asked to try."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from counterpoise.dual.divergences import check_nu
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.solve import PATH

Array = np.ndarray

# Default values of nu, as multiples of the average fit's loss.
SHARES = (math.inf, *PATH)


def checked_nus(nus: Sequence[float] | None) -> tuple[float, ...]:
    """Return the values of ``nu`` to try, from large to small; multiples of the loss if None."""
    if nus is not None and (isinstance(nus, (str, Real)) or np.ndim(nus) != 1):
        raise ValueError(f"nus must be a list of numbers >= 0, or None; got {nus!r}")
    found = SHARES if nus is None else tuple(check_nu(nu) for nu in nus)
    if not found:
        raise ValueError("nus is empty; give at least one value, or None for a default path")
    return tuple(sorted(set(found), reverse=True))


def checked_flags(name: str, values: Any) -> list[bool]:
    """Return distinct True or False."""
    for flag in distinct(values, name):
        if not isinstance(flag, (bool, np.bool_)):
            raise ValueError(f"{name} must list True or False; got {flag!r}")
    return [bool(flag) for flag in distinct(values, name)]


def distinct(values: Any, names: str) -> list[Any]:
    """Return the values without repetitions; a single value becomes a list of one."""
    if values is None or isinstance(values, (bool, np.bool_, Real, str)):
        values = [values]
    try:
        out = list(dict.fromkeys(values))
    except TypeError:
        raise ValueError(f"{names} must be a flat list; got {values!r}") from None
    if not out:
        raise ValueError(f"{names} must list at least one choice")
    return out


def check_classes(
    splits: Sequence[tuple[Array, Array]], data: GroupedData, classes: Array | None
) -> None:
    """Raise ValueError if the training rows of a split lack a class."""
    if classes is None:
        return
    whole = np.unique(data.y)
    for i, (train, _) in enumerate(splits):
        lost = np.setdiff1d(whole, data.y[train])
        if len(lost):
            raise ValueError(
                f"cv gave split {i} whose training rows lack a class (number {int(lost[0])} of "
                f"{len(whole)} in sorted order); stratify the splits by class, or give cv as a "
                "number of folds"
            )


def check_cost(name: str, cost: Any) -> float | None:
    """Return a limit on a relative rise; None for no limit."""
    if cost is None:
        return None
    number = isinstance(cost, Real) and not isinstance(cost, (bool, np.bool_))
    if not number or not 0 <= cost < math.inf:
        raise ValueError(
            f"{name} must be None or a number >= 0, such as 0.1 for a rise of 10 %; got {cost!r}"
        )
    return float(cost)
