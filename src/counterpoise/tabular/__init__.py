"""Tables: read from files, encoded as numbers, fitted and predicted.

It may import any room except the other applications. Public names are imported when they are first
used, and pyarrow with them; ``__init__.pyi`` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
