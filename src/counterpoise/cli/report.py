"""``counterpoise report``: an HTML page about a fit or a language-model run."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoise.cli.printing import say

# Files in the folder of a language-model run or of a comparison of runs.
LM_FILES = ("evaluations.jsonl", "study.json", "results/study.json")


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False), help="[default: FOLDER/report.html]")
def report(folder: str, out: str | None) -> None:
    """Write an HTML report on a fit or a language-model run: one file that opens anywhere.

    FOLDER was written by `counterpoise fit --out` or `counterpoise lm train --out`.

    \b
    counterpoise report fit
    counterpoise report out/one-run --out run.html
    """
    from counterpoise.storage.folders import ModelFileError

    path = Path(folder)
    if not path.is_dir():
        raise ModelFileError(
            f"there is no folder {folder!r}; give one that counterpoise fit --out, lm train or "
            "lm compare wrote"
        )
    if (path / "model.json").is_file():
        from counterpoise.report import write_report
    elif any((path / name).is_file() for name in LM_FILES):
        from counterpoise.lm.report import write_report
    else:
        raise ModelFileError(
            f"{folder!r} holds neither a fit (model.json), nor a training run "
            "(evaluations.jsonl), nor a comparison (study.json); give the folder of one"
        )
    say(str(write_report(folder, out)))
