"""Numbers, counts, sizes and aligned tables as text: one way to write each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

# Decimal units, largest first.
BYTE_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
COUNT_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
# Characters that a terminal obeys instead of showing, except for tabs and line ends: control
# characters, those that reverse the direction of text, and halves of characters.
CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(f"[{CONTROLS}]")
# Characters of another package's message that are shown, and that are looked at.
LONGEST, READ = 300, 2000
# Errors whose messages stand alone.
TELLING = (ValueError, OSError, RuntimeError, TypeError, ImportError)


def harmless(text: str) -> str:
    r"""Text with control characters written as escapes, to be shown on a terminal.

    Tabs and line ends stay.

    >>> print(harmless("a\x1b[31mb\n"), end="")
    a\x1b[31mb
    """
    return _CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def one_line(said: BaseException | str) -> str:
    r"""The message of another package on one line, without control characters, cut if it is long.

    An error of Python whose message does not stand alone gets its type.

    >>> one_line(KeyError("a")), one_line(ValueError("two\n  \x1blines")), one_line(MemoryError())
    ("KeyError 'a'", 'two \\x1blines', 'MemoryError')
    """
    text = " ".join(str(said)[:READ].split())
    if isinstance(said, BaseException):
        kind = type(said)
        alone = isinstance(said, TELLING) or kind is Exception or kind.__module__ != "builtins"
        if not text or not alone:
            text = f"{kind.__name__} {text}".strip()
    text = harmless(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def figure(value: float | None) -> str:
    """A number with four significant digits, for sentences.

    >>> [figure(x) for x in (0.0123456, 3.0, 1234.56, 1e-9, float("inf"), None)]
    ['0.01235', '3', '1,235', '1e-09', 'no bound', 'unknown']
    """
    if value is None or math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "no bound" if value > 0 else "minus infinity"
    if value == 0 or (value == int(value) and abs(value) < 1e7):
        return f"{int(value):,}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, for a table; a dash if it is not known.

    >>> number(1234.5), number(0.12345, 2), number(float("nan"))
    ('1234', '0.12', '-')
    """
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def amount(value: float) -> str:
    """A number with four significant digits and thousands separators, for a table.

    >>> [amount(x) for x in (1234567.0, 1234.5, 0.012345, float("nan"), float("inf"))]
    ['1,234,567', '1,234', '0.01235', '-', 'inf']
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value) or (value and not 1e-4 <= abs(value) < 1e9):
        return f"{value:.4g}"
    digits = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(digits, 0)}f}"


def percent(share: float) -> str:
    """A share in percent with one decimal; a dash if it is not known.

    >>> percent(0.6624), percent(1.0), percent(float("nan"))
    ('66.2%', '100.0%', '-')
    """
    return "-" if math.isnan(share) else f"{100 * share:.1f}%"


def percent_at_most(share: float) -> str:
    """A bound on a share in percent: two digits, rounded up, and not below 0.001 %.

    >>> percent_at_most(0.12341), percent_at_most(0.01), percent_at_most(3e-9)
    ('13 %', '1 %', '0.001 %')
    """
    number = 100.0 * max(share, 1e-5)
    digits = max(1 - math.floor(math.log10(number)), 0)
    shown = f"{math.ceil(number * 10**digits - 1e-6) / 10**digits:.{digits}f}"
    return f"{shown.rstrip('0').rstrip('.') if digits else shown} %"


def count(number: int, noun: str) -> str:
    """A number of things, with the noun in the singular or plural.

    >>> count(1, "group"), count(1200, "group")
    ('1 group', '1,200 groups')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def rounded(number: float) -> str:
    """A large count: exact below a million, its order of magnitude above.

    >>> rounded(1234.4), rounded(2.6e9), rounded(float("inf"))
    ('1,234', '3e+09', 'no bound')
    """
    if math.isinf(number):
        return "no bound"
    return f"{number:,.0f}" if number < 1e6 else f"{number:.1g}"


def short(number: float) -> str:
    """A count for an axis, with a letter for its unit.

    >>> short(250e6), short(1.5e9), short(12)
    ('250M', '1.5B', '12')
    """
    for unit, name in COUNT_UNITS:
        if abs(number) >= 0.9995 * unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"


def size(number: float) -> str:
    """A number of bytes in decimal units.

    >>> size(999), size(12_345_678), size(16_145_080_320)
    ('999 bytes', '12.3 MB', '16.1 GB')
    """
    for unit, name in BYTE_UNITS:
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number:.0f} bytes"


def change(before: float, after: float) -> str:
    """A relative change, in words.

    >>> change(4.0, 1.0), change(1.0, 1.5), change(1.0, 1.0001)
    ('75% lower', '50% higher', 'unchanged')
    """
    if not (math.isfinite(before) and math.isfinite(after)):
        return "not comparable"
    if before <= 0:
        return "unchanged" if after == before else ("higher" if after > before else "lower")
    ratio = after / before - 1.0
    if abs(ratio) < 5e-4:
        return "unchanged"
    share = f"{abs(ratio):.0%}" if abs(ratio) >= 0.095 else f"{abs(ratio):.1%}"
    return f"{share} {'lower' if ratio < 0 else 'higher'}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    every = list(names)
    shown = ", ".join(every[:most])
    return shown + (f" and {len(every) - most} more" if len(every) > most else "")


def clipped(text: str, width: int = 28) -> str:
    """A name on one line, cut to a width.

    >>> clipped("a name that nobody could ever want to read whole")
    'a name that nobody could ...'
    """
    text = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return text if len(text) <= width else f"{text[: width - 3]}..."


def text_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    align: str = "<>",
    least: Sequence[int] = (),
) -> str:
    """Cells in aligned columns, two spaces apart.

    Parameters
    ----------
    align : str
        "<" (left) or ">" (right) for each column; the last character serves all further columns.
    least : sequence of int
        Least widths of the first columns; 0 for none.

    Examples
    --------
    >>> print(text_table(["group", "risk"], [["north", "1.5"], ["s", "12"]]))
    group  risk
    north   1.5
    s        12
    """
    lines = [list(head), *map(list, rows)]
    columns = list(zip(*lines, strict=True))
    floors = [*least, *[0] * (len(columns) - len(least))]
    widths = [max(floor, *map(len, column)) for column, floor in zip(columns, floors, strict=True)]
    sides = align.ljust(len(widths), align[-1])
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def rounded_down(value: float, digits: int) -> str:
    """Return a number with so many digits, not above the value.

    >>> rounded_down(0.99996, 3), rounded_down(-1.23401, 4), rounded_down(13973.1, 3)
    ('0.999', '-1.235', '13,900')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    found = math.floor(value / unit + 1e-9) * unit
    return f"{found:,.0f}" if 1e3 <= abs(found) < 1e7 else f"{found:.{digits}g}"
