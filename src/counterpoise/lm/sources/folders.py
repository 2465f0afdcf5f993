"""A folder with a file or a folder of documents for each domain; RedPajama's among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterpoise.lm.documents import find_parts
from counterpoise.lm.tokens import PathLike

# The names of RedPajama's domains in the paper, and those that its files and folders have.
REDPAJAMA = {
    "cc": ("cc", "common_crawl", "commoncrawl", "cc-rp"),
    "github": ("github", "github-rp"),
    "book": ("book", "books", "book-rp"),
    "stackexchange": ("stackexchange", "stack_exchange", "stackexchange-rp"),
    "wiki": ("wiki", "wikipedia", "wiki-rp"),
    "arxiv": ("arxiv", "arxiv-rp"),
    "c4": ("c4", "c4-rp"),
}


def folder_sources(
    folder: PathLike, domains: Sequence[str] | None = None, *, text: str = "text"
) -> dict[str, Path]:
    """The domains of a folder: each file of documents or folder in it is one, by its name without
    endings. All of them, or those that are named."""
    found = _found(Path(folder), text)
    return _chosen(found, domains, folder)


def redpajama_sources(
    folder: PathLike, domains: Sequence[str] | None = None, *, text: str = "text"
) -> dict[str, Path]:
    """The domains of a folder in RedPajama's layout, by the paper's names: cc, github, book,
    stackexchange, wiki, arxiv and c4, those that are there.

    A domain is a file (``arxiv.jsonl.gz``, ``arxiv_sample.jsonl``) or a folder of shards
    (``common_crawl/2023-06/...``).
    """
    canonical = {other: name for name, others in REDPAJAMA.items() for other in others}
    found: dict[str, Path] = {}
    unknown: list[str] = []
    for own, path in _found(Path(folder), text).items():
        name = canonical.get(own.lower().removesuffix("_sample").removesuffix("-sample"))
        if name is None:
            unknown.append(own)
        elif name in found:
            raise ValueError(f"{str(found[name])!r} and {str(path)!r} are both the domain {name!r}")
        else:
            found[name] = path
    if unknown and domains is None:
        raise ValueError(
            f"{str(folder)!r} holds {sorted(unknown)[:5]!r}, which are no domains of RedPajama; "
            "name those to be used (domains), or use the recipe 'folders'"
        )
    return _chosen({name: found[name] for name in REDPAJAMA if name in found}, domains, folder)


def _found(folder: Path, text: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; it should hold the domains")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        try:
            find_parts(path, text)
        except (ValueError, FileNotFoundError):
            continue  # a README, a checksum
        name = path.name if path.is_dir() else path.name.split(".")[0]
        if name in found:
            raise ValueError(
                f"{str(found[name])!r} and {str(path)!r} would both be the domain {name!r}; put "
                "them into a folder of that name"
            )
        found[name] = path
    if not found:
        raise FileNotFoundError(f"no file or folder of documents is in {str(folder)!r}")
    return found


def _chosen(
    found: dict[str, Path], domains: Sequence[str] | None, folder: PathLike
) -> dict[str, Path]:
    missing = [name for name in domains or () if name not in found]
    if missing:
        raise ValueError(
            f"domains={list(domains or ())!r}: {missing!r} are not in {str(folder)!r}, which has "
            f"{list(found)!r}"
        )
    return {name: found[name] for name in domains or found}
