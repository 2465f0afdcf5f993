"""The role of each column, from names and types alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyarrow.types import is_dictionary

from counterpoise.tabular.cells import BOOLEAN, NOTHING, NUMBER, TIME, WORD, described, kind_of
from counterpoise.tabular.dates import may_be_dates
from counterpoise.tabular.errors import (
    DERIVE,
    DataError,
    check_names,
    dates_option,
    drop_option,
    listed,
)
from counterpoise.tabular.labels import check_group_type
from counterpoise.tabular.requests import check_roles
from counterpoise.tabular.table import Table
from counterpoise.tabular.targets import check_target, check_weight_type

KINDS = {NUMBER: "number", BOOLEAN: "boolean", WORD: "category"}
DATE = "date"


@dataclass(frozen=True)
class Roles:
    """Columns by role.

    Attributes
    ----------
    target, weight : str or None
    group : tuple of str
    features : mapping column -> "number", "boolean", "category" or "date"
    names : tuple of str
        Columns whose type or role says that their values are names, whatever they look like.
    notes : tuple of str
    problems : mapping column -> message
        Columns that cannot serve as target, group or weight.
    misfits : mapping column -> message
        Columns that cannot be features.
    with_label : bool
        Whether groups are crossed with the classes of the target.
    overlapping : bool
        Whether the levels of every group column are groups side by side.
    """

    target: str | None
    group: tuple[str, ...]
    weight: str | None
    features: dict[str, str]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    problems: dict[str, str]
    misfits: dict[str, str]
    with_label: bool = False
    overlapping: bool = False

    @property
    def crossed(self) -> str | None:
        """The target, if groups are crossed with its classes."""
        return self.target if self.with_label else None

    @property
    def used(self) -> tuple[str, ...]:
        """Columns to read: every column that can serve in its role."""
        own = (self.target, *self.group, self.weight)
        fit = (name for name in own if name is not None and name not in self.problems)
        return tuple(dict.fromkeys((*self.features, *fit)))


def find_roles(
    table: Table,
    target: str | None,
    group: str | Sequence[str],
    weight: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    task: str | None = None,
    with_label: bool = False,
    overlapping: bool = False,
    dates: Sequence[str] = (),
) -> Roles:
    """Assign roles; without ``features``, every column that has no role is a feature."""
    groups = tuple(dict.fromkeys([group] if isinstance(group, str) else group))
    given = {
        "features": features or (), "drop": drop, "categorical": categorical, "dates": dates,
    }  # fmt: skip
    for argument, names in given.items():
        if isinstance(names, str):
            raise TypeError(f"{argument} must be a list of column names; got {names!r}")
    check_roles(target, groups, weight)
    if with_label and target is None:
        raise ValueError("with_label=True crosses groups with the target; give a target")
    if overlapping and not groups:
        raise ValueError(
            "overlapping=True makes groups of several columns; name them, as in "
            "group=['sex', 'region']"
        )
    targets, weights = (() if name is None else (name,) for name in (target, weight))
    own = (*targets, *groups, *weights)
    for names, role in ((targets, "target"), (groups, "group"), (weights, "weight")):
        check_names(names, table.names, table.where, role)
    for argument, names in given.items():
        role = "feature" if argument == "features" else ""
        check_names(names, table.names, table.where, role)
    types = {field.name: field.type for field in table.schema}
    problems = _problems(table, target, groups, weight, task)
    notes = []
    if features is None:
        chosen = [name for name in table.names if name not in (*own, *drop)]
        if "" in chosen:
            chosen.remove("")
            notes.append("a column without a name, probably row numbers, is left out")
    else:
        chosen = [name for name in dict.fromkeys(features) if name not in drop]
        taken = [name for name in chosen if name in (target, weight)]
        if taken:
            raise DataError(
                f"column {taken[0]!r} is named as a feature and as the target or weight; "
                "leave it out of the features"
            )
    if not chosen:
        raise DataError(
            f"{table.where} has no feature column left beside {listed(own)}; name some as "
            "features, or drop fewer columns",
            argument="features",
        )
    _check_dates(dates, chosen, categorical)
    kinds, misfits = _kinds(chosen, types, categorical, dates)
    names = (*groups, *(name for name, kind in types.items() if is_dictionary(kind)))
    return Roles(
        target, groups, weight, kinds, names, tuple(notes), problems, misfits, with_label,
        overlapping,
    )  # fmt: skip


def _check_dates(dates: Sequence[str], chosen: Sequence[str], categorical: Sequence[str]) -> None:
    """Check that columns of dates are features, and not categories."""
    for name in dates:
        if name in categorical:
            raise DataError(
                f"column {name!r} is named among the dates and the categorical columns; choose one"
            )
        if name not in chosen:
            raise DataError(
                f"column {name!r} is named among the dates and is not a feature; leave it out of "
                "the dates, or make it a feature",
                argument="dates",
            )


def _problems(
    table: Table, target: str | None, group: Sequence[str], weight: str | None, task: str | None
) -> dict[str, str]:
    """Columns whose types do not suit their roles."""
    types = {field.name: field.type for field in table.schema}
    checks: dict[str, Callable[[], None]] = {}
    if target is not None:
        checks[target] = partial(check_target, table, target, task)
    checks |= {name: partial(check_group_type, name, types[name]) for name in group}
    if weight is not None:
        checks[weight] = partial(check_weight_type, weight, types[weight])
    found = {}
    for name, check in checks.items():
        try:
            check()
        except DataError as error:
            found[name] = str(error)
    return found


def _kinds(
    names: list[str], types: dict[str, Any], categorical: Sequence[str], dates: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The kinds of features, and a message for each column that cannot be one."""
    found, misfits = {}, {}
    for name in names:
        kind = kind_of(types[name])
        if name in dates and may_be_dates(types[name]):
            found[name] = DATE
        elif name not in dates and kind in KINDS:
            found[name] = "category" if name in categorical else KINDS[kind]
        else:
            remedy = _remedy(name, types[name], dates)
            misfits[name] = f"{name!r} holds {described(types[name])}{remedy}"
    return found, misfits


def _remedy(name: str, given: Any, dates: Sequence[str]) -> str:
    leave, kind = f"leave it out with {drop_option(name)}", kind_of(given)
    if kind == NOTHING:
        return f": {leave}"
    if name in dates:
        return f", not dates: leave it out of the dates, or {leave}"
    if kind == TIME and may_be_dates(given):
        return f": {dates_option(name)}, {DERIVE}, or {leave}"
    if kind == TIME:
        return f": derive numbers from it, such as hours, or {leave}"
    return f": split it into columns of numbers or text, or {leave}"
