"""Building blocks of a page: plain dictionaries that ``page.js`` turns into elements.

Blocks hold text, never HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Block = dict[str, Any]


def section(name: str, title: str, *blocks: Block | None) -> Block:
    """A heading with the blocks below it; it appears in the table of contents."""
    return {"id": name, "title": title, "blocks": [block for block in blocks if block]}


def text(*paragraphs: str) -> Block:
    """Paragraphs."""
    return {"is": "text", "paragraphs": list(paragraphs)}


def note(words: str) -> Block:
    """A paragraph that stands out: a caveat on what is above."""
    return {"is": "note", "text": words}


def bullets(items: Iterable[str]) -> Block:
    """A bulleted list."""
    return {"is": "list", "items": list(items)}


def facts(items: Iterable[tuple[str, str]]) -> Block:
    """Terms and their descriptions."""
    return {"is": "facts", "items": [list(item) for item in items]}


def code(words: str, label: str = "Command") -> Block:
    """Text in a fixed-width font, with a button that copies it."""
    return {"is": "code", "text": words, "label": label}


def fold(title: str, *blocks: Block) -> Block:
    """Blocks that open at a click."""
    return {"is": "fold", "title": title, "blocks": list(blocks)}


def key_figure(name: str, value: str, remark: str, tone: str = "") -> Block:
    """One of the large numbers at the top; ``tone`` is "good", "bad" or empty."""
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
    """A table that readers can sort.

    Parameters
    ----------
    columns : pairs of a heading and a kind
        Kinds are "text", "number", "count", "share", "change", "points" (of percent), "interval"
        (value, low, high; also "share-interval" and "points-interval") and "verdict" (status,
        evidence).
    sort : pair, optional
        Column number and "ascending" or "descending", if the rows are already sorted.
    search : bool
        Whether to offer a filter on the first column.
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
    """Checkboxes; charts with the same ``choice`` show what is ticked."""
    return {"is": "choice", "id": name, "noun": noun, "names": list(names), "on": list(on)}


def chart(name: str, kind: str, title: str, summary: str, caption: str, **data: Any) -> Block:
    """A chart.

    Parameters
    ----------
    kind : {"rows", "boxes", "curves", "frontier"}
        The function of ``charts.js`` that draws it.
    title, caption : str
        Text above and below.
    summary : str
        What the chart shows, for screen readers.
    **data
        Data of that function.
    """
    known = {"is": "chart", "id": name, "kind": kind, "title": title}
    return known | {"summary": summary, "caption": caption} | data
