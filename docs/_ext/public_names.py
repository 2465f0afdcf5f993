"""Resolve references to public names by any path.

``counterpoise.rows.sources.Source`` and ``Source`` both lead to ``counterpoise.Source``, where the
API reference lists it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

API = Path(__file__).parents[1] / "api.rst"
# Packages of which the API reference lists every name.
PACKAGES = (
    "counterpoise",
    "counterpoise.baselines",
    "counterpoise.spark",
    "counterpoise.tabular",
    "counterpoise.torch",
    "counterpoise.lm",
)


@cache
def listed() -> dict[str, str]:
    """Map the names in the API reference to their full paths."""
    found: dict[str, str] = {}
    module = ""
    for line in API.read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   [\w.]+", line):
            found.setdefault(line.rpartition(".")[2].strip(), f"{module}.{line.strip()}")
    return found


def public_path(target: str) -> str | None:
    """The path of a name in the API reference, or None."""
    owner, _, name = target.rpartition(".")
    path = listed().get(name)
    return path if path is not None and path.startswith(owner.split(".")[0]) else None


def resolve(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    if node.get("refdomain") != "py":
        return None
    path = public_path(node["reftarget"])
    if path is None or path == node["reftarget"]:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], path, node, contnode
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
