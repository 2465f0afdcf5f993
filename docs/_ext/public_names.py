"""References to public names by whatever path a docstring uses.

``counterpoise.rows.sources.Source`` and ``Source`` both lead to ``counterpoise.Source``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sphinx.application import Sphinx

PACKAGES = (
    "counterpoise",
    "counterpoise.baselines",
    "counterpoise.tabular",
    "counterpoise.torch",
    "counterpoise.lm",
)


def public_path(target: str) -> str | None:
    """Where the page of a name is, if one of the packages has it."""
    owner, _, name = target.rpartition(".")
    for package in PACKAGES:
        if name in import_module(package).__all__ and package.startswith(owner.split(".")[0]):
            return f"{package}.{name}"
    return None


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
