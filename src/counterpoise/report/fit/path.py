"""Weights and risks along the iterations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from counterpoise.common.text import figure, listed
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import CURVES, SHOWN, curve, foremost, thinned, wide
from counterpoise.report.fit.view import FittedModel, FitView

Array = np.ndarray

TITLE = "Convergence"
END = "The last point is the returned fit."
# Charts of fewer points show nothing.
LEAST = 8


def path_section(fit: FitView) -> Block | None:
    """Say how the fit ended, with charts folded away; None for a model without a history."""
    path = _Path.of(fit.model)
    if not len(path.risk) > 1:
        return None
    said = b.text(fit.model.status_)
    if len(path.risk) < LEAST:
        return b.section("path", TITLE, said)
    common: dict[str, Any] = {"x": "iteration", "whole": True, "logx": len(path.x) > 100}
    charts = [_progress(fit, path, common)]
    if path.weights is not None or path.risks is not None:
        charts += _by_group(fit, path, common)
    return b.section("path", TITLE, said, b.fold("How the fit converged", *charts))


class _Path(NamedTuple):
    """The iterations, and the returned fit as one more; None for what was not kept."""

    x: Array
    risk: Array
    worst: Array | None
    weights: Array | None
    risks: Array | None

    @classmethod
    def of(cls, model: FittedModel) -> _Path:
        history = model.history_

        def whole(key: str, last: Any) -> Array | None:
            if key not in history or not len(history[key]):
                return None
            return np.concatenate([history[key], np.asarray(last, dtype=float)[None]])

        risk = whole("risk", model.risk_)
        risk = np.empty(0) if risk is None else risk
        return cls(
            x=np.arange(1, len(risk) + 1),
            risk=risk,
            worst=whole("worst", np.max(model.group_risks_)),
            weights=whole("weights", model.group_weights_),
            risks=whole("group_risks", model.group_risks_),
        )


def _progress(fit: FitView, path: _Path, common: dict[str, Any]) -> Block:
    series = [curve("objective", path.x, path.risk, colour="ours")]
    what, values = "The objective that is minimised", path.risk
    if path.worst is not None:
        series.append(curve("worst group", path.x, path.worst, colour="plain", dash="dash"))
        what, values = f"{what}, and the largest loss of any group", np.append(values, path.worst)
    return b.chart(
        "progress",
        "curves",
        "Objective and worst group, by iteration",
        f"From {figure(float(path.risk[0]))} to {figure(float(path.risk[-1]))}.",
        f"{what}, on the training rows. {END}{thinned(len(path.x))}",
        y=fit.words.loss,
        series=series,
        logy=wide(values),
        **common,
    )


def _by_group(fit: FitView, path: _Path, common: dict[str, Any]) -> list[Block]:
    weights = np.asarray(fit.model.group_weights_, dtype=float)
    at = foremost(weights, fit.model.group_risks_, most=CURVES)
    picked = np.argsort(-weights[at], kind="stable")[:SHOWN].tolist()
    names = [fit.names[i] for i in at]
    few = ""
    if len(at) < len(weights):
        few = f" {len(at)} of {len(weights):,} groups: those with the largest weights or losses."
    caption = f"{END}{few}{thinned(len(path.x))}"
    out = [b.choice("groups", "group", names, picked)]
    if path.weights is not None:
        out.append(
            b.chart(
                "weights",
                "curves",
                "Group weights",
                f"At the end, {listed([names[i] for i in picked], most=3)} have the most weight.",
                f"The mixture of groups that the fit is trained for. {caption}",
                y="weight",
                percent=True,
                choice="groups",
                series=_curves(names, path.x, path.weights[:, at]),
                **common,
            )
        )
    if path.risks is not None:
        out.append(
            b.chart(
                "group-risks",
                "curves",
                "Losses of the groups",
                f"The largest at the end is {figure(float(path.risks[-1].max()))}.",
                f"{fit.words.title} on the training rows. {caption}",
                y=fit.words.loss,
                choice="groups",
                logy=wide(path.risks[:, at]),
                series=_curves(names, path.x, path.risks[:, at]),
                **common,
            )
        )
    return out


def _curves(names: list[str], x: Array, values: Array) -> list[dict[str, Any]]:
    return [curve(name, x, values[:, k], pick=k) for k, name in enumerate(names)]
