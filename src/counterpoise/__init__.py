"""Counterpoise: learning that holds up on the worst group.

Public names are imported when they are first used; ``__init__.pyi`` lists them.
"""

import lazy_loader

__version__ = "0.2.0.dev0"

# Rooms that are found as attributes, too, but that `import *` leaves out.
_ROOMS = ("baselines", "dual", "lm", "report", "reweight", "tabular", "torch")

__getattr__, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted(set(_names) - set(_ROOMS))


def __dir__() -> list[str]:
    return [*globals(), *__all__]
