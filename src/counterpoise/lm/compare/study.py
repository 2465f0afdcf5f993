"""Results of a comparison: small files to keep, and tables and figures made from them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterpoise.lm.compare.plan import plan
from counterpoise.lm.compare.results import Results, read_results, write_results
from counterpoise.lm.compare.summary import (
    Difference,
    Speedup,
    paired_differences,
    tokens_to_target,
)
from counterpoise.lm.training.inputs import reported_references
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import read_json, write_json

STUDY, FORMAT, VERSION = "study.json", "counterpoise study", 1
# The average excess differs from the average by a number that is the same for all runs.
METRICS = ("average", "worst", "worst excess")


@dataclass(frozen=True)
class Study:
    """Results of a comparison, and which runs are compared with which.

    Attributes
    ----------
    results : Results
    baseline : str
    references : dict or None
        Reference losses by domain on the reported split; a loss above them is an excess.
    groups : dict
        Groups of runs by name: the runs, and the run they are compared with.
    about : dict
        Command and settings.
    final_references : dict or None
        Reference losses for the final measurement of finished models.
    """

    results: Results
    baseline: str
    references: dict[str, float] | None
    groups: dict[str, dict[str, Any]]
    about: dict[str, Any]
    final_references: dict[str, float] | None = None

    @property
    def metrics(self) -> list[str]:
        return [m for m in METRICS if self.references is not None or "excess" not in m]

    @property
    def closer(self) -> Study | None:
        """The same study of the finished models, measured on more sequences."""
        finals = self.results.finals
        if finals is None:
            return None
        return replace(self, results=finals, references=self.final_references)

    @property
    def has_curves(self) -> bool:
        """Whether there are values besides the end of every run."""
        results = self.results
        return any(len(results.matrix(r, results.seeds(r)[0])[0]) > 1 for r in results.runs)

    @property
    def shown(self) -> list[str]:
        """Finished runs of the first group, after the baseline if that is of another group."""
        runs = next(iter(self.groups.values()))["runs"]
        named = runs if self.baseline in runs else [self.baseline, *runs]
        return [run for run in named if run in self.results.runs]

    def against(self, baseline: str, group: str | None = None) -> Study:
        """Compare a group, by default the first, with another run."""
        known = self.results.runs
        if baseline not in known:
            raise ValueError(
                f"baseline {baseline!r} is not a finished run; choose one of {known!r}"
            )
        first = next(iter(self.groups))
        turned = first if group is None else group
        groups = self.groups | {turned: self.groups[turned] | {"against": baseline}}
        overall = baseline if turned == first else self.baseline
        return replace(self, baseline=overall, groups=groups)

    def differences(self, metric: str, group: str) -> list[Difference]:
        """Compare the finished runs of a group with its baseline, seed by seed."""
        against, runs = self._pairs(group)
        if not runs:
            return []
        return paired_differences(
            self.results, against, metric, runs=runs, reference=self.references
        )

    def speedups(self, metric: str, group: str) -> list[Speedup]:
        """Compare the tokens that the same runs need for equal quality."""
        against, runs = self._pairs(group)
        if not runs:
            return []
        return tokens_to_target(self.results, against, metric, runs=runs, reference=self.references)

    def _pairs(self, group: str) -> tuple[str, list[str]]:
        against, runs = self.groups[group]["against"], self.groups[group]["runs"]
        there = [r for r in runs if r in self.results.runs and r != against]
        return against, there if against in self.results.runs else []


def gather(settings: Settings, command: str = "") -> Study:
    """Gather the results of all finished runs of a comparison."""
    compare = settings.compare
    shown = [run for run in compare.run if not run.stage]
    ended = [item for item in plan(settings) if not item.run.stage and item.done]
    if not ended:
        raise ValueError(f"no run of the comparison in {settings.out!r} has finished yet")
    names = [run.name for run in shown]
    ended.sort(key=lambda item: (names.index(item.run.name), item.seed))
    folders = [(i.run.name, i.seed, i.folder.path) for i in ended]
    closer_look = settings.closer_look if settings.evaluate.final else None
    results = Results.from_runs(folders, closer_look)
    baseline = compare.baseline or shown[0].name
    groups: dict[str, dict[str, Any]] = {}
    for run in shown:
        group = groups.setdefault(run.group, {"against": run.against or baseline, "runs": []})
        group["runs"].append(run.name)
    about = {"command": command, "settings": settings.table}
    known, final = reported_references(settings, results.domains)
    return Study(results, baseline, known, groups, about, final)


def save_study(study: Study, folder: str | os.PathLike[str]) -> None:
    """Write a study to a few small files; `load_study` reads them."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_results(path, study.results)
    known = {
        "format": FORMAT, "version": VERSION, "baseline": study.baseline,
        "references": study.references, "final_references": study.final_references,
        "groups": study.groups, "about": study.about,
    }  # fmt: skip
    write_json(path / STUDY, known)


def load_study(folder: str | os.PathLike[str]) -> Study:
    """Read a study that `save_study` wrote."""
    path = Path(folder)
    if not (path / STUDY).is_file():
        raise FileNotFoundError(f"there is no study in {str(path)!r}: {STUDY} is missing")
    known = read_json(path / STUDY, FORMAT, VERSION)
    names = ("baseline", "references", "groups", "about")
    fields = {name: known[name] for name in names}
    return Study(read_results(path), **fields, final_references=known.get("final_references"))
