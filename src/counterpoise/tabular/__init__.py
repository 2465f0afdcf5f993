"""Tables from files, and their columns as numbers.

Names are imported when they are first used: pyarrow is, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.tabular.arrays import Rows, RowSource, fits_in_memory, read_rows
    from counterpoise.tabular.columns import Columns, Feature
    from counterpoise.tabular.errors import DataError
    from counterpoise.tabular.fit import Fitted, fit_table
    from counterpoise.tabular.learning import Learned, learn_columns
    from counterpoise.tabular.open import open_table
    from counterpoise.tabular.sampling import sample_rows
    from counterpoise.tabular.table import Table, as_table

_MODULES = {
    "Columns": "columns",
    "DataError": "errors",
    "Feature": "columns",
    "Fitted": "fit",
    "Learned": "learning",
    "RowSource": "arrays",
    "Rows": "arrays",
    "Table": "table",
    "as_table": "table",
    "fit_table": "fit",
    "fits_in_memory": "arrays",
    "learn_columns": "learning",
    "open_table": "open",
    "read_rows": "arrays",
    "sample_rows": "sampling",
}

__all__ = [
    "Columns",
    "DataError",
    "Feature",
    "Fitted",
    "Learned",
    "RowSource",
    "Rows",
    "Table",
    "as_table",
    "fit_table",
    "fits_in_memory",
    "learn_columns",
    "open_table",
    "read_rows",
    "sample_rows",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
