"""Activation functions of the neuron, with the constants that the theory needs.

This room imports only `common`.
"""

from counterpoise.activations.base import Activation
from counterpoise.activations.named import (
    NAMED,
    elu,
    from_config,
    get_activation,
    huber_relu,
    identity,
    leaky_relu,
    relu,
    softplus,
)

__all__ = [
    "NAMED",
    "Activation",
    "elu",
    "from_config",
    "get_activation",
    "huber_relu",
    "identity",
    "leaky_relu",
    "relu",
    "softplus",
]
