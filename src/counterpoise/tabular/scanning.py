"""One pass over a table that counts what its columns hold and collects what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.tabular.cells import is_numeral
from counterpoise.tabular.errors import DataError, drop_option, listed
from counterpoise.tabular.indicators import missing_masks, missing_message
from counterpoise.tabular.labels import (
    check_whole_labels,
    group_codes,
    may_be_integers,
    not_whole,
    side_by_side_codes,
)
from counterpoise.tabular.roles import Roles
from counterpoise.tabular.table import Table
from counterpoise.tabular.tallies import DateTally, NumberTally, WordTally
from counterpoise.tabular.targets import TargetTally, has_weight

Array = np.ndarray

Tally = NumberTally | WordTally | DateTally
# Called with (rows read, rows in all).
RowProgress = Callable[[int, int], None]


@dataclass
class ScanCounts:
    """What one pass over a table counted.

    Attributes
    ----------
    whole : bool, whether group labels are integers
    rows : int
    weightless : int, rows of weight 0, which are not counted below
    dropped : int, rows left out because a value is missing
    missing : mapping column -> int
    groups : mapping label -> int
    problems : mapping column -> str
    target : TargetTally or None
    """

    whole: bool
    rows: int = 0
    weightless: int = 0
    dropped: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    groups: Counter[Any] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    target: TargetTally | None = None

    @property
    def weighty(self) -> int:
        """Rows whose weight is not 0."""
        return self.rows - self.weightless

    @property
    def used(self) -> int:
        """Rows that are not left out."""
        return self.weighty - self.dropped

    @contextmanager
    def collecting(self, name: str) -> Iterator[None]:
        """Keep an error about a column for later, so that one message reports all columns."""
        try:
            yield
        except DataError as error:
            self.problems.setdefault(name, str(error))


def scan(
    table: Table,
    roles: Roles,
    tallies: Sequence[Tally],
    missing: str,
    target: TargetTally | None = None,
    progress: RowProgress | None = None,
) -> ScanCounts:
    """Read all rows once; the tallies count those that are used."""
    whole = len(roles.group) == 1 and not (roles.with_label or roles.overlapping)
    whole = whole and may_be_integers(table.schema.field(roles.group[0]).type)
    grouped = bool(roles.group) or roles.with_label
    grouped &= roles.problems.keys().isdisjoint((*roles.group, roles.crossed))
    seen = ScanCounts(whole, target=target)
    for batch in table.batches(roles.used):
        seen.rows += batch.num_rows
        batch = _used(batch, roles, seen, missing)
        y = _targets(batch, roles, seen)
        for tally in tallies:
            with seen.collecting(tally.name):
                tally.add(batch.column(tally.name), y)
        if grouped and not _too_many(roles, seen):
            with seen.collecting(" ".join(roles.group)):
                _count_groups(batch, roles, seen)
        if progress is not None:
            progress(seen.rows, table.n_rows)
    if not seen.whole:  # a later batch may have shown that they are not integers alone
        merged: Counter[Any] = Counter()
        for label, count in seen.groups.items():
            merged[str(label)] += count
        seen.groups = merged
    return seen


def _targets(batch: Any, roles: Roles, seen: ScanCounts) -> Array | None:
    if seen.target is None or seen.target.name in roles.problems:
        return None
    with seen.collecting(seen.target.name):
        return seen.target.add(batch.column(seen.target.name))
    return None


def _too_many(roles: Roles, seen: ScanCounts) -> bool:
    """Whether groups would be crossed with a target that has too many values for classes."""
    return roles.with_label and seen.target is not None and seen.target.many


def _used(batch: Any, roles: Roles, seen: ScanCounts, missing: str) -> Any:
    """The rows of a batch that have a weight and, if asked, no missing value."""
    if roles.weight is not None and roles.weight not in roles.problems:
        with seen.collecting(roles.weight):
            keep = has_weight(batch, roles.weight)
            seen.weightless += int((~keep).sum())
            batch = batch.filter(keep)
    gone = missing_masks(batch, roles.used)
    seen.missing.update({name: int(mask.sum()) for name, mask in gone.items()})
    if gone and missing == "drop":
        keep = ~np.logical_or.reduce(list(gone.values()))
        seen.dropped += int((~keep).sum())
        batch = batch.filter(keep)
    return batch


def _count_groups(batch: Any, roles: Roles, seen: ScanCounts) -> None:
    for name in roles.group:
        check_whole_labels(batch.column(name), name)
    if roles.overlapping:
        for labels, codes in side_by_side_codes(batch, roles.group, roles.crossed):
            _count(labels, codes, seen)
        return
    kind = "integer" if seen.whole else "text"
    labels, codes = group_codes(batch, roles.group, kind, roles.crossed)
    seen.whole &= labels.dtype.kind == "i"
    _count(labels, codes, seen)


def _count(labels: Array, codes: Array, seen: ScanCounts) -> None:
    counts = np.bincount(codes, minlength=len(labels)).tolist()
    for label, count in zip(labels.tolist(), counts, strict=True):
        if count:
            seen.groups[label] += count


def refuse(
    table: Table, roles: Roles, tallies: Sequence[Tally], missing: str, seen: ScanCounts, most: int
) -> None:
    """Raise one error that reports everything wrong with the table."""
    problems = [*roles.problems.values()]
    misfits = list(roles.misfits.values())
    if not seen.weighty:
        problems.append(
            f"every row of {table.where} has weight 0 in the column {roles.weight!r}; use another "
            "weight column, or none"
        )
    else:
        problems += seen.problems.values()
        empty = [name for name in roles.features if seen.missing[name] == seen.weighty]
        misfits += [
            f"{name!r} has no values: leave it out with {drop_option(name)}" for name in empty
        ]
        misfits += [found for tally in tallies if (found := tally.problem())]
        problems += _of_target(roles, seen)
        problems += _of_groups(roles, seen, most)
        problems += _of_holes(table, roles, seen, missing, empty)
    if misfits:
        problems.append("columns cannot be features:\n  " + "\n  ".join(misfits))
    if problems:
        raise DataError("\n".join(problems))


def _of_target(roles: Roles, seen: ScanCounts) -> list[str]:
    if seen.target is None or seen.target.name in roles.problems or not seen.target.rows:
        return []
    if roles.with_label and not seen.target.classes:
        return [
            f"groups can be crossed with classes alone, and the target {seen.target.name!r} holds "
            f"numbers to fit; use task='classify' if they name classes, or with_label=False"
        ]
    found = seen.target.problem()
    return [] if found is None else [found]


def _of_groups(roles: Roles, seen: ScanCounts, most: int) -> list[str]:
    if roles.group and len(seen.groups) > most and all(map(is_numeral, map(str, seen.groups))):
        fraction = next((label for label in seen.groups if not float(label).is_integer()), None)
        if fraction is not None:
            return [str(not_whole(roles.group[0], fraction))]
    return []


def _of_holes(
    table: Table, roles: Roles, seen: ScanCounts, missing: str, empty: Sequence[str]
) -> list[str]:
    """Messages about missing values; empty columns are reported elsewhere."""
    holes = {name: count for name, count in seen.missing.items() if name not in empty}
    needed = {name: n for name, n in holes.items() if name in (roles.target, roles.weight)}
    if missing == "refuse" and holes:
        remedy = "leave these rows out with missing='drop'"
        if not needed:
            remedy += ", or fill them in with missing='impute'"
        elif len(needed) < len(holes):
            remedy += f"; targets and weights, such as {next(iter(needed))!r}, are not filled in"
        return [missing_message(holes, remedy)]
    if missing == "impute" and needed:
        remedy = "targets and weights are not imputed: leave these rows out with missing='drop'"
        return [missing_message(needed, remedy)]
    if missing == "drop" and not seen.used and not empty:
        most = [name for name, _ in seen.missing.most_common(3)]
        return [
            f"every row of {table.where} has a missing value, most often in {listed(most)}: "
            f"leave these columns out with drop={most!r}, or use missing='impute'"
        ]
    return []
