"""Errors about data: each names the column and the remedy, in terms of Python arguments."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

# Names that a message lists at most.
LISTED = 20
# Columns among which a misspelt name is looked for, and characters shown of a name.
COMPARED, SHOWN = 1000, 100


class DataError(ValueError):
    """A file, a column or a value that cannot be used; the message says what to do about it.

    Remedies are written as Python arguments, such as ``missing='drop'``; the command line shows
    them as its own options.

    Attributes
    ----------
    argument : str or None
        The argument that the remedy would change, if there is one.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


def listed(names: Iterable[object], most: int = LISTED) -> str:
    """The first few names, quoted, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    given = list(names)
    shown = [_quoted(name) for name in given[:most]]
    more = len(given) - most
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _quoted(name: object) -> str:
    text = repr(name)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]}...{text[-1]}"


def in_columns(names: Sequence[object]) -> str:
    """The columns that something is in.

    >>> in_columns(["a"]), in_columns(["a", "b"])
    ("in the column 'a'", "in the columns 'a', 'b'")
    """
    return f"in the column{'s' * (len(names) != 1)} {listed(names)}"


def no_memory(file: object) -> DataError:
    return DataError(
        f"{str(file)!r} does not fit in the memory of this machine; save it as Parquet, which is "
        "read in chunks, or keep fewer rows or columns"
    )


DERIVE = "derive columns from it, such as the hour or the days since the first one"
POINTS = (
    "write 1234.5 without commas, thousands separators or currency signs, or open a CSV file whose "
    "decimal mark is a comma with decimal=','"
)


def drop_option(name: str) -> str:
    """The argument that leaves a column out.

    >>> drop_option("row id")
    "drop=['row id']"
    """
    return f"drop={[name]!r}"


def dates_option(name: str) -> str:
    """The argument that makes features of a column of dates.

    >>> dates_option("when")
    "use its year, month and weekday with dates=['when']"
    """
    return f"use its year, month and weekday with dates={[name]!r}"


def check_names(wanted: Iterable[str], names: Sequence[str], where: str, role: str = "") -> None:
    """Check that the names are columns; the error lists close matches and the columns.

    >>> check_names(["prise"], ["price", "town"], "'a.csv'")
    Traceback (most recent call last):
        ...
    counterpoise.tabular.errors.DataError: 'a.csv' has no column 'prise'; did you mean 'price'? \
It has 'price', 'town'
    """
    known = set(names)
    absent = [name for name in dict.fromkeys(wanted) if name not in known]
    if not absent:
        return
    close = {name: None for one in absent[:LISTED] for name in _close(one, names)}
    meant = f"did you mean {listed(close, 3)}? It has" if close else "it has"
    kind = f"{role} column" if role else "column"
    raise DataError(
        f"{where} has no {kind}{'s' * (len(absent) > 1)} {listed(absent)}; {meant} {listed(names)}"
    )


def _close(name: str, names: Sequence[str]) -> list[str]:
    plain = {other.strip().casefold(): other for other in names[:COMPARED]}
    found = difflib.get_close_matches(name.strip().casefold(), plain, 3)
    return [plain[one] for one in found]
