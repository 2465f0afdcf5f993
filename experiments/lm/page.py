"""Tables and figures of the study's page, from the kept results: ``python experiments/lm/page.py``.

A table stands between ``<!-- table STUDY: WHAT -->`` and ``<!-- end -->``; what it shows is
``headline``, ``headline against RUN``, ``ablations``, or a metric and a group, as ``worst excess,
rules``; with ``final`` before it, of a closer look at the finished models. A figure is
``images/study-STUDY-FIGURE.png``.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from counterpoise.lm.study.markdown import markdown_table
from counterpoise.lm.study.report import Study, ablations, draw_study, headline, load_study

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
TABLE = re.compile(r"(<!-- table ([\w-]+): (.+?) -->\n).*?(<!-- end -->)", re.S)
FIGURE = re.compile(r"images/(study-([a-z]+)-([\w-]+)\.png)")


def table(study: Study, what: str) -> str:
    """A table of a study, or of a closer look at its finished models."""
    if what.startswith("final "):
        closer = study.closer
        if closer is None:
            raise ValueError(f"there is no finals.csv to make {what!r} of")
        return table(closer, what.removeprefix("final "))
    if what == "ablations":
        return ablations(study)
    if what.startswith("headline"):
        baseline = what.removeprefix("headline").removeprefix(" against ")
        return headline(study.against(baseline) if baseline else study)
    metric, group = what.split(", ", 1)
    return markdown_table(study.differences(metric, group))


def filled(page: str) -> str:
    """A page with its tables made anew."""

    def anew(match: re.Match[str]) -> str:
        begin, study, what, end = match.groups()
        return begin + table(load_study(HERE / study), what) + end

    return TABLE.sub(anew, page)


def draw(page: str) -> None:
    """The figures that a page shows."""
    wanted = sorted(set(FIGURE.findall(page)))
    for study in sorted({name for _, name, _ in wanted}):
        with tempfile.TemporaryDirectory() as folder:
            command = f"counterpoise lm figures experiments/lm/{study}"
            draw_study(load_study(HERE / study), folder, made_by=command)
            for file, name, figure in wanted:
                if name == study:
                    shutil.copyfile(Path(folder, f"{figure}.png"), DOCS / "images" / file)


if __name__ == "__main__":
    path = DOCS / "study.md"
    text = filled(path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    draw(text)
