"""Which column does what, told by names and types alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyarrow.types import is_dictionary

from counterpoise.tabular.cells import BOOLEAN, NOTHING, NUMBER, TIME, WORD, described, kind_of
from counterpoise.tabular.errors import DERIVE, DataError, check_names, drop_option, listed
from counterpoise.tabular.labels import check_group_type
from counterpoise.tabular.table import Table
from counterpoise.tabular.targets import check_target, check_weight_type

KINDS = {NUMBER: "number", BOOLEAN: "boolean", WORD: "category"}


@dataclass(frozen=True)
class Roles:
    """Columns by what they are for.

    ``features`` tells the kind of each, ``names`` those whose values are names by their type or
    role, whatever they look like. ``problems`` and ``misfits`` tell of columns that cannot be what
    they are for, and of those that cannot be features.
    """

    target: str
    group: tuple[str, ...]
    weight: str | None
    features: dict[str, str]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    problems: dict[str, str]
    misfits: dict[str, str]

    @property
    def used(self) -> tuple[str, ...]:
        """Columns to read: all but those that cannot be what they are for."""
        own = (self.target, *self.group, *(() if self.weight is None else (self.weight,)))
        fit = (name for name in own if name not in self.problems)
        return tuple(dict.fromkeys((*self.features, *fit)))


def check_roles(target: str, group: Sequence[str], weight: str | None) -> None:
    """Target, groups and weights are columns of their own; can be told before any file is read."""
    for name, role in ((target, "target"), (weight, "weight")):
        if name is not None and name in group:
            raise DataError(f"column {name!r} cannot be {role} and group at once; give another")
    if target == weight:
        raise DataError(f"column {target!r} cannot be target and weight at once; give another")


def find_roles(
    table: Table,
    target: str,
    group: str | Sequence[str],
    weight: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
) -> Roles:
    """Roles as asked for; all columns that have none are features, unless these are named."""
    groups = tuple(dict.fromkeys([group] if isinstance(group, str) else group))
    given = {"features": features or (), "drop": drop, "categorical": categorical}
    for argument, names in given.items():
        if isinstance(names, str):
            raise TypeError(f"{argument} must be a list of column names; got {names!r}")
    check_roles(target, groups, weight)
    weights = () if weight is None else (weight,)
    own = (target, *groups, *weights)
    for names, role in (((target,), "target"), (groups, "group"), (weights, "weight")):
        check_names(names, table.names, table.where, role)
    for argument, names in given.items():
        role = "feature" if argument == "features" else ""
        check_names(names, table.names, table.where, role)
    types = {field.name: field.type for field in table.schema}
    problems = _problems(table, target, groups, weight)
    notes = []
    if features is None:
        chosen = [name for name in table.names if name not in (*own, *drop)]
        if "" in chosen:
            chosen.remove("")
            notes.append("a column without a name, row numbers most likely, is left out")
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
            f"{table.where} has no feature column left beside {listed(own)}; name some with "
            "--features, or drop fewer"
        )
    kinds, misfits = _kinds(chosen, types, categorical)
    names = (*groups, *(name for name, kind in types.items() if is_dictionary(kind)))
    return Roles(target, groups, weight, kinds, names, tuple(notes), problems, misfits)


def _problems(
    table: Table, target: str, group: Sequence[str], weight: str | None
) -> dict[str, str]:
    """Columns that cannot be what they are for, by their types."""
    types = {field.name: field.type for field in table.schema}
    checks: dict[str, Callable[[], None]] = {target: partial(check_target, table, target)}
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
    names: list[str], types: dict[str, Any], categorical: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The kinds of features, and what is wrong with columns that cannot be some."""
    found, misfits = {}, {}
    for name in names:
        kind = kind_of(types[name])
        if kind in KINDS:
            found[name] = "category" if name in categorical else KINDS[kind]
        else:
            misfits[name] = f"{name!r} holds {described(types[name])}: {_remedy(name, kind)}"
    return found, misfits


def _remedy(name: str, kind: str) -> str:
    leave = f"leave it out with {drop_option(name)}"
    if kind == TIME:
        return f"{DERIVE}, or {leave}"
    if kind == NOTHING:
        return leave
    return f"split it into columns of numbers or text, or {leave}"
