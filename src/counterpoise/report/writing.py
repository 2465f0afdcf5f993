"""A folder in, a report beside what is in it."""

from __future__ import annotations

import os
from pathlib import Path

from counterpoise.disk import write_text

REPORT = "report.html"


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of whatever a folder holds; returns the file, which is whole or not there.

    Parameters
    ----------
    folder : path
        Of a fit (``counterpoise fit --out``), of a training run (``counterpoise lm train``) or of
        a comparison's results (``counterpoise lm compare``).
    out : path, optional
        The file; ``report.html`` in the folder when None.
    """
    place = Path(folder)
    html = _page(place)
    file = place / REPORT if out is None else Path(out)
    if file.is_dir():
        file = file / REPORT
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, html)
    return file


def _page(place: Path) -> str:
    if not place.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(place)!r}; give one that counterpoise fit --out, lm train or "
            "lm compare has written"
        )
    if (place / "model.json").is_file():
        from counterpoise.report.fit import fit_page
        from counterpoise.saving import load_fit

        return fit_page(*load_fit(place))
    if (place / "evaluations.jsonl").is_file():
        from counterpoise.report.run import run_page

        return run_page(place)
    for results in (place, place / "results"):
        if (results / "study.json").is_file():
            from counterpoise.report.study import study_page

            return study_page(results)
    raise FileNotFoundError(
        f"{str(place)!r} holds neither a fit (model.json), nor a training run "
        "(evaluations.jsonl), nor a comparison (study.json); give the folder of one"
    )
