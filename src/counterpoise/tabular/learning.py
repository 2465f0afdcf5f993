"""One pass over a table learns how its columns become numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counterpoise.common.arguments import check_choice, check_whole
from counterpoise.tabular.columns import MISSING, Columns
from counterpoise.tabular.errors import DataError
from counterpoise.tabular.roles import find_roles
from counterpoise.tabular.scanning import RowProgress, Seen, Tally, refuse, scan
from counterpoise.tabular.table import as_table
from counterpoise.tabular.tallies import NumberTally, WordTally


@dataclass(frozen=True)
class Learned:
    """Columns, and what was seen while they were learned.

    Attributes
    ----------
    columns : Columns
    rows : int, that the table has
    dropped : int, rows that are left out because they miss a value
    filled : mapping column -> int, missing values that are filled in
    groups : mapping label -> int, rows of every group that are used; empty without groups
    notes : tuple of str, what a reader should know of
    weightless : int, rows that are left out because they have weight 0
    """

    columns: Columns
    rows: int
    dropped: int
    filled: dict[str, int]
    groups: dict[Any, int]
    notes: tuple[str, ...]
    weightless: int = 0

    @property
    def used(self) -> int:
        """Rows that are not left out."""
        return self.rows - self.dropped - self.weightless


def learn_columns(
    table: Any,
    *,
    target: str,
    group: str | Sequence[str] = (),
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: str = "refuse",
    max_levels: int = 100,
    progress: RowProgress | None = None,
) -> Learned:
    """How the columns of a table become numbers.

    Parameters
    ----------
    table : Table, or a frame that Arrow reads
    target : str
        Numbers or booleans.
    group : str or list of str
        Text, whole numbers or booleans; several columns are crossed.
    weight : str, optional
        Numbers that are not negative. Rows of weight 0 are left out: nothing is learned from them.
    features : list of str, optional
        By default all columns that are nothing else.
    drop : list of str
        Columns that are no features.
    categorical : list of str
        Numbers that are names of categories, and text that is to be categories although it looks
        like numbers or dates, which is refused else. Columns that the table itself knows as
        categories (dictionaries of Arrow, categories of pandas) and groups need not be named.
    missing : {"refuse", "drop", "impute"}
        Missing values are an error; or their rows are left out; or numbers are the mean of their
        column, and categories and groups have the level ``"(missing)"``. Categories without a
        missing value have no such level; later ones are the base.
    max_levels : int
        A text column with more of them is refused.
    progress : function of (rows read, rows in all), optional

    Returns
    -------
    Learned

    Examples
    --------
    >>> found = learn_columns(
    ...     {"size": [1.0, 2.0, 3.0], "town": ["A", "B", "B"], "price": [1, 2, 3]}, target="price"
    ... )
    >>> found.columns.names
    ('size', 'town=A')
    """
    check_choice("missing", missing, MISSING)
    check_whole("max_levels", max_levels, 1)
    table = as_table(table)
    roles = find_roles(table, target, group, weight, features, drop, categorical)
    tallies: list[Tally] = [
        WordTally(name, max_levels, name in roles.names or name in categorical)
        if kind == "category"
        else NumberTally(name, kind)
        for name, kind in roles.features.items()
    ]
    seen = scan(table, roles, tallies, missing, progress)
    refuse(table, roles, tallies, missing, seen, max_levels)
    found = Columns(
        target=roles.target,
        group=roles.group,
        weight=roles.weight,
        features=tuple(tally.feature(missing) for tally in tallies),
        missing=missing,
        labels="integer" if seen.whole else "text",
    )
    _check_names(found)
    filled = dict(seen.missing) if missing == "impute" else {}
    of_columns = filter(None, (tally.note for tally in tallies))
    notes = [*_weightless(seen), *roles.notes, *of_columns, *_tiny(seen)]
    groups = dict(sorted(seen.groups.items()))
    return Learned(found, seen.rows, seen.dropped, filled, groups, tuple(notes), seen.weightless)


def _check_names(columns: Columns) -> None:
    twice = [name for name, count in Counter(columns.names).items() if count > 1]
    if twice:
        raise DataError(
            f"two features would both be called {twice[0]!r}, a column and the level of another; "
            "rename the column"
        )
    if not columns.width:
        raise DataError(
            "no feature is left that differs between rows: every category has one level; name "
            "other columns with --features"
        )


def _weightless(seen: Seen) -> list[str]:
    if not seen.weightless:
        return []
    rows = "row of weight 0 was" if seen.weightless == 1 else "rows of weight 0 were"
    return [f"{seen.weightless:,} {rows} left out"]


def _tiny(seen: Seen) -> list[str]:
    rows, groups = seen.used, len(seen.groups)
    if groups > 1 and 2 * groups > rows:
        return [f"there are {groups:,} groups in {rows:,} rows; groups of one row teach little"]
    return []
