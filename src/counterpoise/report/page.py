"""From blocks to one HTML file: a template, styles, scripts, the charting library and the data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

from counterpoise import __version__
from counterpoise.common.jsonable import plain
from counterpoise.report.blocks import Block

# Significant digits that are kept of numbers in pictures and tables.
DIGITS = 5
# Characters that could end a script element or a line of JavaScript.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report.

    Attributes
    ----------
    kind : str, what it is about: "fit", "run" or "study"
    title, lead : str, what and with which outcome
    figures : key figures
    sections : sections
    made : str, when the fit or run was made
    """

    kind: str
    title: str
    lead: Sequence[str]
    figures: Sequence[Block]
    sections: Sequence[Block]
    made: str = ""

    def html(self) -> str:
        """The whole file. No name or text of the user is in it but in one block of JSON."""
        fields = vars(self) | {"version": __version__}
        scripts = {
            "page": _own("page.js"),
            "charts": _own("charts.js"),
            "plotly": plotly_js(),
        }
        return Template(_own("page.html")).substitute(
            scripts,
            css=_own("page.css"),
            data=json_text(fields),
            hashes=" ".join(_hash(script) for script in scripts.values()),
        )


def json_text(value: object) -> str:
    """JSON that may stand in a script element: ASCII, without ``<``, ``>`` and ``&``.

    >>> print(json_text({"a": "</script>"}))
    {"a":"\\u003c/script\\u003e"}
    """
    out = json.dumps(plain(value, DIGITS), allow_nan=False, separators=(",", ":"))
    for character, escaped in UNSAFE.items():
        out = out.replace(character, escaped)
    return out


@cache
def plotly_js() -> str:
    """The charting library, from the package ``plotly``."""
    try:
        found = files("plotly").joinpath("package_data", "plotly.min.js")
        script = found.read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise ImportError(
            "reports need plotly for their charts; install it with "
            "pip install 'counterpoise[report]'"
        ) from error
    if "</script" in script.lower() or "<!--" in script:
        raise ImportError(
            "this plotly cannot be put into a page; install another version of it with "
            "pip install 'counterpoise[report]'"
        )
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _own(name: str) -> str:
    return files("counterpoise.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """How a content security policy names a script that may run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
