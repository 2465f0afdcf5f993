"""Recognise text that was meant as dates or numbers, in spellings that are not read as such."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from counterpoise.tabular.cells import is_numeral

# How many distinct values of a column must be numbers (or dates), and which share of them, for the
# others to count as strays.
ENOUGH, MOST = 5, 0.8

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?,? )?"
_YEAR, _DAY, _BETWEEN = r"(?:1[5-9]|2[01])\d\d", r"\d{1,2}(?:st|nd|rd|th)?", r"[-/., ]{0,2}"
DATE = re.compile(
    rf"{_WEEKDAY}(?:"
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})"
    rf"|{_YEAR}[-/](?:0?[1-9]|1[0-2])|(?:0?[1-9]|1[0-2])[-/]{_YEAR}"
    rf"|{_DAY}{_BETWEEN}{_MONTH}(?:{_BETWEEN}(?:\d{{4}}|\d\d))?"
    rf"|{_MONTH}{_BETWEEN}{_DAY}[, ]{{1,2}}\d{{4}}"
    rf"|{_MONTH}{_BETWEEN}'?(?:\d{{4}}|\d\d)|{_YEAR}{_BETWEEN}{_MONTH}(?:{_BETWEEN}{_DAY})?"
    r")(?:,?[ T]\d{1,2}:\d{2}.*)?",
    re.IGNORECASE,
)
# Numbers with decimal commas, thousands separators, percent or currency signs.
_SIGN, _MONEY = r"[-+\u2212]?", r"[$€£¥]?"
_GROUPED = r"\d{1,3}(?:[ .,'\u2019\u00a0\u2009\u202f]\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}"
NUMBER = re.compile(
    rf"{_SIGN} ?{_MONEY} ?{_SIGN}"
    rf"(?:(?:{_GROUPED}|\d+)(?:[.,]\d*)?|[.,]\d+)(?:e[-+]?\d+)?\s?[%‰$€£¥]?",
    re.IGNORECASE,
)
# Ranges and bounds show that the numbers beside them are names: 0, 1, 2, 3, "4 or more".
_SIZE = r"\d+(?:[.,]\d+)?"
BAND = re.compile(
    r"(?:(?:[<>≤≥]=?|under|over|below|above|up to|less than|more than|at least|at most)"
    rf"\s*{_SIZE}|{_SIZE}\s*(?:\+|(?:[-\u2013\u2014]|to|\.\.)\s*{_SIZE}"
    r"|(?:or|and) (?:more|less|fewer|over|under|above|below|older|younger)))(?:\s*\w+)?",
    re.IGNORECASE,
)
# Text in cells that have no value.
HOLES = frozenset(
    [
        *("", "?", "??", "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "*", "**", "na"),
        *("n/a", "n.a.", "#n/a", "nan", "null", "nil", "none", "missing", "(missing)", "unknown"),
    ]
)


@dataclass(frozen=True)
class TextKind:
    """What the texts of a column seem to be.

    Attributes
    ----------
    kind : {"numbers", "marked", "dates", "text"}
        "marked" means numbers in other spellings.
    example : str, a typical text
    strays : tuple of str, texts of another kind
    """

    kind: str
    example: str = ""
    strays: tuple[str, ...] = ()


def text_kind(values: Iterable[str], lax: bool = False) -> TextKind:
    """Guess what the distinct texts of a column are.

    Strays are allowed if they mean missing values or are at most a fifth of the texts; if ``lax``,
    less than half. Numbers among ranges are names.

    >>> text_kind(["1,5", "2"])
    TextKind(kind='marked', example='1,5', strays=())
    >>> text_kind(["3", "?", "4"])
    TextKind(kind='numbers', example='3', strays=('?',))
    >>> text_kind(["24 Dec 2020"]).kind, text_kind(["0", "1", "2", "3", "4", "5+"]).kind
    ('dates', 'text')
    """
    words = list(values)
    plain = {word for word in words if is_numeral(word)}
    marked = [word for word in words if word not in plain and NUMBER.fullmatch(word.strip())]
    likes = plain.union(marked)
    strays = tuple(word for word in words if word not in likes)
    if _prevail(len(likes), strays, lax):
        example = marked[0] if marked else next(word for word in words if word in plain)
        return TextKind("marked" if marked else "numbers", example, strays)
    dates = [word for word in words if DATE.fullmatch(word.strip())]
    strays = tuple(word for word in words if not DATE.fullmatch(word.strip()))
    if _prevail(len(dates), strays, lax):
        return TextKind("dates", dates[0], strays)
    return TextKind("text", next((word for word in words if word.strip()), ""))


def _prevail(likes: int, strays: tuple[str, ...], lax: bool) -> bool:
    if not likes or not strays:
        return likes > 0
    if all(stray.strip().casefold() in HOLES for stray in strays):
        return likes > 1
    if lax:
        return likes > len(strays)
    if all(BAND.fullmatch(stray.strip()) for stray in strays):
        return False
    return likes >= ENOUGH and likes >= MOST * (likes + len(strays))
