"""Counts of one column, batch by batch, and the feature they lead to."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from counterpoise.tabular.cells import check_size, is_numeral, numbers, words
from counterpoise.tabular.dates import MONTHS, WEEKDAYS, date_parts
from counterpoise.tabular.errors import DERIVE, POINTS, dates_option, drop_option, listed
from counterpoise.tabular.layout import NONE, Feature, part_name
from counterpoise.tabular.links import Link
from counterpoise.tabular.row_numbers import Order
from counterpoise.tabular.spelling import TextKind, text_kind

Array = np.ndarray

# The share of numbers that must look like dates, as 20200131 does, to be taken for some.
NEARLY = 0.95
# Digits with leading zeros, which numbers do not have.
CODE = re.compile(r"\s*0[0-9]+\s*")
# How ISO dates begin.
ISO = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass
class NumberTally:
    """The mean and the range of numbers, and those that look like dates."""

    name: str
    kind: str
    count: int = 0
    missing: int = 0
    mean: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    days: int = 0
    day: float = 0.0
    order: Order = field(default_factory=Order)
    link: Link = field(default_factory=Link)

    def add(self, column: Any, y: Array | None = None) -> None:
        """Count the values of a batch, whose targets are ``y`` if there are any."""
        found = numbers(column, self.name)
        check_size(found, self.name)
        if y is not None:
            self.link.add_numbers(found, y)
        there = found[~np.isnan(found)]
        self.missing += len(found) - len(there)
        if len(there):
            self.count += len(there)
            self.mean += (float(there.mean()) - self.mean) * (len(there) / self.count)
            self.low = min(self.low, float(there.min()))
            self.high = max(self.high, float(there.max()))
            if self.kind == "number":
                self.order.add(there)
            days = there[_are_days(there)]
            if len(days):
                self.day = self.day or float(days[0])
                self.days += len(days)

    @property
    def constant(self) -> str | None:
        """The only value, in words."""
        return f"{self.low:g}" if self.count and self.low == self.high else None

    @property
    def note(self) -> str | None:
        """A remark for the reader."""
        if self.constant is not None:
            return (
                f"column {self.name!r} is {self.constant} in every row and has no predictive value"
            )
        if self.days >= NEARLY * max(1, self.count):
            return (
                f"column {self.name!r} has numbers such as {self.day:.0f}, which look like dates "
                f"but are used as numbers; {dates_option(self.name)}, or {DERIVE}"
            )
        return None

    def problem(self) -> str | None:
        return None

    def feature(self, missing: str) -> Feature:
        if missing != "impute":
            return Feature(self.name, self.kind)
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
    link: Link = field(default_factory=Link)

    def add(self, column: Any, y: Array | None = None) -> None:
        """Count the values of a batch, whose targets are ``y`` if there are any."""
        codes, values = words(column)
        there = codes[codes >= 0]
        self.missing += len(codes) - len(there)
        self.count += len(there)
        if len(self.levels) <= self.most:
            counts = np.bincount(there, minlength=len(values)).tolist()
            found = zip(values, counts, strict=True)
            self.levels.update({value: count for value, count in found if count})
            if y is not None and len(self.levels) <= self.most:
                self.link.add_levels(codes, values, y)

    @property
    def constant(self) -> str | None:
        if len(self.levels) == 1 and not self.missing:
            return repr(next(iter(self.levels)))
        return None

    @property
    def code(self) -> str | None:
        """A level with leading zeros, if all levels are digits and no one said what they are."""
        if self.named or not all(level.strip().isdigit() for level in self.levels):
            return None
        return next(filter(CODE.fullmatch, self.levels), None)

    @property
    def note(self) -> str | None:
        if self.constant is not None:
            return (
                f"column {self.name!r} is {self.constant} in every row and has no predictive value"
            )
        if self.code is not None:
            return (
                f"column {self.name!r} has codes such as {self.code!r}, with leading zeros, and is "
                f"used as categories; if they are numbers, use numbers={[self.name]!r}"
            )
        return None

    def problem(self) -> str | None:
        many = len(self.levels) > self.most
        leave = f"leave it out with {drop_option(self.name)}"
        names = f"use categorical={[self.name]!r} if its values are names"
        named = self.named or self.code is not None
        seems = TextKind("text") if named else text_kind(self.levels, lax=many)
        if seems.kind != "text":
            return f"{self.name!r} {_told(seems, self.name)}, {leave}, or {names}"
        if many and self.code is not None:
            return (
                f"{self.name!r} has more than {self.most:,} codes such as {self.code!r}: if they "
                f"identify rows, {leave}; if they are numbers, use numbers={[self.name]!r}; "
                f"otherwise allow more, such as max_levels={10 * self.most}"
            )
        if many:
            return (
                f"{self.name!r} has more than {self.most:,} different values: if they identify "
                f"rows, {leave}, otherwise allow more, such as max_levels={10 * self.most}"
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


class DateTally:
    """The years, months and weekdays of dates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: dict[str, NumberTally | WordTally] = {
            "year": NumberTally(part_name(name, "year"), "number"),
            "month": WordTally(part_name(name, "month"), len(MONTHS), named=True),
            "weekday": WordTally(part_name(name, "weekday"), len(WEEKDAYS), named=True),
        }

    def add(self, column: Any, y: Array | None = None) -> None:
        """Count the values of a batch, whose targets are ``y`` if there are any."""
        for part, values in date_parts(column, self.name).items():
            self.parts[part].add(values, y)

    def problem(self) -> str | None:
        return None

    def features(self, missing: str) -> list[Feature]:
        """The features of the parts, with levels in the order of the calendar."""
        found = []
        for part, tally in self.parts.items():
            feature = tally.feature(missing)
            levels = (*feature.levels[:1], *sorted(feature.levels[1:], key=_in_calendar))
            found.append(replace(feature, name=self.name, levels=levels, part=part))
        return found


