"""Language models whose mixture of training domains follows the group weights.

Corpora, mixtures, steering, adapters for other trainers, weights published for other loaders and
their readers, a trainer of its own and comparisons live here. It may import `reweight`, `torch`
(the loss), `report`, `storage`, `rows` (for Parquet) and `common`.

Public names are imported when they are first used; ``__init__.pyi`` lists them. Preparing a corpus
therefore needs no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
