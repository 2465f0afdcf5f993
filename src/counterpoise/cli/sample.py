"""``counterpoise sample``: write a sample table as CSV."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from counterpoise.cli.options import check_parent
from counterpoise.cli.printing import say
from counterpoise.tabular.sample_tables import SAMPLES


@click.command()
@click.argument("name", required=False, type=click.Choice(list(SAMPLES)), metavar="[NAME]")
@click.option("--out", "-o", type=click.Path(), metavar="FILE",
              help="CSV file to write.  [default: NAME.csv in the current folder]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def sample(name: str | None, out: str | None, force: bool) -> None:
    """Write a sample table as CSV, to try commands on.

    The tables ship with the package. Without NAME, list them.

    \b
    counterpoise sample diamonds
    counterpoise fit diamonds.csv --target price --group clarity
    """
    if name is None:
        if out is not None or force:
            given = "--force" if out is None else "--out"
            raise click.UsageError(f"{given} needs the name of a table: {' or '.join(SAMPLES)}")
        for known in SAMPLES.values():
            say(f"{known.name}: {known.summary}")
        say("\nTo write one, run: counterpoise sample NAME")
        return

    from counterpoise.storage.files import write_bytes

    chosen, path = SAMPLES[name], Path(out or f"{name}.csv")
    if path.suffix.lower() != ".csv":
        raise click.UsageError(f"--out: {out!r} does not end in .csv, and samples are CSV files")
    check_parent("--out", str(path))
    if os.path.lexists(path) and not force:
        raise FileExistsError(
            f"{str(path)!r} exists; replace it with --force, or choose another file with --out"
        )
    write_bytes(path, chosen.csv())
    say(f"{path}: {chosen.summary}")
    say(f"Next, run: {shlex.join(['counterpoise', 'fit', str(path), *chosen.options])}")
