"""How a fit ended: whether it converged, and a sentence that says so."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from counterpoise.common.text import count
from counterpoise.solver.left_out import Gain


class Gap(Protocol):
    """A proved duality gap; ``rounding`` is the part of it that allows for rounding."""

    @property
    def value(self) -> float: ...

    @property
    def rounding(self) -> float: ...


class Ending(NamedTuple):
    """Whether a fit converged, and a sentence with a remedy if it did not."""

    converged: bool
    status: str

    def given_gap(self, gap: Gap, allowed: float, height: float, remedy: str) -> Ending:
        """Return the ending in view of a duality gap and what is allowed of it.

        ``height`` is the size of the risk, and ``remedy`` what lowers the allowance for rounding.
        """
        exact = gap.value - gap.rounding
        if not math.isfinite(gap.value):
            return self
        if exact > allowed:
            return Ending(
                False,
                f"Not converged: the duality gap is {exact:.2g}, {exact / height:.1g} of "
                "the risk. Rescale the features, lower tol, or try another precondition.",
            )
        if gap.rounding > allowed:
            return self._replace(status=f"{self.status} Rounding limits what is proved: {remedy}.")
        return self

    def given_separation(self, separated: bool, alpha: float) -> Ending:
        """Return the ending for classes that the score separates without an error, or not."""
        if not separated:
            return self
        limit = f"so only the ridge of alpha = {alpha:g} keeps the coefficients finite."
        if not alpha:
            limit = "and nothing keeps the coefficients finite; use alpha > 0."
        return self._replace(
            status=f"{self.status} The score separates the classes of every group, {limit}"
        )

    def given_left_out(self, gain: Gain | None, dropped: int) -> Ending:
        """Return the ending in view of what directions left out could still contribute."""
        if gain is None:
            return self
        left = f"{count(dropped, 'direction')} in which the features hardly"
        if gain.by_chance:
            return self._replace(
                status=f"{self.status} {left} vary had to be left out; they could lower the risk "
                f"by up to {gain.value:.2g}, no more than chance would."
            )
        return Ending(
            False,
            f"Not converged: {left} vary had to be left out, and could lower the risk by up to "
            f"{gain.value:.2g}. Replace nearly equal columns by their difference, and correct or "
            "remove rows with enormous entries.",
        )
