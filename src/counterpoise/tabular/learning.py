"""Learn in one pass how the columns of a table become numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoise.common.arguments import check_choice, check_whole
from counterpoise.tabular.cells import kind_of
from counterpoise.tabular.errors import DataError, listed
from counterpoise.tabular.layout import MISSING, TASKS, Feature, TableLayout
from counterpoise.tabular.roles import DATE, find_roles
from counterpoise.tabular.row_numbers import is_named_so
from counterpoise.tabular.scanning import RowProgress, ScanCounts, Tally, refuse, scan
from counterpoise.tabular.table import Table, as_table
from counterpoise.tabular.tallies import DateTally, NumberTally, WordTally
from counterpoise.tabular.targets import TargetTally


@dataclass(frozen=True)
class LearnedLayout:
    """The layout of a table, and the counts of the pass that learned it.

    Attributes
    ----------
    layout : TableLayout
    rows : int, rows of the table
    dropped : int, rows left out because a value is missing
    filled : mapping column -> int, missing values that are filled in
    groups : mapping label -> int, rows used of each group; empty without groups
    notes : tuple of str, remarks for the reader
    weightless : int, rows left out because their weight is 0
    classes : mapping class -> int, rows used of each class; empty if the target is a number
    """

    layout: TableLayout
    rows: int
    dropped: int
    filled: dict[str, int]
    groups: dict[Any, int]
    notes: tuple[str, ...]
    weightless: int = 0
    classes: dict[Any, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Rows that are not left out."""
        return self.rows - self.dropped - self.weightless

    @property
    def remarks(self) -> list[str]:
        """The notes, after those on missing values."""
        found = []
        if self.dropped:
            found.append(
                f"{self.dropped:,} of {self.rows:,} rows have a missing value and were left out"
            )
        for name, count in self.filled.items():
            found.append(f"{count:,} missing value(s) of {name!r} were filled in")
        return [*found, *self.notes]


def learn_layout(
    table: Any,
    *,
    target: str | None = None,
    group: str | Sequence[str] = (),
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    dates: Sequence[str] = (),
    missing: str = "refuse",
    max_levels: int = 100,
    task: str | None = None,
    with_label: bool = False,
    overlapping: bool = False,
    progress: RowProgress | None = None,
) -> LearnedLayout:
    """Learn how the columns of a table become numbers.

    Parameters
    ----------
    table : Table, data frame or mapping of columns
    target : str, optional
        Classes or numbers; see ``task``. None if the table holds features alone.
    group : str or list of str
        Text, whole numbers or booleans; several columns are crossed.
    weight : str, optional
        Numbers >= 0. Rows of weight 0 are left out.
    features : list of str, optional
        By default every column without another role. If there is a target, row numbers are left
        out: columns whose name says so, such as ``id``, and whose whole numbers rise or fall from
        row to row.
    drop : list of str
        Columns that are not features.
    categorical : list of str
        Columns of numbers that name categories, and of text that names categories although it
        looks like numbers or dates. Group columns and columns with a categorical type (Arrow
        dictionaries, pandas categories) need not be named.
    dates : list of str
        Columns of dates, times or ISO dates as text (``2020-12-31``), of which the year (a number),
        the month and the weekday (categories) are features, such as ``when.year``,
        ``when.month=2`` and ``when.weekday=Mon``. A time with a zone counts by its local day.
    missing : {"refuse", "drop", "impute"}
        Missing values are an error ("refuse"), their rows are left out ("drop"), or they are
        filled in ("impute"): numbers by the mean of their column, categories and groups by the
        level ``"(missing)"``. A category without missing values has no such level; later missing
        values count as its base level.
    max_levels : int
        Most levels of a category, and most classes; a text column with more is an error.
    task : {"classify", "regress"}, optional
        Whether the target names classes or is a number. By default, text, categories, booleans and
        two whole numbers (0 and 1) are classes, and other numbers are numbers.
    with_label : bool
        Whether to cross the groups with the classes of the target, so that each class of each group
        is a group: the usual way to find spurious correlations. Without group columns, the classes
        are the groups.
    overlapping : bool
        Whether the levels of every group column are groups side by side (``sex=f``,
        ``region=north``), so that a row belongs to several, instead of the columns being crossed.
    progress : function of (rows read, rows in all), optional

    Returns
    -------
    LearnedLayout

    Examples
    --------
    >>> found = learn_layout(
    ...     {"size": [1.0, 2.0, 3.0], "town": ["A", "B", "B"], "price": [1, 2, 3]}, target="price"
    ... )
    >>> found.layout.names
    ('size', 'town=A')
    """
    check_choice("missing", missing, MISSING)
    check_whole("max_levels", max_levels, 1)
    table = as_table(table)
    if task is not None:
        check_choice("task", task, TASKS)
    roles = find_roles(
        table, target, group, weight, features, drop, categorical, task, with_label, overlapping,
        dates,
    )  # fmt: skip
    tallies = [
        _tally(name, kind, max_levels, name in roles.names or name in categorical)
        for name, kind in roles.features.items()
    ]
    counted = None
    if target is not None:
        kind = kind_of(table.schema.field(target).type)
        counted = TargetTally(target, kind, task, max_levels)
    seen = scan(table, roles, tallies, missing, counted, progress)
    refuse(table, roles, tallies, missing, seen, max_levels)
    chosen = features is not None or target is None  # by whoever gave these columns
    numbering = [] if chosen else _numbering(table, tallies, seen)
    kept = [tally for tally in tallies if tally.name not in numbering]
    found = TableLayout(
        target=roles.target,
        group=roles.group,
        weight=roles.weight,
        features=tuple(feature for tally in kept for feature in _features(tally, missing)),
        missing=missing,
        labels="integer" if seen.whole else "text",
        classes=() if counted is None else counted.classes,
        with_label=with_label,
        overlapping=overlapping,
    )
    _check_names(found)
    filled = dict(seen.missing) if missing == "impute" else {}
    of_rows = [tally for tally in tallies if not chosen and isinstance(tally, NumberTally)]
    notes = [
        *_weightless(seen),
        *roles.notes,
        *(tally.order.note(tally.name, tally.name in numbering) for tally in of_rows),
        *(part.note for tally in kept for part in _parts(tally)),
        *_of_target(counted, kept),
        *_tiny(seen),
    ]
    groups = dict(sorted(seen.groups.items()))
    return LearnedLayout(
        found, seen.rows, seen.dropped, filled, groups, tuple(filter(None, notes)),
        seen.weightless, {} if counted is None else counted.class_counts,
    )  # fmt: skip


