"""Checks of arguments other than rows, which are checked in `counterpoise.solver.options`.

Numpy is imported where it is used: the command line checks its own arguments without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray


def by_name(values: Any, names: list[Any], name: str, kind: str, where: str = "known") -> Array:
    """Numbers in the order of ``names``, from an array or a mapping; ``kind`` is what is named."""
    import numpy as np

    if hasattr(values, "detach"):
        values = _detached(values)
    if hasattr(values, "keys") and hasattr(values, "items"):  # a mapping or a pandas Series
        values = dict(values.items())
    if isinstance(values, (list, tuple)):
        values = [_detached(value) for value in values]
    if not isinstance(values, Mapping):
        try:
            return np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} must be an array of numbers or a mapping {kind} -> number; got {values!r}"
            ) from None
    known = set(names)
    unknown = [key for key in values if key not in known]
    if unknown:
        raise ValueError(
            f"{name} names {kind}s that are not {where}: {unknown[:5]!r}; "
            f"known {kind}s are {names[:10]!r}"
        )
    missing = [key for key in names if key not in values]
    if missing:
        raise ValueError(f"{name} has no value for {kind}(s) {missing[:5]!r}; give one to each")
    try:
        return np.array([float(_detached(values[key])) for key in names])
    except (TypeError, ValueError):
        raise ValueError(f"{name} must map {kind}s to numbers; got {values!r}") from None


def one_each(values: Any, names: Sequence[Any], argument: str) -> Array:
    """`by_name`, one number for every domain."""
    found = by_name(values, list(names), argument, "domain")
    if found.shape != (len(names),):
        raise ValueError(
            f"{argument} must hold one number for each of {len(names)} domains; got shape "
            f"{found.shape}"
        )
    return found


def check_counts(counts: Any, names: Sequence[Any]) -> Array:
    """Numbers of tokens or examples."""
    import numpy as np

    found = one_each(counts, names, "counts")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(f"counts must be finite numbers >= 0; got {counts!r}")
    return found


def check_weights(
    weights: Any, names: Sequence[Any], argument: str = "weights", zeros: bool = False
) -> Array:
    """A probability vector, with or without zeros."""
    found = one_each(weights, names, argument)
    for name, weight in zip(names, found.tolist(), strict=True):
        if not (0 < weight < math.inf or (zeros and weight == 0)):
            remedy = "" if zeros else ". Give it a small one, or leave the domain out"
            allowed = ">= 0" if zeros else "positive"
            raise ValueError(
                f"{argument} must be {allowed} and finite; domain {name!r} has {weight!r}{remedy}"
            )
    total = found.sum()
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"{argument} must sum to 1; they sum to {total:.6g}. Divide by the sum.")
    return found / total


def _detached(value: Any) -> Any:
    """A tensor, of whatever precision and device, as plain numbers."""
    return value.detach().cpu().tolist() if hasattr(value, "detach") else value


def check_reference(reference: Array | None, n_groups: int) -> Array:
    import numpy as np

    if reference is None:
        return np.zeros(n_groups)
    r = np.asarray(reference, dtype=float)
    if r.shape != (n_groups,):
        raise ValueError(
            f"reference must hold one risk for each of {n_groups} groups; got shape {r.shape}"
        )
    if not np.isfinite(r).all():
        raise ValueError("reference risks must be finite numbers")
    return r


def chosen(
    argument: str,
    value: Any,
    kind: type | tuple[type, ...],
    named: Mapping[str, Callable[[], Any]],
    otherwise: str = "",
) -> Any:
    """The object that a user means: itself, or the one of that name."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in named:
        return named[value]()
    raise ValueError(
        f"{argument}={value!r} is not known; use one of {', '.join(map(repr, named))}{otherwise}"
    )


def is_number(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    import numpy as np

    return isinstance(value, (np.integer, np.floating))


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """One of some names."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")


def check_whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number that is large enough."""
    if not (is_number(value) and hasattr(value, "__index__")) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}; got {value!r}")
    return int(value)


def check_version(state: Mapping[str, Any], *readable: int) -> None:
    """Raise ValueError unless a stored state has a version that this release reads.

    >>> check_version({"version": 2}, 1, 2)
    >>> check_version({"version": 3}, 1, 2)
    Traceback (most recent call last):
        ...
    ValueError: state has version 3; this release reads 1 and 2
    """
    found = state.get("version")
    if found not in readable:
        read = " and ".join(map(str, readable))
        raise ValueError(f"state has version {found!r}; this release reads {read}")
