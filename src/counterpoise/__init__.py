"""Counterpoise: learning that holds up on the worst group.

Public names are imported when they are first used; ``__init__.pyi`` lists them.
"""

import lazy_loader

__version__ = "0.2.0.dev0"

# Rooms that are found as attributes, too, but that `import *` leaves out.
_ROOMS = ("baselines", "dual", "lm", "losses", "report", "reweight", "spark", "tabular", "torch")

# Names of version 0.1 that live in a room now.
_MOVED = {
    "DualState": "dual",
    "Interval": "assessment.intervals",
    "OnlineDataMixing": "reweight",
    "Progress": "solver.algorithm",
    "Rule": "reweight",
    "Start": "solver.solution",
    "Temperature": "reweight",
    "dual_step": "dual",
    "extrapolate": "dual",
}

_find, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted(set(_names) - set(_ROOMS))


def __getattr__(name: str) -> object:
    if name in _MOVED:
        place = f"counterpoise.{_MOVED[name]}"
        raise AttributeError(f"counterpoise.{name} is {place}.{name} since version 0.2")
    if name not in _names:
        raise AttributeError(f"module 'counterpoise' has no attribute {name!r}")
    found: object = _find(name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
