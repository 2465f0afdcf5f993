"""Find the domains of a folder that has a file or a folder for each, such as RedPajama's."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.documents import REMEDY, stem_of
from counterpoise.lm.corpus.tokens import PathLike

logger = logging.getLogger("counterpoise")

# RedPajama's domains as papers call them, and the other names that files have.
REDPAJAMA = {
    "cc": ("cc", "commoncrawl"),
    "github": ("github",),
    "book": ("book", "books"),
    "stackexchange": ("stackexchange",),
    "wiki": ("wiki", "wikipedia"),
    "arxiv": ("arxiv",),
    "c4": ("c4", "c4rp"),
}


def folder_sources(folder: PathLike, domains: Sequence[str] | None = None) -> dict[str, Path]:
    """Find the domains of a folder that has a file or a folder for each.

    Parameters
    ----------
    folder : path
        Holds ``<domain>.jsonl``, ``<domain>.jsonl.gz``, ``<domain>.parquet`` and so on, or folders
        of such files; see :func:`read_documents`. Names that begin with a dot and files of other
        types are skipped.
    domains : sequence of str, optional
        The domains to take; all by default.

    Returns
    -------
    dict from domains to paths
        Sources for :func:`prepare`, sorted by name.
    """
    found = _entries(Path(folder))
    if domains is None:
        return {name: _one(name, paths) for name, paths in sorted(found.items())}
    names = _chosen(domains, folder, sorted(found))
    return {name: _one(name, found[name]) for name in names}


def redpajama_sources(
    folder: PathLike, domains: Sequence[str] | None = None
) -> dict[str, Path | list[Path]]:
    """Find RedPajama's domains in a folder: the whole of it, its sample, or some of its files.

    Parameters
    ----------
    folder : path
        As for :func:`folder_sources`, with RedPajama's names: ``arxiv``, ``c4`` or ``c4-rp``,
        ``cc`` or ``common_crawl``, ``github``, ``stackexchange``, ``wiki`` or ``wikipedia``,
        ``book``. Names may end in ``_sample``, and every crawl may have its own file, such as
        ``cc_2019-30_sample.jsonl``.
    domains : sequence of str, optional
        Some of ``cc``, ``github``, ``book``, ``stackexchange``, ``wiki``, ``arxiv`` and ``c4``;
        other names in the folder are then ignored. By default all that the folder has.

    Returns
    -------
    dict from domains to paths, or lists of paths
        Sources for :func:`prepare`.
    """
    found = _entries(Path(folder))
    known: dict[str, dict[str, list[Path]]] = {}
    unknown = []
    for name, paths in sorted(found.items()):
        domain = _canonical(name)
        if domain is None:
            unknown.append(name)
        else:
            known.setdefault(domain, {})[name] = paths
    if domains is None:
        if unknown:
            raise ValueError(
                f"{str(folder)!r} has {unknown!r}, which are not domains of RedPajama; move them, "
                f"choose among {_order(known)!r} with domains=..., or use folder_sources for names "
                "of your own"
            )
        names = _order(known)
    else:
        names = _chosen(domains, folder, _order(known))
    return {name: _joined(name, known[name]) for name in names}


def _chosen(domains: Sequence[str], folder: PathLike, there: list[str]) -> list[str]:
    """Return the domains that are asked for; the folder must have them all."""
    names = _names(domains)
    missing = [name for name in names if name not in there]
    if missing:
        raise ValueError(f"domains={names!r}: {str(folder)!r} lacks {missing!r}; it has {there!r}")
    return names


def _entries(folder: Path) -> dict[str, list[Path]]:
    """Return the paths in a folder, by names without suffixes."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(folder)!r}; give one that has a file or a folder for each "
            "domain"
        )
    found: dict[str, list[Path]] = {}
    skipped = []
    for path in sorted(folder.iterdir()):
        name = path.name if path.is_dir() else stem_of(path.name)
        if path.name.startswith("."):
            continue
        if name is None:
            skipped.append(path.name)
        else:
            found.setdefault(name, []).append(path)
    if skipped:
        logger.info("skipped files of other types in %s: %s", folder, ", ".join(skipped[:5]))
    if not found:
        raise FileNotFoundError(f"{str(folder)!r} has nothing to read; for each domain, {REMEDY}")
    return found


def _canonical(name: str) -> str | None:
    """Return the domain of RedPajama that a name stands for.

    >>> _canonical("wikipedia_sample"), _canonical("cc_2019-30_sample"), _canonical("poems")
    ('wiki', 'cc', None)
    """
    plain = re.sub(r"[-_ ]", "", name.lower().removesuffix("_sample"))
    for domain, names in REDPAJAMA.items():
        if plain in names or (domain == "cc" and plain[:-6] in names and plain[-6:].isdigit()):
            return domain
    return None


def _joined(domain: str, entries: dict[str, list[Path]]) -> Path | list[Path]:
    """Return one path, or those of several crawls."""
    paths = [_one(name, found) for name, found in entries.items()]
    if len(paths) == 1:
        return paths[0]
    if domain == "cc" and all(re.search(r"\d{4}-?\d{2}", name) for name in entries):
        return paths
    raise ValueError(
        f"the domain {domain!r} has several sources, {[path.name for path in paths]!r}; keep one"
    )


def _one(name: str, paths: list[Path]) -> Path:
    if len(paths) > 1:
        raise ValueError(
            f"the domain {name!r} has several sources, {[path.name for path in paths]!r}; keep one"
        )
    return paths[0]


def _order(known: dict[str, Any]) -> list[str]:
    return [name for name in REDPAJAMA if name in known]


def _names(domains: Any) -> list[str]:
    if isinstance(domains, str) or not isinstance(domains, Sequence) or not domains:
        raise TypeError(f"domains must be a list of names; got {domains!r}")
    return list(domains)
