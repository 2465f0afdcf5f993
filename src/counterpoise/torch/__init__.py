"""Group-robust PyTorch models: a loss that carries the dual, sums over ranks, and last layers.

The loss stands on `reweight`, and `heads` on `estimators` and `rows`. Needs the package torch,
which ``import counterpoise`` does not import.

Public names are imported when they are first used; ``__init__.pyi`` lists them. A training loop
therefore needs no estimators.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
