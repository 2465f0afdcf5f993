"""Collection of convergence warnings, instead of one warning per fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.exceptions import ConvergenceWarning


@contextmanager
def collecting_convergence() -> Iterator[list[str]]:
    """Collect the messages of convergence warnings in a list; show other warnings as usual.

    >>> with collecting_convergence() as missed:
    ...     warnings.warn("stopped early", ConvergenceWarning)
    >>> missed
    ['stopped early']
    """
    missed: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield missed
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            missed.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