def _tally(name: str, kind: str, max_levels: int, named: bool) -> Tally:
    if kind == DATE:
        return DateTally(name)
    return WordTally(name, max_levels, named) if kind == "category" else NumberTally(name, kind)


def _features(tally: Tally, missing: str) -> list[Feature]:
    return tally.features(missing) if isinstance(tally, DateTally) else [tally.feature(missing)]


def _parts(tally: Tally) -> list[NumberTally | WordTally]:
    """The tallies of single features."""
    return list(tally.parts.values()) if isinstance(tally, DateTally) else [tally]


def _numbering(table: Table, tallies: Sequence[Tally], seen: ScanCounts) -> list[str]:
    """Columns that number the rows by their names and values."""
    found = [
        tally.name
        for tally in tallies
        if isinstance(tally, NumberTally)
        and tally.order.numbers_rows
        and not seen.missing[tally.name]
        and is_named_so(tally.name)
    ]
    if found and len(found) == len(tallies):
        raise DataError(
            f"{table.where} has no feature column left beside {listed(found)}, which number"
            f"{'s' * (len(found) == 1)} the rows; if it means more, use features={found!r}",
            argument="features",
        )
    return found


def _of_target(target: TargetTally | None, kept: Sequence[Tally]) -> list[str | None]:
    if target is None:
        return []
    if len(target.classes) > 2:  # which have no order that a column could follow
        return [target.note()]
    links = [(part.link, tally.name) for tally in kept for part in _parts(tally)]
    return [target.note(), *(link.note(name, target.name) for link, name in links)]


def _check_names(layout: TableLayout) -> None:
    twice = [name for name, count in Counter(layout.names).items() if count > 1]
    if twice:
        raise DataError(
            f"two features would both be called {twice[0]!r}, a column and the level or part of "
            "another; rename the column"
        )
    if not layout.width:
        raise DataError(
            "no feature differs between rows: every category has one level; name other columns as "
            "features"
        )


def _weightless(seen: ScanCounts) -> list[str]:
    if not seen.weightless:
        return []
    rows = "row of weight 0 was" if seen.weightless == 1 else "rows of weight 0 were"
    return [f"{seen.weightless:,} {rows} left out"]


def _tiny(seen: ScanCounts) -> list[str]:
    rows, groups = seen.used, len(seen.groups)
    if groups > 1 and 2 * groups > rows:
        return [f"there are {groups:,} groups in {rows:,} rows; groups of one row teach little"]
    return []
