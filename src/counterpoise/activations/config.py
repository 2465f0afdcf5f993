"""Activations as plain settings, for stored models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoise.activations.activation import CUSTOM, NAMED, PIECEWISE, Activation, _piecewise


def to_config(activation: object) -> dict[str, Any] | None:
    """The settings from which `from_config` makes the activation again; None for other objects.

    >>> from counterpoise import leaky_relu
    >>> to_config(leaky_relu(0.25))
    {'name': 'leaky_relu', 'piecewise': ['leaky_relu', 0.25, 0.0, 0.0, 1.0]}
    """
    if not isinstance(activation, Activation):
        return None
    if activation.code == CUSTOM:
        raise TypeError(
            f"an activation of your own ({activation.name!r}) exists only as Python code; use a "
            "named one to store the model, or keep coef_ and intercept_"
        )
    made = None
    if activation.code == PIECEWISE:
        made = [activation.name, *activation.parameters, activation.alpha]
    return {"name": activation.name, "piecewise": made}


def from_config(config: Mapping[str, Any]) -> Activation:
    """The activation that `to_config` described."""
    return _piecewise(*config["piecewise"]) if config["piecewise"] else NAMED[config["name"]]()
