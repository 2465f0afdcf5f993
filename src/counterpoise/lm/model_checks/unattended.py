"""Call other packages so that they neither ask questions nor fail in many words."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 300


@contextmanager
def unattended() -> Iterator[None]:
    """Answer every question on standard input with its end.

    transformers and older releases of datasets ask whether to run the code of a repository. Piped
    input, such as that of ``yes``, must not be able to agree.
    """
    before = sys.stdin
    sys.stdin = io.StringIO()
    try:
        yield
    finally:
        sys.stdin = before


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn panics of packages in Rust, which are no Exceptions, into ValueErrors."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from None


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, cut if it is long; its type if it has none.

    >>> one_line(KeyError("a")), one_line(ValueError("two\\n  lines")), one_line(MemoryError())
    ("KeyError 'a'", 'two lines', 'MemoryError')
    """
    text = " ".join(str(error).split())
    kinds = (ValueError, OSError, RuntimeError, TypeError, ImportError)
    plain = isinstance(error, kinds) or type(error) is Exception
    if not plain or not text:
        text = f"{type(error).__name__} {text}".strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
