"""Report pages: self-contained HTML files, and the page about a fit.

It imports `storage`, `rows` and `common`, and takes records from `assessment` without importing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.report.fit.page import fit_page
    from counterpoise.report.writing import write_page, write_report

__all__ = ["fit_page", "write_page", "write_report"]

_MODULES = {"fit_page": "fit.page", "write_page": "writing", "write_report": "writing"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
