"""Report pages: self-contained HTML files, and the page about a fit.

It imports `solver`, `storage`, `rows` and `common`, and takes records from `assessment` without
importing it.
Public names are imported when they are first used; ``__init__.pyi`` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
