"""Write the report of a training run or of a comparison next to it."""

from __future__ import annotations

import os
from pathlib import Path

from counterpoise.report import write_page


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a training run or of a comparison.

    Parameters
    ----------
    folder : path
        A folder that ``counterpoise lm train`` or ``counterpoise lm compare`` wrote.
    out : path, optional
        The file to write; None writes ``report.html`` in the folder.

    Returns
    -------
    Path
        The file that was written.
    """
    subject = Path(folder)
    if (subject / "evaluations.jsonl").is_file():
        from counterpoise.lm.report.run import run_page

        return write_page(run_page(subject), subject, out)
    for results in (subject, subject / "results"):
        if (results / "study.json").is_file():
            from counterpoise.lm.report.comparison import study_page

            return write_page(study_page(results), subject, out)
    raise FileNotFoundError(
        f"{str(subject)!r} holds neither a training run (evaluations.jsonl) nor a comparison "
        "(study.json); pass the folder of either"
    )
