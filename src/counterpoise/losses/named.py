"""Losses by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from counterpoise.activations import from_config as activation_from_config
from counterpoise.common.arguments import chosen
from counterpoise.losses.base import Loss
from counterpoise.losses.classes import LogLoss, Multinomial, SquaredHinge
from counterpoise.losses.neuron import NeuronLoss
from counterpoise.losses.numbers import Huber, Poisson

NAMED: dict[str, Callable[[], Loss]] = {
    "log": LogLoss,
    "squared_hinge": SquaredHinge,
    "squared": NeuronLoss,
    "huber": Huber,
    "poisson": Poisson,
}


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with this name, or the object itself after checking it."""
    found: Loss = chosen("loss", loss, Loss, NAMED, " or a Loss object")
    if found.config() is None and found.n_scores == 1 and found.is_convex:
        found.check()
    return found


def from_config(config: Mapping[str, Any]) -> Loss:
    """Return the loss that :meth:`Loss.config` describes."""
    name = str(config["name"])
    if name == "multinomial":
        return Multinomial(int(config["n_classes"]))
    if name == "huber":
        return Huber(float(config["delta"]))
    if "activation" in config:
        return NeuronLoss(activation_from_config(config["activation"]))
    return NAMED[name]()
