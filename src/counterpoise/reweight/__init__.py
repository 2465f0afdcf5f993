"""The dual update for models trained by another optimizer: `Reweighter` and its rules.

This room needs only numpy and imports only `dual` and `common`.
"""

from counterpoise.reweight.reweighter import Reweighter, ReweightWarning, Update
from counterpoise.reweight.rules import OnlineDataMixing, Rule, Temperature

__all__ = [
    "OnlineDataMixing",
    "ReweightWarning",
    "Reweighter",
    "Rule",
    "Temperature",
    "Update",
]
