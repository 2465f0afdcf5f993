"""Divergences as plain settings, for stored models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoise.dual.divergences import KL, ChiSquare, CVaR, Divergence

STORED: dict[str, type[Divergence]] = {"kl": KL, "chi2": ChiSquare, "cvar": CVaR}


def to_config(divergence: object) -> dict[str, Any] | None:
    """The settings from which `from_config` makes the divergence again; None for other objects.

    >>> to_config(CVaR(0.5))
    {'name': 'cvar', 'alpha': 0.5}
    """
    name = getattr(divergence, "name", None)
    if not isinstance(name, str) or STORED.get(name) is not type(divergence):
        return None
    return {"name": name, "alpha": getattr(divergence, "alpha", None)}


def from_config(config: Mapping[str, Any]) -> Divergence:
    """The divergence that `to_config` described."""
    made: Any = STORED[config["name"]]
    return made() if config["alpha"] is None else made(config["alpha"])
