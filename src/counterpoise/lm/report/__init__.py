"""Report pages about language models: one training run, or a comparison of many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoise.common.lazy import lazy_names
from counterpoise.report.writing import write_page

if TYPE_CHECKING:
    from counterpoise.lm.report.comparison import study_page
    from counterpoise.lm.report.run import run_page

__all__ = ["run_page", "study_page", "write_report"]

_MODULES = {"run_page": "run", "study_page": "comparison"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a run or of a comparison and return the file.

    Parameters
    ----------
    folder : path
        A folder that ``counterpoise lm train`` or ``counterpoise lm compare`` wrote.
    out : path, optional
        The file; ``report.html`` in the folder when None.
    """
    place = Path(folder)
    if (place / "evaluations.jsonl").is_file():
        from counterpoise.lm.report.run import run_page

        return write_page(run_page(place), place, out)
    for results in (place, place / "results"):
        if (results / "study.json").is_file():
            from counterpoise.lm.report.comparison import study_page

            return write_page(study_page(results), place, out)
    raise FileNotFoundError(
        f"{str(place)!r} holds neither a training run (evaluations.jsonl) nor a comparison "
        "(study.json); give the folder of one"
    )
