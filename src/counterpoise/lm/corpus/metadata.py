"""Metadata of a corpus: JSON that carries a checksum of its own, and what it must hold.

Version 1, of release 0.1, had no checksums. It is read, and its values are checked one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.lm.sealed import read_sealed, write_sealed

CORPUS, INDEX = "corpus.json", "index.json"
CORPUS_FORMAT, INDEX_FORMAT, VERSION = "counterpoise corpus", "counterpoise domain", 2
READABLE = (1, VERSION)
AGAIN = "prepare the corpus again with overwrite=True, which makes only damaged domains anew"
AGAIN_FROM = "copy it again from where the corpus was prepared, or " + AGAIN
WITHOUT = "delete this file and prepare the corpus again, which keeps the domains that are whole"


def read_corpus_file(folder: Path) -> dict[str, Any]:
    """Read what a corpus says about itself."""
    path = folder / CORPUS
    known = _read(path, CORPUS_FORMAT, WITHOUT)
    _check(path, known, CORPUS_RULES, WITHOUT)
    return known


def write_corpus_file(folder: Path, known: Mapping[str, Any]) -> None:
    """Write what a corpus says about itself, unless it says so already."""
    told = read_corpus_file(folder) if (folder / CORPUS).is_file() else {}
    if told | {"version": VERSION} != {**known, "version": VERSION}:
        write_sealed(folder / CORPUS, known)


def read_index(folder: Path) -> dict[str, Any]:
    """Read the index of a finished domain."""
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} has no finished domain (no {INDEX}); prepare it again"
        )
    known = _read(path, INDEX_FORMAT, AGAIN_FROM)
    _check(path, known, INDEX_RULES, AGAIN_FROM)
    if known["domain"] != folder.name:
        raise ValueError(
            f"{str(path)!r} belongs to the domain {known['domain']!r}; give the folder that name"
        )
    return known


def is_domain_name(name: Any) -> bool:
    """Whether a name can be that of a folder on any disk."""
    return (
        isinstance(name, str)
        and bool(name)
        and name == name.strip()
        and not name.startswith(".")
        and name != CORPUS
        and not re.search(r'[/\\:*?"<>|\x00-\x1f]', name)
    )


def is_split_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-]+", name) is not None


def dtype_of(vocab_size: int) -> np.dtype:
    """Return the smaller of two types that holds every id."""
    if not 0 < vocab_size <= 1 << 31:
        raise ValueError(f"vocab_size must be between 1 and 2**31; got {vocab_size!r}")
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def _read(path: Path, kind: str, remedy: str) -> dict[str, Any]:
    return read_sealed(path, remedy, kind=kind, versions=READABLE, since=VERSION)


def _check(
    path: Path, known: dict[str, Any], rules: dict[str, Callable[[Any], bool]], remedy: str
) -> None:
    wrong = [name for name, rule in rules.items() if not rule(known.get(name))]
    if not wrong:
        size, end = known["vocab_size"], known["end"]
        if end >= size or known.get("dtype", dtype_of(size).str) != dtype_of(size).str:
            wrong = ["vocab_size"]
    if wrong:
        raise ValueError(
            f"{str(path)!r} is damaged: {wrong[0]!r} is {known.get(wrong[0])!r:.60}; {remedy}"
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_size(value: Any) -> bool:
    return _is_count(value) and 0 < value <= 1 << 31


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_domains(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_domain_name, value))


def _are_splits(value: Any) -> bool:
    """A corpus names its splits, in a list or with their shares."""
    return isinstance(value, (list, dict)) and bool(value) and all(map(is_split_name, value))


def _are_counted(value: Any) -> bool:
    """An index has the tokens and documents of every split."""
    return isinstance(value, dict) and all(
        is_split_name(name)
        and isinstance(found, dict)
        and _is_count(found.get("tokens"))
        and _is_count(found.get("documents"))
        for name, found in value.items()
    )


def _is_source(value: Any) -> bool:
    """Token ids that `write_tokens` was given have no source."""
    return value is None or (
        isinstance(value, dict)
        and _is_count(value.get("parts"))
        and isinstance(value.get("digest"), str)
        and (value.get("bytes") is None or _is_count(value["bytes"]))
    )


SHARED_RULES: dict[str, Callable[[Any], bool]] = {
    "tokenizer": _is_text, "vocab_size": _is_size, "end": _is_count,
}  # fmt: skip
CORPUS_RULES = SHARED_RULES | {"domains": _are_domains, "splits": _are_splits}
INDEX_RULES = SHARED_RULES | {
    "domain": _is_text, "dtype": _is_text, "splits": _are_counted, "source": _is_source,
}  # fmt: skip
