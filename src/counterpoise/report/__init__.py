"""Reports: a fit, a training run or a comparison as one HTML file that needs nothing else.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.report.fit import fit_page
    from counterpoise.report.run import run_page
    from counterpoise.report.study import study_page
    from counterpoise.report.writing import write_report

__all__ = ["fit_page", "run_page", "study_page", "write_report"]

_MODULES = {
    "fit_page": "fit",
    "run_page": "run",
    "study_page": "study",
    "write_report": "writing",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
