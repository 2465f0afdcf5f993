"""Checks of the arguments that the functions of this room share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.lm.corpus.documents import Source, find_readers
from counterpoise.lm.corpus.metadata import is_domain_name, is_split_name
from counterpoise.lm.corpus.readers import Reader


def check_domains(sources: Any) -> list[str]:
    """Return the domains' names, all of which can name folders."""
    if not isinstance(sources, Mapping) or not sources:
        raise TypeError(
            f"sources must be a mapping from domains to sources, with at least one; got {sources!r}"
        )
    for name in sources:
        if not is_domain_name(name):
            raise ValueError(
                f"{name!r} cannot name a domain, because it becomes a folder's name; use letters, "
                "digits, '-', '_' and '.', but no '.' at the beginning"
            )
    if len({name.casefold() for name in sources}) < len(sources):
        raise ValueError(
            f"the domains {list(sources)!r} differ in capitals only, which some disks ignore; use "
            "other names"
        )
    return list(sources)


def check_split_shares(splits: Any) -> dict[str, float]:
    """Return the share of every split; everything is ``train`` by default."""
    if splits is None:
        return {"train": 1.0}
    if not isinstance(splits, Mapping) or not splits:
        raise TypeError(
            "splits must be a mapping such as {'train': 0.98, 'validation': 0.02}; got "
            f"{splits!r}"
        )
    for name, share in splits.items():
        if not is_split_name(name):
            raise ValueError(
                f"splits: {name!r} cannot name a split; use letters, digits, '-' and '_'"
            )
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise ValueError(f"splits: {name!r} must have a share between 0 and 1; got {share!r}")
    total = sum(splits.values())
    if abs(total - 1) > 1e-9:
        raise ValueError(f"splits: the shares must add up to 1; they add up to {total:g}")
    return {name: float(share) for name, share in splits.items()}


def check_workers(workers: Any) -> int | None:
    """Return the number of worker processes, or None to choose it later."""
    if workers is None:
        return None
    if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 0:
        raise ValueError(f"workers must be None or an integer >= 0; got {workers!r}")
    return int(workers)


def check_columns(text: Any, names: list[str]) -> dict[str, str]:
    """Return the field that holds the text of every domain."""
    if isinstance(text, str):
        return dict.fromkeys(names, text)
    if not isinstance(text, Mapping):
        raise TypeError(
            f"text must be the name of a field, or a mapping from domains to names; got {text!r}"
        )
    if set(text) != set(names):
        raise ValueError(f"text must name a field for each of {names!r}; got {dict(text)!r}")
    return {name: text[name] for name in names}


def check_outside(sources: Mapping[str, Source], out: Path) -> None:
    """Make sure that what is written does not become part of what is read."""
    for name, source in sources.items():
        for item in source if isinstance(source, (list, tuple)) else [source]:
            if not isinstance(item, (str, os.PathLike)) or not os.path.isdir(item):
                continue
            if out.resolve().is_relative_to(Path(item).resolve()):
                raise ValueError(
                    f"out={str(out)!r} is inside the source {os.fspath(item)!r} of domain "
                    f"{name!r}; choose a folder outside of it"
                )


def readers_of(name: str, source: Source, text: str, most: int | None = None) -> list[Reader]:
    """Return the readers of a domain's source; errors name the domain."""
    try:
        return find_readers(source, text, most)
    except (ValueError, TypeError, FileNotFoundError) as error:
        kinds = (FileNotFoundError, TypeError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"domain {name!r}: {error}") from error
