"""Losses of rows: functions of a linear score and a label.

This room imports only `activations` and `common`.
"""

from counterpoise.losses.base import Loss
from counterpoise.losses.classes import LogLoss, Multinomial, SquaredHinge
from counterpoise.losses.named import NAMED, from_config, get_loss
from counterpoise.losses.neuron import NeuronLoss, as_loss
from counterpoise.losses.numbers import Huber, Poisson

__all__ = [
    "NAMED",
    "Huber",
    "LogLoss",
    "Loss",
    "Multinomial",
    "NeuronLoss",
    "Poisson",
    "SquaredHinge",
    "as_loss",
    "from_config",
    "get_loss",
]
