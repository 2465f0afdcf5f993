"""What a pass over a column counts, batch by batch."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.tabular.cells import is_numeral, numbers, words
from counterpoise.tabular.columns import NONE, Feature
from counterpoise.tabular.errors import DERIVE, POINTS, DataError, drop_option
from counterpoise.tabular.spelling import meant


@dataclass
class NumberTally:
    """The mean and the range of numbers."""

    name: str
    kind: str
    count: int = 0
    missing: int = 0
    mean: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, column: Any) -> None:
        found = numbers(column, self.name)
        there = found[~np.isnan(found)]
        self.missing += len(found) - len(there)
        if len(there):
            self.count += len(there)
            self.mean += (float(there.mean()) - self.mean) * (len(there) / self.count)
            self.low = min(self.low, float(there.min()))
            self.high = max(self.high, float(there.max()))

    @property
    def constant(self) -> str | None:
        """The only value, in words."""
        return f"{self.low:g}" if self.count and self.low == self.high else None

    def problem(self) -> str | None:
        return None

    def feature(self, missing: str) -> Feature:
        if missing != "impute":
            return Feature(self.name, self.kind)
        if not np.isfinite(self.mean):
            raise DataError(
                f"column {self.name!r} has numbers up to {max(abs(self.low), abs(self.high)):g}, "
                "whose mean is beyond what a number holds; divide them by a common factor"
            )
        # rounding must not put the mean of equal values beside them
        return Feature(self.name, self.kind, fill=min(max(self.mean, self.low), self.high))


@dataclass
class WordTally:
    """The levels of a category, up to so many."""

    name: str
    most: int
    named: bool = False  # as a category, whatever its values look like
    count: int = 0
    missing: int = 0
    levels: Counter[str] = field(default_factory=Counter)

    def add(self, column: Any) -> None:
        codes, values = words(column)
        there = codes[codes >= 0]
        self.missing += len(codes) - len(there)
        self.count += len(there)
        if len(self.levels) <= self.most:
            counts = np.bincount(there, minlength=len(values)).tolist()
            found = zip(values, counts, strict=True)
            self.levels.update({value: count for value, count in found if count})

    @property
    def constant(self) -> str | None:
        if len(self.levels) == 1 and not self.missing:
            return repr(next(iter(self.levels)))
        return None

    def problem(self) -> str | None:
        many = len(self.levels) > self.most
        kind, example = ("text", "") if self.named else meant(self.levels)
        leave = f"leave it out with {drop_option(self.name)}"
        names = f"say --categorical {shlex.quote(self.name)} if these are names"
        if kind == "dates":
            return f"{self.name!r} holds dates, such as {example!r}: {DERIVE}, {leave}, or {names}"
        if kind == "commas":
            return f"{self.name!r} holds numbers such as {example!r}: {POINTS}, {leave}, or {names}"
        if kind == "mixed" and many:
            return (
                f"{self.name!r} has numbers and text, such as {example!r}: leave these cells "
                f"empty, or {leave}"
            )
        if kind == "numbers" and many:
            return f"{self.name!r} holds numbers as text: save them as numbers, or {leave}"
        if many:
            return (
                f"{self.name!r} has more than {self.most} different values: if it names rows, "
                f"{leave}, else allow more with --max-levels"
            )
        return None

    def feature(self, missing: str) -> Feature:
        levels = sorted(self.levels, key=_order)
        counts = dict(self.levels)
        if missing == "impute" and self.missing:
            levels = [level for level in levels if level != NONE] + [NONE]
            counts[NONE] = counts.get(NONE, 0) + self.missing
        base = max(levels, key=lambda level: counts[level])  # the first of equals
        rest = (level for level in levels if level != base)
        return Feature(self.name, "category", (base, *rest))


def _order(level: str) -> tuple[bool, float, str]:
    """Numbers by size, then text."""
    number = is_numeral(level)
    return (not number, float(level) if number else 0.0, level)
