"""One HTML file from a page: template, styles, scripts, charting library and data.

Jinja2 renders the skeleton with autoescape on: title, lead, key figures, contents and headings, so
that a browser without JavaScript still shows the answer. Blocks inside sections travel as one
escaped JSON element, and ``page.js`` builds them: tables sort, charts react to boxes, and names
only ever become text nodes. A content security policy allows these scripts by hash and no others.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from counterpoise import __version__
from counterpoise.common.jsonable import plain
from counterpoise.common.packages import not_installed
from counterpoise.report.blocks import Block

if TYPE_CHECKING:
    import jinja2

# Significant digits of numbers in charts and tables.
DIGITS = 5
# Characters that could end a script element or a line of JavaScript.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report.

    Attributes
    ----------
    kind : str
        What it is about: "fit", "run" or "comparison".
    title : str
        The answer.
    subject : str
        What was fitted or trained, in a line above the title.
    lead : list of str
        Paragraphs below the title, the answer first.
    figures : list of key figures
    sections : list of sections
    made : str
        When the fit or run was made.
    """

    kind: str
    title: str
    subject: str
    lead: Sequence[str]
    figures: Sequence[Block]
    sections: Sequence[Block]
    made: str = ""

    def html(self) -> str:
        """Render the whole file."""
        scripts = {"page": _own("page.js"), "charts": _own("charts.js"), "plotly": plotly_js()}
        out = _template().render(
            vars(self),
            version=__version__,
            css=_own("page.css"),
            scripts=scripts,
            hashes=" ".join(map(_hash, scripts.values())),
            data=json_text({"kind": self.kind, "sections": self.sections}),
        )
        # Paths may hold bytes that are no text, which UTF-8 cannot write.
        return out.encode("utf-8", "backslashreplace").decode("utf-8")


def json_text(value: object) -> str:
    """Encode JSON for a script element: ASCII, without ``<``, ``>`` and ``&``.

    >>> print(json_text({"a": "</script>"}))
    {"a":"\\u003c/script\\u003e"}
    """
    out = json.dumps(plain(value, DIGITS), allow_nan=False, separators=(",", ":"))
    for character, escaped in UNSAFE.items():
        out = out.replace(character, escaped)
    return out


@cache
def _template() -> jinja2.Template:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise not_installed("reports need", "jinja2") from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_own("page.html"))


@cache
def plotly_js() -> str:
    """Read the charting library from the package ``plotly``."""
    try:
        found = files("plotly").joinpath("package_data", "plotly.min.js")
        script = found.read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise not_installed("reports need", "plotly") from error
    if "</script" in script.lower() or "<!--" in script:
        raise ImportError(
            "the installed plotly cannot be embedded in a page; install another version with "
            "pip install -U plotly"
        )
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _own(name: str) -> str:
    return files("counterpoise.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """A script's name in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
