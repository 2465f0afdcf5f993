"""Recognise columns that number the rows: from their order and their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from counterpoise.tabular.errors import drop_option

# Rows from which numbers that only ever rise or fall are reported under any name.
LEAST_ROWS = 20
# Names of row numbers and identifiers.
NAMES = re.compile(
    r"(?i:row|row[ _.-]?(?:names?|ids?|index|idx|no|nr|num|number)|rn|unnamed: ?\d+(?:_level_\d+)?"
    r"|__index_level_\d+__|level_0|index|idx|ids?|uid|pk|obs|observation|serial(?:[ _.-]?no)?"
    r"|(?:case|record|sample|line)[ _.-]?(?:no|nr|num|number)|.*[ _.-]ids?)|.*[a-z]I[dD]s?"
)


def is_named_so(name: str) -> bool:
    """Whether a name is one of row numbers or identifiers.

    >>> [n for n in ("id", "rownames", "Unnamed: 0", "userId", "paid", "grid") if is_named_so(n)]
    ['id', 'rownames', 'Unnamed: 0', 'userId']
    """
    return NAMES.fullmatch(name.strip()) is not None


@dataclass
class Order:
    """Whether numbers are whole, and whether each is larger (or smaller) than the one before."""

    whole: bool = True
    rising: bool = True
    falling: bool = True
    last: float | None = None
    count: int = 0

    def add(self, values: np.ndarray) -> None:
        if not len(values) or not self.whole:
            return
        self.count += len(values)
        self.whole = bool((values == np.rint(values)).all())
        if self.whole and (self.rising or self.falling):
            steps = np.diff(values) if self.last is None else np.diff(values, prepend=self.last)
            self.rising &= bool((steps > 0).all())
            self.falling &= bool((steps < 0).all())
            self.last = float(values[-1])

    @property
    def numbers_rows(self) -> bool:
        """Whether the numbers are whole, all different and in order."""
        return self.count > 1 and self.whole and (self.rising or self.falling)

    def note(self, name: str, left_out: bool) -> str | None:
        """A remark for the reader if the column seems to number or identify rows."""
        if left_out:
            return (
                f"column {name!r} numbers the rows and is left out; if it means more than that, "
                "name it among the features"
            )
        leave = f"leave it out with {drop_option(name)}"
        if self.numbers_rows and self.count >= LEAST_ROWS:
            way = "larger" if self.rising else "smaller"
            return (
                f"column {name!r} is {way} in every row than in the row before, and is used as a "
                f"feature; if it only numbers the rows, {leave}"
            )
        if self.whole and self.count and is_named_so(name):
            return (
                f"column {name!r} seems to hold identifiers and is used as a feature, as numbers; "
                f"if their size means nothing, {leave} or use categorical={[name]!r}"
            )
        return None
