"""Tables: read from files, encoded as numbers, fitted and predicted.

It may import any room of the library except the other applications. Names are imported when they
are first used, and pyarrow with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.tabular.encoded_rows import (
        EncodedRows,
        TableSource,
        fits_in_memory,
        read_rows,
    )
    from counterpoise.tabular.encoder import TableEncoder
    from counterpoise.tabular.errors import DataError
    from counterpoise.tabular.fit import fit_table
    from counterpoise.tabular.formats import open_table
    from counterpoise.tabular.layout import Feature, TableLayout
    from counterpoise.tabular.learning import LearnedLayout, learn_layout
    from counterpoise.tabular.sampling import sample_rows
    from counterpoise.tabular.table import Table, as_table

_MODULES = {
    "DataError": "errors",
    "EncodedRows": "encoded_rows",
    "Feature": "layout",
    "LearnedLayout": "learning",
    "Table": "table",
    "TableEncoder": "encoder",
    "TableLayout": "layout",
    "TableSource": "encoded_rows",
    "as_table": "table",
    "fit_table": "fit",
    "fits_in_memory": "encoded_rows",
    "learn_layout": "learning",
    "open_table": "formats",
    "read_rows": "encoded_rows",
    "sample_rows": "sampling",
}

__all__ = [
    "DataError",
    "EncodedRows",
    "Feature",
    "LearnedLayout",
    "Table",
    "TableEncoder",
    "TableLayout",
    "TableSource",
    "as_table",
    "fit_table",
    "fits_in_memory",
    "learn_layout",
    "open_table",
    "read_rows",
    "sample_rows",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
