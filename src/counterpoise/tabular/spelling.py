"""Text that was meant as something else: dates and numbers in spellings that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from counterpoise.tabular.cells import is_numeral

DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([ T]\d{1,2}:\d{2}.*)?"
)
COMMAS = re.compile(r"[-+]?\d+(,\d+)+(\.\d+)?")


def meant(values: Iterable[str]) -> tuple[str, str]:
    """What texts seem to be, and one that shows it: "dates", "commas", "numbers" (all of them),
    "mixed" (most of them are numbers) or "text".

    >>> meant(["1,5", "2"]), meant(["3", "?", "4"]), meant(["24/12/2020"])
    (('commas', '1,5'), ('mixed', '?'), ('dates', '24/12/2020'))
    """
    words = [value for value in values if value.strip()]
    numerals = [word for word in words if is_numeral(word)]
    others = [word for word in words if not is_numeral(word)]
    if words and not others:
        return "numbers", words[0]
    if others and all(COMMAS.fullmatch(word.strip()) for word in others):
        return "commas", others[0]
    if others and not numerals and all(DATE.fullmatch(word.strip()) for word in others):
        return "dates", others[0]
    if len(numerals) > len(others):
        return "mixed", others[0]
    return "text", words[0] if words else ""
