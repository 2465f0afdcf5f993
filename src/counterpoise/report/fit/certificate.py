"""What is proved about the fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from counterpoise.common.text import figure, percent_at_most, rounded_down
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import curve
from counterpoise.report.fit.view import FitView
from counterpoise.report.words import with_thousands
from counterpoise.solver.proved import gap_share, proved_sentence

if TYPE_CHECKING:
    from counterpoise.solver.certificate import Region, RegionProof

TITLE, WHOLE = "Certificate", "The whole certificate"
# Smaller shares of the risk are not worth a distinction.
LEAST_SHARE = 1e-5


def certificate_section(fit: FitView) -> Block | None:
    """Explain the certificate; None for a method without one."""
    found = getattr(fit.model, "certificate_", None)
    if found is None:
        return None
    proof = _region_proof(fit)
    first = b.text(with_thousands(proved_sentence(found, proof)))
    # Only the theorem on neurons has a slack; another convex loss has the gap alone.
    if not hasattr(found, "running_slack"):
        whole = [b.text(with_thousands(str(found))), b.facts(_of_loss(found))]
        return b.section("certificate", TITLE, first, b.fold(WHOLE, *whole))
    said = str(found if proof is None else replace(found, proof=proof))
    charts = [] if proof is None or len(_finite(proof)) < 2 else [_gaps(proof)]
    whole = [b.text(with_thousands(said)), *charts, b.facts(_of_neuron(found, proof))]
    return b.section("certificate", TITLE, first, b.fold(WHOLE, *whole))


def certified_gain(fit: FitView) -> tuple[str, str]:
    """How much better other coefficients could be, at most, and a remark, for a key figure."""
    found, proof = getattr(fit.model, "certificate_", None), _region_proof(fit)
    assert found is not None
    share = gap_share(found)
    if share is not None:
        return f"≤ {percent_at_most(share)}", "of the fit's objective, by any other coefficients"
    region = None if proof is None else proof.widest()
    if found.duality_gap is None and proof is not None and region is not None:
        reach = "any admissible coefficients" if math.isinf(region.radius) else (
            f"coefficients whose scores change by up to {rounded_down(region.radius, 3)}"
        )  # fmt: skip
        return f"≤ {percent_at_most(proof.share(region))}", f"of the fit's objective, by {reach}"
    return "no bound", "other coefficients may be better: see Certificate"


def _region_proof(fit: FitView) -> RegionProof | None:
    """Return what is proved about coefficients near the fit, by the fit or by its record."""
    found = getattr(getattr(fit.model, "certificate_", None), "proof", None)
    return fit.record.proof if found is None else found


def _finite(proof: RegionProof) -> list[Region]:
    return [region for region in proof.regions if math.isfinite(region.radius)]


def _gaps(proof: RegionProof) -> Block:
    """Draw the gap against the radius, with the labels' spread marked."""
    regions = _finite(proof)
    first = regions[0].radius / 4.0  # what holds in a region holds in every smaller one
    radius = [first, *(region.radius for region in regions)]
    gap = [100.0 * min(max(proof.share(region), LEAST_SHARE), 1.0) for region in regions]
    gap = [gap[0], *gap]
    series = [curve("largest possible gain", radius, gap, colour="ours", shape="vh")]
    if first <= proof.spread <= radius[-1]:
        ends = [min(gap), max(gap)]
        series.append(
            curve("spread of the labels", [proof.spread] * 2, ends, colour="plain", dash="dash")
        )
    return b.chart(
        "regions",
        "curves",
        "How much better other coefficients can be",
        " ".join(proof.sentences()),
        "Coefficients whose scores differ from the fit's by at most the number on the horizontal "
        "axis (root mean square, averaged over groups) cannot lower the risk by more than what "
        f"is on the vertical axis. Values below {percent_at_most(LEAST_SHARE)} are drawn there, "
        "and those above 100 % at 100 %.",
        series=series,
        x="change of scores, in units of the labels",
        y="possible gain, % of the risk",
        logx=True,
        fine=True,
        logy=True,
    )


def _of_neuron(found: Any, proof: RegionProof | None) -> list[tuple[str, str]]:
    items = [("Risk at the returned coefficients", figure(found.risk))]
    if found.duality_gap is not None:
        items.append(("Duality gap", _gap(found)))
    if proof is not None and proof.regions:
        bounds = [
            f"{_where(region)}: {rounded_down(region.lower_bound, 4)}" for region in proof.regions
        ]
        name = "Proved lower bound on the risk, by change of scores"
        items.append((name, "; ".join(bounds)))
    items += [
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


def _where(region: Region) -> str:
    if math.isinf(region.radius):
        return "any change"
    return f"up to {rounded_down(region.radius, 4)}"


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
