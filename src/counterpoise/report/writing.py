"""Write a report next to its subject."""

from __future__ import annotations

import os
from pathlib import Path

from counterpoise.storage.files import write_text

REPORT = "report.html"


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a stored fit.

    Parameters
    ----------
    folder : path
        A folder that ``record.save(folder)`` or ``counterpoise fit --out`` wrote.
    out : path, optional
        The file to write; None writes ``report.html`` in the folder.

    Returns
    -------
    Path
        The file that was written, atomically.
    """
    from counterpoise.report.fit.page import fit_page
    from counterpoise.storage.models import load_fit

    return write_page(fit_page(*load_fit(folder)), Path(folder), out)


def write_page(html: str, folder: Path, out: str | os.PathLike[str] | None = None) -> Path:
    """Write a finished page to ``out``, or to ``report.html`` in a folder."""
    file = folder / REPORT if out is None else Path(out)
    if file.is_dir():
        file = file / REPORT
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, html)
    return file
