"""Models stored by earlier versions, brought to the current format.

Each step takes the JSON content of one format version to the next. Nothing is made from the
content here, so a step needs no class of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterpoise.storage.packing import MARK

# Types of version 1 and their names since.
RENAMED = {"Columns": "TableLayout", "Judged": "RiskComparison"}


def migrate(content: Any, version: int, target: int) -> Any:
    """The content of a model stored in format ``version``, in format ``target``."""
    for step in range(version, target):
        content = STEPS[step](content)
    return content


def from_version_1(content: Any) -> Any:
    """A neuron fitted to a table held the layout of the table; now it is a step of a pipeline."""
    content = _renamed(content)
    model = content["model"]
    layout = _without_layout(model)
    if layout is not None:
        steps = [["table", _encoder(layout)], ["neuron", model]]
        content = {**content, "model": {MARK: "pipeline", "steps": steps}}
    return content


def _renamed(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_renamed(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    out = {key: _renamed(item) for key, item in tree.items()}
    kind = out.get(MARK)
    if isinstance(kind, str):
        out[MARK] = RENAMED.get(kind, kind)
    if kind in ("Activation", "Divergence"):  # settings that did not apply were null
        out = {key: item for key, item in out.items() if item is not None}
    if kind == "FitRecord":
        out["fields"]["comparison"] = out["fields"].pop("judged")
    return out


def _without_layout(model: Any) -> Any:
    """Take the layout out of a stored neuron, and of the estimator that it chose."""
    fitted = model.get("fitted") if isinstance(model, dict) else None
    if not isinstance(fitted, dict) or "columns_" not in fitted:
        return None
    layout = fitted.pop("columns_")
    fitted.pop("feature_names_in_", None)  # the encoder knows them
    _without_layout(fitted.get("best_estimator_"))
    return layout


def _encoder(layout: Any) -> Any:
    fields = layout["fields"]
    names = [feature["fields"]["name"] for feature in fields["features"]["items"]]
    return {
        MARK: "estimator",
        "class": "TableEncoder",
        "parameters": {"features": names, "missing": fields["missing"]},
        "fitted": {
            "layout_": layout,
            "n_features_in_": len(names),
            "feature_names_in_": {MARK: "objects", "items": names},
        },
    }


def from_version_2(content: Any) -> Any:
    """Arrays were compressed, and labels were plain; the content is the same."""
    return content


def from_version_3(content: Any) -> Any:
    """There were no classes; layouts and records without them are of models of numbers."""
    return content


STEPS: dict[int, Callable[[Any], Any]] = {
    1: from_version_1,
    2: from_version_2,
    3: from_version_3,
}
