"""Counterpoise: learning that holds up on the worst group.

Public names are imported when they are first used; ``__init__.pyi`` lists them.
"""

import lazy_loader

__version__ = "0.2.0.dev0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
