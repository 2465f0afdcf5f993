"""What is proved about the fit."""

from __future__ import annotations

import math
from typing import Any

from counterpoise.common.text import figure
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView


def certificate_section(fit: FitView) -> Block | None:
    """Explain the certificate; None for a method without one."""
    found = getattr(fit.model, "certificate_", None)
    if found is None:
        return None
    # Only the theorem on neurons has a slack; another convex loss has the gap alone.
    items = _of_neuron(found) if hasattr(found, "running_slack") else _of_loss(found)
    return b.section("certificate", "Certificate", b.text(str(found)), b.facts(items))


def _of_neuron(found: Any) -> list[tuple[str, str]]:
    items = [
        ("Risk at the returned coefficients", figure(found.risk)),
        ("Duality gap", _gap(found)),
        ("Running slack", _slack(found)),
        ("Sharpness c1", _sharpness(found)),
    ]
    if found.claims_distance:
        items += [
            ("Distance to a minimiser, returned coefficients", _bound(found.returned_bound)),
            ("Distance to a minimiser, last iterate of Algorithm 1", _bound(found.theorem_bound)),
            (
                "Standard deviation of the labels, for comparison",
                f"{figure(math.sqrt(found.label_scale))}; distances are measured {found.metric}.",
            ),
        ]
    return items


def _of_loss(found: Any) -> list[tuple[str, str]]:
    name = found.loss.replace("_", " ")
    items = [
        ("Risk at the returned coefficients", f"{figure(found.risk)}, with the ridge"),
        ("Duality gap", _gap(found)),
        ("Loss", f"{name}; the paper's theorem is on neurons with squared errors, not on this."),
        ("Ridge", f"alpha = {figure(found.alpha)}, part of the risk that is minimised"),
    ]
    if found.claims_distance:
        distance = f"{_bound(found.returned_bound)}, {found.metric}"
        items.append(("Distance to a minimiser, returned coefficients", distance))
    return items


def _gap(found: Any) -> str:
    if found.duality_gap is not None and not math.isfinite(found.duality_gap):
        return "none could be proved for this fit."
    if found.duality_gap is None:
        return (
            "none. With this activation the problem is not convex, so no bound on the distance to "
            "the least risk can be computed."
        )
    return (
        f"{figure(found.duality_gap)}. No coefficients can have a risk lower by more than this; "
        "this is proved, whatever the data."
    )


def _sharpness(found: Any) -> str:
    what = (
        f"{figure(found.c1)} ({found.c1_source}): how much the outputs change when the "
        "coefficients do."
    )
    if found.claims_distance:
        return f"{what} The bounds below hold for this value."
    return f"{what} It does not cover other directions, so no distance is claimed."


def _slack(found: Any) -> str:
    what = (
        f"{figure(found.running_slack)}: by how much the errors of Algorithm 1's steps exceed, in "
        "total, what the theorem allows."
    )
    if found.running_slack > 0:
        return f"{what} It is above 0, so the theorem's bounds include the excess."
    return (
        f"{what} It is not above 0, so the theorem's inequality holds if the sharpness is at least "
        f"{figure(found.c1_assumed)}."
    )


def _bound(value: float) -> str:
    return f"at most {figure(value)}" if math.isfinite(value) else "no bound"
