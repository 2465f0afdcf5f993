"""The dual update for models trained by another optimizer: `Reweighter` and its rules.

This room needs only numpy and imports only `dual` and `common`.
"""

from counterpoise.reweight.certificate import WeightCertificate
from counterpoise.reweight.reweighter import Reweighter, ReweightWarning, Update
from counterpoise.reweight.rules import Adaptive, OnlineDataMixing, Rule, Temperature
from counterpoise.reweight.sampling import ByVariance, ByWeights, Fixed, Sampling
from counterpoise.reweight.tags import Tags

__all__ = [
    "Adaptive",
    "ByVariance",
    "ByWeights",
    "Fixed",
    "OnlineDataMixing",
    "ReweightWarning",
    "Reweighter",
    "Rule",
    "Sampling",
    "Tags",
    "Temperature",
    "Update",
    "WeightCertificate",
]
