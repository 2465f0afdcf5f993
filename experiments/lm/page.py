"""Make the tables and figures of the study's page from stored results.

Run ``python experiments/lm/page.py``. A table is between ``<!-- table STUDY: WHAT -->`` and
``<!-- end -->``. WHAT is ``headline``, ``headline against RUN``, ``ablations``, or a metric and a
group such as ``worst excess, rules`` or ``tokens average, rules``, optionally followed by ``against
RUN``. A leading ``final`` shows the finished models, measured on more sequences. A figure is
``images/study-STUDY-FIGURE.png``.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

from counterpoise.lm.compare.drawing import draw_study
from counterpoise.lm.compare.markdown import aligned, markdown_table
from counterpoise.lm.compare.study import Study, load_study
from counterpoise.lm.compare.tables import ablations, headline

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
TABLE = re.compile(r"(<!-- table ([\w-]+): (.+?) -->\n).*?(<!-- end -->)", re.S)
FIGURE = re.compile(r"images/(study-([a-z]+)-([\w-]+)\.png)")


def table(study: Study, what: str) -> str:
    """Make a table of a study, or of its finished models."""
    if what.startswith("final "):
        closer = study.closer
        if closer is None:
            raise ValueError(f"{what!r} needs finals.csv, which is missing")
        return table(closer, what.removeprefix("final "))
    if what == "ablations":
        return ablations(study)
    if what.startswith("headline"):
        baseline = what.removeprefix("headline").removeprefix(" against ")
        return headline(study.against(baseline) if baseline else study)
    what, _, baseline = what.partition(" against ")
    metric, group = what.split(", ", 1)
    study = study.against(baseline, group) if baseline else study
    if metric.startswith("tokens "):
        return markdown_table(study.speedups(metric.removeprefix("tokens "), group))
    return markdown_table(study.differences(metric, group))


def before_and_after(folder: Path) -> str:
    """Tabulate losses and scores of one model before and after further training."""
    before, after = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("before", "after")
    )
    rows = [
        [f"loss on {name}", f"{loss:.3f}", f"{after['losses'][name]:.3f}"]
        for name, loss in before["losses"].items()
    ]
    for old, new in zip(before["tasks"], after["tasks"], strict=True):
        told = f"{old['task']}, {old['metric']}, {old['n']} documents"
        rows.append([told, *(f"{s['value']:.2f} ± {s['stderr']:.2f}" for s in (old, new))])
    return aligned(["", "before", "after"], rows)


def filled(page: str) -> str:
    """Return a page with its tables remade."""

    def anew(match: re.Match[str]) -> str:
        begin, study, what, end = match.groups()
        if what == "before and after":
            return begin + before_and_after(HERE / study) + end
        return begin + table(load_study(HERE / study), what) + end

    return TABLE.sub(anew, page)


def draw(page: str) -> None:
    """Draw the figures that a page shows."""
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
