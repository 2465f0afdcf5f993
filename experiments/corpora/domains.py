"""Make one file of documents for each domain, out of packages."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterpoise.storage.files import locked, read_json, write_bytes, write_json
from experiments.corpora.packages import FetchError, Package, read
from experiments.corpora.recipes import RECIPES, RECIPES_VERSION, Recipe
from experiments.corpora.texts import PIECE, choose, cut, is_text, is_written, tidy

PACKAGES = ".packages"
INDEX = ".registry.json"
INDEX_FORMAT, VERSION = "counterpoise-registry", 1
REMEDY = "remove it to make its domains anew, or choose another folder"
MAX_BYTES = 4_000_000
KNOWN = {recipe.name: recipe for recipe in RECIPES}
#: domains that need no client but pip
PIP_DOMAINS = [recipe.name for recipe in RECIPES if set(recipe.clients) <= {"pip"}]


def make_domains(
    out: Path, domains: Sequence[str] = PIP_DOMAINS, max_bytes: int = MAX_BYTES
) -> dict[str, Path]:
    """Write ``<out>/<domain>.jsonl.gz`` for each domain, one document a line.

    A line is ``{"text": ..., "source": ...}``. Finished domains are left alone, and packages are
    fetched once, to ``<out>/.packages``. The same packages give the same bytes.

    Files that are binary, code that is minified or generated, and repeated documents are left
    out. Long documents are cut, so pieces of one file may fall into different splits.

    Parameters
    ----------
    out : Path
        A folder, made if need be.
    domains : sequence of str
        Names of `RECIPES`.
    max_bytes : int
        Most bytes of text of a domain; see `choose`.
    """
    unknown = [name for name in domains if name not in KNOWN]
    if unknown:
        raise ValueError(f"unknown domains {unknown!r}; choose among {list(KNOWN)!r}")
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        index = _index(out)
        paths = {name: out / f"{name}.jsonl.gz" for name in domains}
        for name, path in paths.items():
            if not _is_done(KNOWN[name], index, path, max_bytes):
                index[name] = _make(KNOWN[name], out, path, max_bytes)
                head = {"format": INDEX_FORMAT, "version": VERSION}
                write_json(out / INDEX, head | {"domains": index})
            about = index[name]
            print(f"{name}: {about['documents']:,} documents, {about['bytes'] / 1e6:.1f} MB")
    return paths


def documents(recipe: Recipe, packages: Path) -> Iterator[tuple[str, str]]:
    """Yield all texts of a domain, tidied and cut, each with its package and file."""
    for package in recipe.packages:
        for name, data in read(package, packages, recipe.wants):
            for text in _parsed(recipe, package, name, data):
                text = tidy(text)
                if not is_text(text) or (recipe.code and not is_written(text)):
                    continue
                for piece in map(tidy, cut(text, PIECE)):
                    if len(piece) >= recipe.shortest and is_text(piece):
                        yield piece, f"{package}: {name}"


def _parsed(recipe: Recipe, package: Package, name: str, data: bytes) -> Iterator[str]:
    try:
        yield from recipe.parse(data)
    except Exception as error:  # every format has its own
        raise ValueError(
            f"{package}: {name!r} cannot be parsed ({type(error).__name__}: {error}); remove the "
            f"package from {PACKAGES} to fetch it anew, or leave the domain out"
        ) from error


def _make(recipe: Recipe, folder: Path, path: Path, most: int) -> dict[str, Any]:
    try:
        found = choose(documents(recipe, folder / PACKAGES), most)
    except FetchError as error:
        raise FetchError(
            f"domain {recipe.name!r}: {error}\nThese domains need pip alone: "
            f"{','.join(PIP_DOMAINS)}"
        ) from error
    except ValueError as error:
        raise ValueError(f"domain {recipe.name!r}: {error}") from error
    if not found:
        raise ValueError(
            f"domain {recipe.name!r}: no text in {', '.join(map(str, recipe.packages))}; leave "
            "the domain out"
        )
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 6, packed, mtime=0) as file,  # the same bytes every time
        io.TextIOWrapper(file, encoding="utf-8", newline="\n") as lines,
    ):
        for text, source in found:
            row = {"text": text, "source": source}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    write_bytes(path, packed.getvalue())
    size = sum(len(text.encode()) for text, _ in found)
    return _identity(recipe, most) | {"documents": len(found), "bytes": size}


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
    if then != now:
        differ = ", ".join(f"{k}={then[k]!r}, now {now[k]!r}" for k in now if then[k] != now[k])
        raise ValueError(
            f"{str(path)!r} was made with {differ}; remove it to make it anew, or choose another "
            "folder"
        )
    return True


def _index(folder: Path) -> dict[str, Any]:
    if not (folder / INDEX).is_file():
        return {}
    return dict(read_json(folder / INDEX, INDEX_FORMAT, VERSION, REMEDY)["domains"])
