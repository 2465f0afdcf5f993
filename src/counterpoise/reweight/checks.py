"""Checks of a `Reweighter`'s arguments, and numbers in the form that it keeps and saves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from counterpoise.common.arguments import is_number, one_each

Array = np.ndarray


def check_errors(errors: Any, domains: tuple[Any, ...]) -> Array:
    """Return standard errors, NaN where they are unknown."""
    found = one_each(errors, domains, "errors")
    if (found < 0).any() or np.isinf(found).any():
        raise ValueError(f"errors must be standard errors >= 0, or NaN if unknown; got {errors!r}")
    return found


def check_pieces(pieces: Any, domains: tuple[Any, ...]) -> Array:
    """Return the numbers of independent pieces of text behind errors, NaN where unknown."""
    found = one_each(pieces, domains, "pieces")
    if (found < 0).any():
        raise ValueError(f"pieces must be numbers >= 0, or NaN if unknown; got {pieces!r}")
    return found


def check_domains(domains: Iterable[str | int]) -> tuple[str | int, ...]:
    """Return the names of domains: strings or integers, all different."""
    if isinstance(domains, (str, bytes)):
        raise ValueError(f"domains must be a sequence of names; got the single string {domains!r}")
    names = tuple(n.item() if isinstance(n, np.generic) else n for n in domains)
    if not names:
        raise ValueError("domains must name at least one domain; got none")
    wrong = [n for n in names if not isinstance(n, (str, int)) or isinstance(n, bool)]
    if wrong:
        raise ValueError(f"domains must be strings or integers; got {wrong[0]!r}")
    twice = sorted(repr(n) for n, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"domains must differ; named more than once: {', '.join(twice[:5])}")
    return names


def number_between(
    name: str, value: Any, least: float, most: float = math.inf, positive: bool = False
) -> float:
    """Return a finite number within bounds."""
    fits = is_number(value) and math.isfinite(value) and least <= value <= most
    if not fits or (positive and value == 0):
        allowed = "positive" if positive else f"between {least:g} and {most:g}"
        raise ValueError(f"{name} must be a finite number, {allowed}; got {value!r}")
    return float(value)


def frozen(weights: Array) -> Array:
    """Return a read-only copy."""
    out = np.array(weights, dtype=float)
    out.flags.writeable = False
    return out


def finite(values: Array) -> list[float | None]:
    """Return a list for JSON, which has no infinities; they become None."""
    return [v if math.isfinite(v) else None for v in values.tolist()]


def check_bounds(
    floor: Any, cap: Any, domains: tuple[str | int, ...]
) -> tuple[Array, Array] | None:
    """Return the smallest and largest weight of each domain; None if there are no bounds."""
    if floor is None and cap is None:
        return None
    K = len(domains)
    ends = []
    for name, value, default in (("floor", floor, 0.0), ("cap", cap, 1.0)):
        value = default if value is None else value
        end = np.full(K, value) if is_number(value) else one_each(value, domains, name)
        if not ((end >= 0) & (end <= 1)).all():
            raise ValueError(
                f"{name} must be in [0, 1], one number or one per domain; got {value!r}"
            )
        ends.append(end.astype(float))
    low, high = ends
    if (low > high).any() or low.sum() > 1.0 + 1e-9 or high.sum() < 1.0 - 1e-9:
        raise ValueError(
            f"no weights lie between floor={floor!r} and cap={cap!r}: floors must add up to "
            f"at most 1 (here {low.sum():.6g}), caps to at least 1 (here {high.sum():.6g}), "
            "and no floor may be above its cap"
        )
    return low, high


def check_total(count_K: Array, total: Any, counts: Any) -> None:
    """Raise ValueError unless the counts add up to ``total``."""
    if counts is None:
        raise ValueError(f"total={total!r} is the sum of counts; give counts, too")
    found = float(count_K.sum())
    if not (is_number(total) and abs(found - total) <= 1e-9 * max(abs(found), 1.0)):
        raise ValueError(
            f"counts add up to {found:g}, but total={total!r}: some were lost or counted "
            "twice. Sum counts over the ranks that read different samples, each once"
        )
