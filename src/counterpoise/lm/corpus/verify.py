"""Check token files against their checksums, once; see `counterpoise.storage.remembered`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterpoise.lm.corpus.metadata import AGAIN_FROM
from counterpoise.storage.remembered import checksums_once, recall, remember, state_of

if TYPE_CHECKING:
    from counterpoise.lm.corpus.tokens import Tokens

CHUNK = 1 << 22
IDS_CHECKED = ""  # remembered of files that have no checksum


def verify_tokens(tokens: Tokens) -> None:
    """Raise ValueError if the files of a split are not as they were written.

    Files of release 0.1, which have no checksums, are checked for ids outside of the vocabulary and
    for documents that do not end with the end token.
    """
    paths = [tokens.path, tokens.ends_path]
    if tokens.checksums is None:
        if any(recall(path, beside=True) != IDS_CHECKED for path in paths):
            before = {path: [*state_of(path), IDS_CHECKED] for path in paths}
            _check_ids(tokens)
            _check_ends(tokens)
            remember(before, beside=True)
        return
    found = checksums_once(paths, tokens.checksums, beside=True)
    for path, crc, stated in zip(paths, found, tokens.checksums, strict=True):
        if crc != stated:
            raise ValueError(
                f"{str(path)!r} is damaged: its checksum is {crc} and was {stated} when it was "
                f"written; {AGAIN_FROM}"
            )


def _check_ids(tokens: Tokens) -> None:
    for start, ids in _chunks(tokens.path, tokens.dtype):
        if int(ids.max()) >= tokens.vocab_size:
            at = start + int(np.argmax(ids >= tokens.vocab_size))
            raise ValueError(
                f"{str(tokens.path)!r} is damaged: token {at} is {ids[at - start]}, outside of the "
                f"vocabulary of {tokens.vocab_size}; {AGAIN_FROM}"
            )


def _check_ends(tokens: Tokens) -> None:
    """Check that documents follow one another, up to the last token."""
    last = 0
    for start, ends in _chunks(tokens.ends_path, np.dtype("<u8")):
        ends = ends.astype(np.int64)
        steps = np.diff(ends, prepend=last)
        wrong = (steps <= 0) | (ends > tokens.n_tokens)
        if not wrong.any():
            wrong = tokens.at(ends - 1) != tokens.end
        if wrong.any():
            raise ValueError(
                f"{str(tokens.ends_path)!r} or {str(tokens.path)!r} is damaged: document "
                f"{start + int(np.argmax(wrong))} does not end with the token {tokens.end}; "
                f"{AGAIN_FROM}"
            )
        last = int(ends[-1])
    if last != tokens.n_tokens:
        raise ValueError(
            f"{str(tokens.ends_path)!r} is damaged: the last document ends at {last} of "
            f"{tokens.n_tokens} tokens; {AGAIN_FROM}"
        )


def _chunks(path: Path, dtype: np.dtype) -> Iterator[tuple[int, np.ndarray]]:
    with open(path, "rb") as file:
        start = 0
        while data := file.read(CHUNK * dtype.itemsize):
            found = np.frombuffer(data, dtype)
            yield start, found
            start += len(found)
