"""The dual update for models that another optimizer trains: `Reweighter` and its rules.

It needs numpy alone and imports only `dual` and `common`.
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
