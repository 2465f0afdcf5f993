"""What is proved about a fit, in one sentence."""

from __future__ import annotations

import math
from typing import Any

from counterpoise.common.text import percent_at_most
from counterpoise.solver.certificate import RegionProof, without


def gap_share(found: Any) -> float | None:
    """The duality gap as a share of the risk; None if there is none, or it says nothing."""
    gap = found.duality_gap
    if gap is None or not math.isfinite(gap):
        return None
    share = gap / abs(found.risk) if found.risk else 0.0
    return share if share <= 1.0 else None


def proved_sentence(found: Any, proof: RegionProof | None = None) -> str:
    """The certificate in a sentence; ``proof`` is about regions, if it has none itself."""
    share = gap_share(found)
    if share is not None:
        kept = without(found.dropped) if found.dropped else ""
        return (
            f"Proved: no other coefficients{kept} lower the objective of this fit by more than "
            f"{percent_at_most(share)}."
        )
    if found.duality_gap is not None:
        return "The problem is convex, but how much is left to gain could not be bounded usefully."
    proof = getattr(found, "proof", None) if proof is None else proof
    if proof is not None:
        return str(proof)
    return "Not proved: the activation makes the problem nonconvex, so better fits may exist."
