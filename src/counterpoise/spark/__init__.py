"""Group-robust models as stages of a Spark ML pipeline.

Stands on `estimators`, `rows` and `storage`. Needs the package pyspark, which ``import
counterpoise`` does not import. Estimators take Spark data frames without this room, too.

Public names are imported when they are first used; ``__init__.pyi`` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
