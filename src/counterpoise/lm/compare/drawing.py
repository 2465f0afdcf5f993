"""All figures of a comparison."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from counterpoise.lm.compare import figures
from counterpoise.lm.compare.scores import TASK_AVERAGE
from counterpoise.lm.compare.study import Study

logger = logging.getLogger("counterpoise")


def draw_study(study: Study, folder: str | os.PathLike[str], made_by: str = "") -> list[Path]:
    """Draw all figures and return their files."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    results, baseline = study.results, study.baseline
    main = next(iter(study.groups))
    runs = study.shown
    others = [run for run in runs if run != baseline]
    drawn: list[Path] = []

    def file(name: str) -> Path:
        drawn.append(path / f"{name}.png")
        return drawn[-1]

    common: dict[str, Any] = {"made_by": made_by}
    against = baseline if baseline in runs else None
    for metric in study.metrics:
        name = metric.replace(" ", "-")
        known = common | {"reference": study.references}
        if runs:
            path_of = file(f"curves-{name}")
            figures.draw_curves(results, metric, path_of, against, runs=runs, **known)
        if baseline in runs and others:
            figures.draw_differences(
                results, baseline, metric, file(f"differences-{name}"), runs=others, start=0.3,
                **known,
            )  # fmt: skip
        forest = {g: d for g in study.groups if g != main and (d := study.differences(metric, g))}
        if forest:
            label = f"{metric}: final loss minus that of the run in bold"
            figures.draw_forest(forest, file(f"ablations-{name}"), label=label, **common)
    scored = [run for run in runs if results.tasks.seeds(run)]
    if scored:
        path_of = file("curves-task-average")
        known = common | {"baseline": baseline if baseline in scored else None}
        figures.draw_curves(results, TASK_AVERAGE, path_of, runs=scored, **known)
    figures.draw_weights(results, runs or None, file("weights"), **common)
    if baseline in runs and others:
        figures.draw_domains(results, baseline, file("domains"), runs=others, **common)
    logger.info("%d figures in %s", len(drawn), path)
    return drawn
