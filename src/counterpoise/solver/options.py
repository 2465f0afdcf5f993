"""Checks of arguments: each error names the argument, the value and the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterpoise.common.arguments import by_name, is_number
from counterpoise.dual.divergences import check_nu
from counterpoise.rows.groups import label_list

Array = np.ndarray

PRECONDITIONS = ("auto", "whiten", "scale")


def per_group(values: Any, labels: Array, name: str) -> Array | None:
    """An array in the order of ``labels``, from an array or a mapping label -> value."""
    if values is None:
        return None
    return by_name(values, label_list(labels), name, "group", "in the data")


def named_prior(name: str, totals: Array) -> Array:
    """The prior that a word stands for; ``totals`` are the groups' weights."""
    if name != "rows":
        raise ValueError(
            f"prior={name!r} is not known; use 'rows' (groups count as their rows do), an array, a "
            "mapping group -> weight, or None for equal weights"
        )
    return totals / totals.sum()


def check_nu_option(nu: Any) -> None:
    """A number that is not negative, or "auto"."""
    if not isinstance(nu, str):
        check_nu(nu)
    elif nu != "auto":
        raise ValueError(f"nu must be a number >= 0 or 'auto'; got {nu!r}")


def check_options(radius: Any, precondition: Any, truncate: Any, max_iter: Any, tol: Any) -> None:
    for name, value in (("radius", radius), ("truncate", truncate)):
        if value is not None and not (is_number(value) and value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be None or a positive finite number; got {value!r}")
    known = isinstance(precondition, str) and precondition in PRECONDITIONS
    if precondition is not None and not known:
        raise ValueError(
            f"precondition={precondition!r} is not known; use 'auto', 'whiten', 'scale' or None"
        )
    if not isinstance(max_iter, (int, np.integer)) or isinstance(max_iter, bool) or max_iter < 1:
        raise ValueError(f"max_iter must be a positive integer; got {max_iter!r}")
    if not (is_number(tol) and tol >= 0 and math.isfinite(tol)):
        raise ValueError(f"tol must be a number >= 0; got {tol!r}")


def check_rows(X: Any, y: Any, asker: str = "solve") -> tuple[Any, Array]:
    """Rows and labels as arrays (or CSR) of finite numbers, float32 left as it is; errors name
    who asks."""
    from sklearn.utils.validation import check_X_y

    return check_X_y(
        X, y, accept_sparse="csr", dtype=(np.float64, np.float32), y_numeric=True, estimator=asker
    )
