"""Formulas as MathML, which browsers draw themselves: no script, no connection."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def formula(node: nodes.Element, block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def visit_math(self: Any, node: nodes.Element) -> None:
    self.body.append(formula(node, block=False))
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.Element) -> None:
    names = "".join(f' id="{name}"' for name in node.get("ids", [])[:1])
    self.body.append(f'<div class="formula"{names}>{formula(node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
