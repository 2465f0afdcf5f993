"""What is proved about a fit with a convex loss."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ConvexCertificate:
    """A summary of what is proved about a fit with a convex loss; prints as a paragraph.

    Nothing is assumed about the rows. The paper's theorem does not cover these losses: its neurons
    are unbounded and its error is squared.

    Attributes
    ----------
    risk : float
        The minimised objective at the returned coefficients, including the ridge.
    duality_gap : float
        A proved bound on ``risk - min``, over all coefficients; infinite if nothing could be
        proved.
    rounding : float
        The part of ``duality_gap`` that allows for rounding.
    returned_bound : float
        A proved bound on the distance from the returned coefficients to any minimiser.
    metric : str
        How that distance is measured, in words.
    loss : str
        Name of the loss.
    alpha : float
        Strength of the ridge.
    dropped : int
        Number of directions in which the features hardly vary. The claims cover coefficients
        without a component in these directions.
    """

    risk: float
    duality_gap: float
    rounding: float
    returned_bound: float
    metric: str
    loss: str
    alpha: float
    dropped: int

    @property
    def claims_distance(self) -> bool:
        """Whether a distance to any minimiser is claimed at all."""
        return math.isfinite(self.returned_bound)

    def __str__(self) -> str:
        ridge = f", with the ridge of alpha = {self.alpha:g}" if self.alpha else ""
        out = [f"Risk {self.risk:.6g} ({self.loss} loss{ridge})."]
        if not math.isfinite(self.duality_gap):
            out.append(
                "The problem is convex, but no duality gap could be proved: there are too many "
                "coefficients, or directions in which the losses do not bend."
            )
            return " ".join(out)
        share = ""
        if self.risk and self.duality_gap <= abs(self.risk):
            share = f" ({self.duality_gap / abs(self.risk):.1g} of the risk)"
        kept = ""
        if self.dropped:
            kept = f" without a component in the {self.dropped} direction(s) too flat to judge"
        out.append(
            f"The problem is convex and solved to a duality gap of {self.duality_gap:.2g}{share}: "
            f"no coefficients{kept} have a risk below {self.risk - self.duality_gap:.6g}. This "
            "rests on the rows alone, without assumptions."
        )
        if self.claims_distance:
            # Adding the same to all scores of a row changes no probability.
            several = " whose scores sum to zero over classes" * (self.loss == "multinomial")
            out.append(
                f"The returned coefficients lie within {self.returned_bound:.3g} of any "
                f"minimiser{several}{kept}, {self.metric}."
            )
        return " ".join(out)
