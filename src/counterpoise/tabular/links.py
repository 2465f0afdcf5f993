"""How well one column alone predicts the target, batch by batch: a sign of a leak."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from counterpoise.tabular.errors import drop_option

Array = np.ndarray

# The share of the target's variance from which a column is reported, and the least rows for that.
NEARLY_ALL, LEAST_ROWS = 0.99, 20


def _dot(left: Array, right: Array) -> float:
    """Multiply without BLAS, whose threads cost more than they gain here."""
    return float(np.einsum("i,i->", left, right))


@dataclass
class Link:
    """The share of the target's variance that a column explains.

    Numbers explain it by a line, categories by the means of their levels.
    """

    n: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    rows: Counter[str] = field(default_factory=Counter)
    sums: dict[str, float] = field(default_factory=dict)

    def add_numbers(self, x: Array, y: Array) -> None:
        """Add numbers and targets; NaN in either is left out."""
        known = ~(np.isnan(x) | np.isnan(y))
        if not known.all():
            x, y = x[known], y[known]
        if not len(x):
            return
        mean_x, total = float(x.mean()), self.n + len(x)
        dx, shift = x - mean_x, mean_x - self.mean_x
        dy, turn = self._add_targets(y)
        both = self.n * len(x) / total
        self.xx += _dot(dx, dx) + shift * shift * both
        self.xy += _dot(dx, dy) + shift * turn * both
        self.mean_x += shift * len(x) / total
        self.n = total

    def add_levels(self, codes: Array, levels: list[str], y: Array) -> None:
        """Add positions in a list of levels, -1 if missing, and targets."""
        known = (codes >= 0) & ~np.isnan(y)
        codes, y = codes[known], y[known]
        if not len(y):
            return
        self._add_targets(y)
        self.n += len(y)
        rows = np.bincount(codes, minlength=len(levels)).tolist()
        sums = np.bincount(codes, weights=y, minlength=len(levels)).tolist()
        for level, count, total in zip(levels, rows, sums, strict=True):
            if count:
                self.rows[level] += count
                self.sums[level] = self.sums.get(level, 0.0) + total

    def _add_targets(self, y: Array) -> tuple[Array, float]:
        """Add targets; returns their distances from their mean, and how far it is from the old."""
        mean_y, total = float(y.mean()), self.n + len(y)
        dy, turn = y - mean_y, mean_y - self.mean_y
        self.yy += _dot(dy, dy) + turn * turn * self.n * len(y) / total
        self.mean_y += turn * len(y) / total
        return dy, turn

    @property
    def explained(self) -> float:
        """The share of the variance, corrected for the number of levels; 0 for too few rows."""
        levels = len(self.rows) or 2
        if self.n < max(LEAST_ROWS, 2 * levels) or not self.yy > 0:
            return 0.0
        if self.rows:
            parts = (
                count * (self.sums[level] / count - self.mean_y) ** 2
                for level, count in self.rows.items()
            )
            share = sum(parts) / self.yy
        else:
            if not self.xx > 0:
                return 0.0
            share = (self.xy / np.sqrt(self.xx) / np.sqrt(self.yy)) ** 2
        return float(1 - (1 - min(share, 1.0)) * (self.n - 1) / (self.n - levels))

    def note(self, name: str, target: str) -> str | None:
        """A remark for the reader if the column predicts the target nearly alone."""
        if not self.explained > NEARLY_ALL:
            return None
        share = int(1000 * self.explained + 1e-6) / 10  # rounded down, up to rounding errors
        return (
            f"column {name!r} alone explains {share:g}% of the variance of {target!r}, which may "
            "be a leak: if it is not known when you predict, leave it out with "
            f"{drop_option(name)}"
        )
