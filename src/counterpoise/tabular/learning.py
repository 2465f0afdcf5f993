"""One pass over a table learns how its columns become numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.arguments import check_choice, check_whole
from counterpoise.tabular.cells import is_numeral
from counterpoise.tabular.columns import MISSING, Columns
from counterpoise.tabular.encoding import missing_masks, refuse_missing
from counterpoise.tabular.errors import DataError, drop_option, listed
from counterpoise.tabular.labels import check_whole_labels, group_codes, may_be_integers, not_whole
from counterpoise.tabular.roles import Roles, find_roles
from counterpoise.tabular.table import Table, as_table
from counterpoise.tabular.tallies import NumberTally, WordTally
from counterpoise.tabular.targets import target_numbers, weight_numbers

Tally = NumberTally | WordTally
# Called with (rows read, rows in all).
RowProgress = Callable[[int, int], None]


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
    """

    columns: Columns
    rows: int
    dropped: int
    filled: dict[str, int]
    groups: dict[Any, int]
    notes: tuple[str, ...]

    @property
    def used(self) -> int:
        """Rows that are not left out."""
        return self.rows - self.dropped


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
        Numbers that are not negative.
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
    seen = _scan(table, roles, tallies, missing, progress)
    _refuse(table, roles, tallies, missing, seen, max_levels)
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
    notes = [*roles.notes, *filter(None, (tally.note for tally in tallies)), *_tiny(seen)]
    groups = dict(sorted(seen.groups.items()))
    return Learned(found, seen.rows, seen.dropped, filled, groups, tuple(notes))


@dataclass
class _Seen:
    rows: int
    dropped: int
    missing: Counter[str]
    groups: Counter[Any]
    whole: bool


def _scan(
    table: Table, roles: Roles, tallies: list[Tally], missing: str, progress: RowProgress | None
) -> _Seen:
    whole = len(roles.group) == 1 and may_be_integers(table.schema.field(roles.group[0]).type)
    seen = _Seen(0, 0, Counter(), Counter(), whole)
    for batch in table.batches(roles.used):
        gone = missing_masks(batch, roles.used)
        seen.rows += batch.num_rows
        seen.missing.update({name: int(mask.sum()) for name, mask in gone.items()})
        if gone and missing == "drop":
            keep = ~np.logical_or.reduce(list(gone.values()))
            seen.dropped += int((~keep).sum())
            batch = batch.filter(keep)
        for tally in tallies:
            tally.add(batch.column(tally.name))
        target_numbers(batch, roles.target)
        if roles.weight is not None:
            weight_numbers(batch, roles.weight)
        for name in roles.group:
            check_whole_labels(batch.column(name), name)
        if roles.group:
            labels, codes = group_codes(batch, roles.group, "integer" if seen.whole else "text")
            seen.whole &= labels.dtype.kind == "i"
            counts = np.bincount(codes, minlength=len(labels)).tolist()
            found = zip(labels.tolist(), counts, strict=True)
            seen.groups.update({label: count for label, count in found if count})
        if progress is not None:
            progress(seen.rows, table.n_rows)
    if not seen.whole:  # a later batch may have shown that they are not integers alone
        merged: Counter[Any] = Counter()
        for label, count in seen.groups.items():
            merged[str(label)] += count
        seen.groups = merged
    return seen


def _refuse(
    table: Table, roles: Roles, tallies: list[Tally], missing: str, seen: _Seen, most: int
) -> None:
    """Errors that only a whole pass can tell."""
    problems = [
        f"{name!r} has no value at all: leave it out with {drop_option(name)}"
        for name in roles.features
        if seen.missing[name] == seen.rows
    ]
    problems += [found for tally in tallies if (found := tally.problem())]
    if problems:
        raise DataError("columns cannot be features:\n  " + "\n  ".join(problems))
    if len(seen.groups) > most and all(map(is_numeral, map(str, seen.groups))):
        fraction = next((label for label in seen.groups if not float(label).is_integer()), None)
        if fraction is not None:
            raise not_whole(roles.group[0], fraction)
    if missing == "refuse":
        refuse_missing(
            dict(seen.missing),
            "leave such rows out with --missing drop, or fill them in with --missing impute",
        )
    if missing == "impute":
        needed = (roles.target, roles.weight)
        refuse_missing(
            {name: n for name, n in seen.missing.items() if name in needed},
            "labels and weights are not imputed: leave such rows out with --missing drop",
        )
    if seen.dropped == seen.rows:
        holes = [name for name, _ in seen.missing.most_common(3)]
        raise DataError(
            f"every row of {table.where} misses a value; most are missing in {listed(holes)}: "
            "leave these columns out with --drop, or use --missing impute"
        )


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


def _tiny(seen: _Seen) -> list[str]:
    rows, groups = seen.rows - seen.dropped, len(seen.groups)
    if groups > 1 and 2 * groups > rows:
        return [f"there are {groups:,} groups in {rows:,} rows; groups of one row teach little"]
    return []
