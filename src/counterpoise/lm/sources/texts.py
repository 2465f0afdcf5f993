"""Documents as they go to a corpus: tidy, of a bearable length, and written by somebody."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from hashlib import sha256

# Characters that a document has at most; longer ones are cut.
PIECE = 10_000
# What files of code say that no one wrote.
GENERATED = re.compile(
    r"do not (edit|modify)|(auto[- ]?|code |file (is |was )?(automatically )?)generated|"
    r"generated (by|from|automatically)|@generated",
    re.IGNORECASE,
)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd]")


def decode(data: bytes) -> str | None:
    """UTF-8 as text; None if it is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def tidy(text: str) -> str:
    """Ends of lines as ``\\n``, without blanks before them, empty lines by twos at most.

    >>> tidy("a  \\r\\n\\n\\n\\n b\\f ")
    'a\\n\\n\\n b'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    text = re.sub(r"[ \t\u00a0]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n").rstrip()


def is_text(text: str) -> bool:
    """Whether a document has no control characters and is no random string."""
    return not CONTROL.search(text) and (len(text) < 2000 or ratio(text) < 0.8)


def is_written(text: str) -> bool:
    """Whether code was written by somebody: not minified, not generated, not a table."""
    lines = text.split("\n")
    if len(text) > 60 * len(lines) or max(map(len, lines)) > 400:
        return False
    return not GENERATED.search(text[:1500]) and (len(text) < 2000 or ratio(text) > 0.15)


def ratio(text: str) -> float:
    """What of a text is left when it is compressed."""
    data = text.encode()
    return len(zlib.compress(data, 6)) / len(data)


def choose(documents: Iterable[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Texts, with where they are from, of about ``most`` bytes in all; each text once.

    The hash of a text decides whether it is taken, so that all parts of a source are. It is not
    the hash that decides on a document's split.
    """
    found: dict[str, tuple[int, str, str]] = {}
    for text, source in documents:
        data = text.encode()
        found.setdefault(sha256(data).hexdigest(), (len(data), text, source))
    taken: set[str] = set()
    total = 0
    for key in sorted(found):
        total += found[key][0]
        if total > most and taken:
            break
        taken.add(key)
    return [(text, source) for key, (_, text, source) in found.items() if key in taken]
