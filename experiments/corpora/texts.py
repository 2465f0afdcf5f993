"""Clean, cut, judge and choose texts before they become documents."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from hashlib import sha256

# Most characters of a document; longer ones are cut.
PIECE = 10_000
# What generated code says about itself.
GENERATED = re.compile(
    r"do not (edit|modify)|(auto[- ]?|code |file (is |was )?(automatically )?)generated|"
    r"generated (by|from|automatically)|@generated",
    re.IGNORECASE,
)
# Where a text may be cut, the best first.
GAPS = ("\n\n", "\n", ". ", " ")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd]")


def decode(data: bytes) -> str | None:
    """Decode UTF-8; return None if the data are something else."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def tidy(text: str) -> str:
    """Normalise line ends, strip trailing spaces, keep at most two empty lines in a row.

    >>> tidy("a  \\r\\n\\n\\n\\n b\\f ")
    'a\\n\\n\\n b'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    text = re.sub(r"[ \t\u00a0]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n").rstrip()


def cut(text: str, most: int) -> list[str]:
    """Cut a text into pieces of about equal length, of at most ``most`` characters.

    A piece ends after a paragraph, line, sentence or word, whichever is found first in its second
    half. Joined again the pieces are the text, but for blank ones, which are left out.

    >>> cut("One two. Three four.", 16)
    ['One two. ', 'Three four.']
    """
    pieces, at = [], 0
    while at < len(text):
        left = len(text) - at
        size = -(-left // -(-left // most))
        end = at + size
        if end < len(text):
            found = ((text.rfind(mark, at + size // 2, end), mark) for mark in GAPS)
            end = next((i + len(mark) for i, mark in found if i >= 0), end)
        if not text[at:end].isspace():
            pieces.append(text[at:end])
        at = end
    return pieces


def is_text(text: str) -> bool:
    """Return whether a text has no control characters and is no random string."""
    return not CONTROL.search(text) and (len(text) < 2000 or ratio(text) < 0.8)


def is_written(text: str) -> bool:
    """Return whether a person wrote this code: it is not minified, generated or a table."""
    lines = text.split("\n")
    if len(text) > 60 * len(lines) or max(map(len, lines)) > 400:
        return False
    return not GENERATED.search(text[:1500]) and (len(text) < 2000 or ratio(text) > 0.15)


def ratio(text: str) -> float:
    """Return the compressed size of a text as a share of its size."""
    data = text.encode()
    return len(zlib.compress(data, 6)) / len(data)


def choose(documents: Iterable[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Choose distinct texts, each with its source, of about ``most`` bytes in all.

    The hash of a text decides, so the choice is spread over the whole source. It is another hash
    than the one that assigns documents to splits.
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
