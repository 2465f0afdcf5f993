"""Call other packages so that they neither ask questions nor panic."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
