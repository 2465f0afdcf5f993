"""Small corrections of pages, for readers who use a keyboard or hear a page read."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# Captions of the navigation are headings without a level; empty headers of tables announce nothing.
CAPTION = ('role="heading"', 'role="heading" aria-level="2"')
EMPTY = re.compile(r'<th class="head[^"]*">(?:<p></p>)?</th>')
# The links over the gallery's cards have their text hidden.
CARD = re.compile(r'(<p><a class="reference internal" href="[^"]*")(>\s*<span class="doc">)([^<]*)')


def correct(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    for name in ("furo_navigation_tree", "body"):
        context[name] = context.get(name, "").replace(*CAPTION)
    context["body"] = EMPTY.sub("<td></td>", context["body"])
    if "sphx-glr-thumbcontainer" in context["body"]:
        context["body"] = CARD.sub(r'\1 aria-label="\3"\2\3', context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", correct, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
