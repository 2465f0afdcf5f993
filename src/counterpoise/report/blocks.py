"""What pages are made of: plain dictionaries that ``page.js`` turns into elements.

All text is text: nothing in here is HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Block = dict[str, Any]


def section(name: str, title: str, *blocks: Block | None) -> Block:
    """A part of the page with a heading and a place in the table of contents."""
    return {"id": name, "title": title, "blocks": [block for block in blocks if block]}


def text(*paragraphs: str) -> Block:
    return {"is": "text", "paragraphs": list(paragraphs)}


def note(words: str) -> Block:
    """A paragraph that is set apart: what a reader must know before believing what is above."""
    return {"is": "note", "text": words}


def bullets(items: Iterable[str]) -> Block:
    return {"is": "list", "items": list(items)}


def facts(items: Iterable[tuple[str, str]]) -> Block:
    """Terms and what there is to say about them."""
    return {"is": "facts", "items": [list(item) for item in items]}


def code(words: str, label: str = "Command") -> Block:
    """Something to copy."""
    return {"is": "code", "text": words, "label": label}


def fold(title: str, *blocks: Block) -> Block:
    """Blocks behind a line to click."""
    return {"is": "fold", "title": title, "blocks": list(blocks)}


def key_figure(name: str, value: str, remark: str, tone: str = "") -> Block:
    """One of the large numbers at the top; ``tone`` is "good", "bad" or nothing."""
    return {"name": name, "value": value, "remark": remark, "tone": tone}


def table(
    name: str,
    caption: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[Any]],
    *,
    sort: tuple[int, str] | None = None,
    search: bool = False,
) -> Block:
    """A table that can be sorted.

    Parameters
    ----------
    columns : pairs of a heading and what is below it
        "text", "number", "count", "share", "interval" (value, low, high) or "verdict" (status,
        evidence).
    sort : column and "ascending" or "descending", in which the rows are given
    search : whether to offer a filter by the first column
    """
    return {
        "is": "table",
        "id": name,
        "caption": caption,
        "columns": [{"name": heading, "as": kind} for heading, kind in columns],
        "rows": [list(row) for row in rows],
        "sort": None if sort is None else list(sort),
        "search": search,
    }


def choice(name: str, noun: str, names: Sequence[str], on: Iterable[int]) -> Block:
    """Boxes to tick; charts of the same ``choice`` show what is ticked."""
    return {"is": "choice", "id": name, "noun": noun, "names": list(names), "on": list(on)}


def chart(name: str, kind: str, title: str, summary: str, caption: str, **data: Any) -> Block:
    """A picture.

    Parameters
    ----------
    kind : "rows", "boxes", "curves" or "frontier", a function of ``charts.js``
    title, caption : what stands above and below
    summary : what it shows, for those who do not see it
    **data : what the function needs
    """
    known = {"is": "chart", "id": name, "kind": kind, "title": title}
    return known | {"summary": summary, "caption": caption} | data
