"""The plan of a comparison: runs, seeds, and which run waits for which."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.lm.training.inputs import inputs_of
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import RunSettings, Settings

# Prefixes of values in a run's ``set`` that another run of the same seed provides.
MODEL_OF, WEIGHTS_OF = "model-of:", "average-weights-of:"


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison, with one seed."""

    run: RunSettings
    seed: int
    base: Settings

    @property
    def title(self) -> str:
        return f"{self.run.name}, seed {self.seed}"

    @property
    def folder(self) -> RunFolder:
        return self._folder_of(self.run.name)

    @property
    def done(self) -> bool:
        """Whether the run has finished; a folder of another run is an error."""
        if self.folder.result is None or not self.ready:
            return False
        settings = self.settings()
        self.folder.check(settings, inputs_of(settings))
        return True

    @property
    def needs(self) -> list[str]:
        """Names of the runs that must finish first."""
        return [n for v in self.run.set.values() if (n := provider(v)) is not None]

    @property
    def ready(self) -> bool:
        return all(self._folder_of(name).result is not None for name in self.needs)

    def settings(self) -> Settings:
        """Return the complete settings, with what other runs provide."""
        changes = {key: self._provided(value) for key, value in self.run.set.items()}
        return self.base.changed({**changes, "train.seed": self.seed, "compare": {}})

    def _provided(self, value: Any) -> Any:
        name = provider(value)
        if name is None:
            return value
        folder = self._folder_of(name)
        result = folder.result
        if value.startswith(MODEL_OF):
            return str(folder.path / (result["model"] if result else "checkpoints"))
        return "uniform" if result is None else result["average_weights"]

    def _folder_of(self, name: str) -> RunFolder:
        return RunFolder(Path(self.base.out, "runs", name, f"seed-{self.seed}"))


def provider(value: Any) -> str | None:
    """Name the run that a value comes from; None for a plain value.

    >>> provider("model-of:static"), provider("pd-kl"), provider(0.5)
    ('static', None, None)
    """
    for mark in (MODEL_OF, WEIGHTS_OF):
        if isinstance(value, str) and value.startswith(mark):
            return value.removeprefix(mark)
    return None


def plan(
    settings: Settings, only: list[str] | None = None, seeds: list[int] | None = None
) -> list[PlannedRun]:
    """List all runs, seed by seed, providers first, and check each of them."""
    runs = settings.compare.run
    if not runs:
        raise ValueError("the configuration compares nothing; add [[compare.run]] tables")
    names = [run.name for run in runs]
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise ValueError(f"there is no run {unknown[0]!r}; choose from {names!r}")
    for run in runs:
        for name in (n for v in run.set.values() if (n := provider(v)) is not None):
            if name not in names[: names.index(run.name)]:
                raise ValueError(
                    f"the run {run.name!r} needs {name!r}, which must come before it; there are "
                    f"{names[: names.index(run.name)]!r}"
                )
    wanted = _with_needs(runs, set(only)) if only else set(names)
    planned = [
        PlannedRun(run, seed, settings)
        for seed in (settings.compare.seeds if seeds is None else seeds)
        for run in runs
        if run.name in wanted and (run.seeds is None or seed in run.seeds)
    ]
    there = {(item.run.name, item.seed) for item in planned}
    if len(there) < len(planned):
        raise ValueError(f"seeds={seeds!r} names a seed twice; remove one")
    for item in planned:
        lacking = [name for name in item.needs if (name, item.seed) not in there]
        if lacking:
            raise ValueError(
                f"compare.run {item.run.name!r} needs {lacking[0]!r} with the seed {item.seed}, "
                "which that run lacks; add the seed to it"
            )
        try:
            item.settings()
        except ValueError as error:
            raise ValueError(f"compare.run {item.run.name!r}: {error}") from None
    return planned


def _with_needs(runs: tuple[RunSettings, ...], names: set[str]) -> set[str]:
    """Add the runs that the named ones wait for."""
    for run in reversed(runs):
        if run.name in names:
            names |= {n for v in run.set.values() if (n := provider(v)) is not None}
    return names
