"""Tables that ship with the package, to try commands on.

``sample_data/README.md`` states their origin and licences.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class SampleTable:
    """A table that ships with the package.

    Attributes
    ----------
    name : str
    rows : int
    groups : str, the groups of the command
    about : str, what the rows are
    origin : str
    licence : str
    options : tuple of str, the options of ``counterpoise fit`` that suit the table
    """

    name: str
    rows: int
    groups: str
    about: str
    origin: str
    licence: str
    options: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line on rows, groups, origin and licence."""
        return (
            f"{self.rows:,} rows, {self.groups}: {self.about}, from {self.origin} "
            f"({self.licence} licence)"
        )

    def csv(self) -> bytes:
        """The table as CSV."""
        package = files("counterpoise.tabular")
        return gzip.decompress((package / "sample_data" / f"{self.name}.csv.gz").read_bytes())


SAMPLES = {
    sample.name: sample
    for sample in (
        SampleTable(
            name="diamonds",
            rows=12_000,
            groups="8 groups by clarity",
            about="prices of diamonds",
            origin="ggplot2",
            licence="MIT",
            options=("--target", "price", "--group", "clarity"),
        ),
        SampleTable(
            name="adult",
            rows=12_000,
            groups="4 groups by sex and income",
            about="incomes in the American census of 1994",
            origin="UCI Adult by Becker and Kohavi",
            licence="CC BY 4.0",
            options=("--target", "income", "--group", "sex", "--with-label"),
        ),
    )
}
