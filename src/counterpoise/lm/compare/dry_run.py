"""Check a comparison before its first run starts."""

from __future__ import annotations

from counterpoise.lm.compare.plan import plan
from counterpoise.lm.training.dry_run import check_run, check_settings, naming
from counterpoise.lm.training.inputs import check_references
from counterpoise.lm.training.settings import Settings


def check_all(settings: Settings, ranks: int = 1) -> list[str]:
    """Check settings and every run that they compare; a file without a comparison is one run.

    Parameters, notes and errors are those of `check_run`; errors also name the run.
    """
    if not settings.compare.run:
        return check_run(settings, ranks)
    check_references(settings)
    notes = check_settings(settings, ranks)
    for item in plan(settings, seeds=[settings.compare.seeds[0]]):
        with naming(f"compare.run {item.run.name!r}: "):
            notes += check_settings(item.settings(), ranks, provided=bool(item.needs))
    return list(dict.fromkeys(notes + _launcher_notes(settings, ranks)))


def _launcher_notes(settings: Settings, ranks: int) -> list[str]:
    """Compare the processes that the launcher starts with those that were asked about."""
    words = [word for part in settings.compare.launcher for word in part.split("=", 1)]
    for name in ("--nproc-per-node", "--nproc_per_node"):
        if name in words[:-1]:
            number = words[words.index(name) + 1]
            if number.isdigit() and "--nnodes" not in words and int(number) != ranks:
                return [f"compare.launcher starts {number} ranks; this check assumes {ranks}"]
    return []