def _in_calendar(level: str) -> int:
    order = (*MONTHS, *WEEKDAYS, NONE)
    return order.index(level)


def _are_days(values: Array) -> Array:
    """Which numbers are a day of the calendar when they are read as year, month and day."""
    maybe = (values >= 18000101) & (values <= 21991231) & (values == np.floor(values))
    if maybe.any():
        found = values[maybe].astype(np.int64)
        month, day = found // 100 % 100, found % 100
        months = (found // 10000 - 1970) * 12 + month - 1
        starts = months.astype("M8[M]").astype("M8[D]")
        ends = (months + 1).astype("M8[M]").astype("M8[D]")
        length = (ends - starts).astype(np.int64)
        maybe[maybe] = (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    return maybe


def _told(seems: TextKind, name: str) -> str:
    """What texts seem to be, and how they can be written."""
    strays = listed(seems.strays, 3)
    if seems.kind == "numbers":
        if strays:
            return f"has numbers and text, such as {strays}: leave these cells empty"
        return f"holds numbers as text, such as {seems.example!r}: save them as numbers"
    also = f", and text, such as {strays}" if strays else ""
    if seems.kind == "dates":
        return f"holds dates, such as {seems.example!r}{also}: {_of_dates(seems, name)}"
    empty = "; leave cells without a value empty" if strays else ""
    return f"holds numbers such as {seems.example!r}{also}: {POINTS}{empty}"


def _of_dates(seems: TextKind, name: str) -> str:
    """What to do with texts that seem to be dates, of which only ISO dates are read."""
    if not ISO.match(seems.example.strip()):
        return f"write them as 2020-12-31 and {dates_option(name)}, {DERIVE}"
    empty = "leave cells without a date empty and " if seems.strays else ""
    return f"{empty}{dates_option(name)}, {DERIVE}"


def _order(level: str) -> tuple[bool, float, str]:
    """Numbers by size, then text."""
    number = is_numeral(level)
    return (not number, float(level) if number else 0.0, level)
