"""``counterpoise lm``: the language-model pipeline, from a configuration file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from counterpoise.common.toml import parse_changes
from counterpoise.lm.training.settings import Settings, load_settings

RESULTS_WAIT = 300.0  # seconds, for a job that writes to the same results


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that all commands with a configuration file have."""
    command = click.option(
        "--set", "changes", multiple=True, metavar="NAME=VALUE",
        help="Change a setting of the file: --set train.seed=1. Can be repeated.",
    )(command)  # fmt: skip
    return click.argument("config", type=click.Path(dir_okay=False))(command)


def _settings(config: str, changes: tuple[str, ...]) -> Settings:
    return load_settings(config, parse_changes(changes))


def _show(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


@click.group()
def lm() -> None:
    """Language models whose mixture of domains follows the weights.

    One configuration file (TOML) describes corpus, model, training and comparison; see configs/.

    \b
    counterpoise lm prepare configs/study-registry.toml
    counterpoise lm references configs/study-registry.toml
    counterpoise lm train configs/study-registry.toml --out out/one-run
    counterpoise lm compare configs/study-registry.toml --jobs 2
    """


@lm.command()
@configured
@click.option("--overwrite", is_flag=True, help="Prepare anew what was made differently.")
@click.pass_obj
def prepare(obj: dict[str, Any], config: str, changes: tuple[str, ...], overwrite: bool) -> None:
    """Turn the documents of every domain into token files."""
    from counterpoise.lm.training.corpora import prepare_corpus

    corpus = prepare_corpus(
        _settings(config, changes), overwrite=overwrite, progress=obj["progress"]
    )
    click.echo(repr(corpus))


@lm.command()
@configured
@click.option("--out", type=click.Path(file_okay=False), help="The run's folder.")
@click.option("--dry-run", is_flag=True, help="Check everything and estimate memory and time.")
@click.option("--ranks", type=int, help="With --dry-run: processes that would train.")
@click.option("--device", help="With --dry-run: a100-80gb, a100-40gb, h100-80gb or cpu.")
@click.option("--calibrate", is_flag=True, help="With --dry-run: measure the speed here.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@click.pass_obj
def train(
    obj: dict[str, Any],
    config: str,
    changes: tuple[str, ...],
    out: str | None,
    dry_run: bool,
    ranks: int | None,
    device: str | None,
    calibrate: bool,
    as_json: bool,
) -> None:
    """Train a model, or go on with a run that was stopped.

    On several cards or machines: torchrun --nproc-per-node 8 -m counterpoise lm train CONFIG
    """
    settings = _settings(config, changes)
    if dry_run:
        chosen = settings if out is None else replace(settings, out=out)
        _dry_run(chosen, 1 if ranks is None else ranks, device or "a100-80gb", calibrate, as_json)
        return
    if ranks is not None or device is not None or calibrate or as_json:
        raise click.UsageError("--ranks, --device, --calibrate and --json go with --dry-run")
    from counterpoise.lm.training.ranks import is_first
    from counterpoise.lm.training.train import train as run

    result = run(settings, out, progress=obj["progress"])
    if is_first():
        _show(result)


def _dry_run(settings: Settings, ranks: int, device: str, calibrate: bool, as_json: bool) -> None:
    from counterpoise.lm.training.dry_run import check_run
    from counterpoise.lm.training.estimate import estimate

    notes = check_run(settings, ranks)
    found = estimate(settings, ranks=ranks, device=device, calibrate=calibrate)
    if as_json:
        _show({**found.as_dict(), "notes": notes})
    else:
        click.echo("\n".join([str(found), *(f"note: {note}" for note in notes)]))


@lm.command()
@configured
@click.pass_obj
def references(obj: dict[str, Any], config: str, changes: tuple[str, ...]) -> None:
    """Find the loss that each domain can be expected to reach.

    They are given, a model's, or foretold by a scaling law that is fitted to small runs; see
    [references] of the configuration.
    """
    from counterpoise.lm.training.ranks import is_first
    from counterpoise.lm.training.references import find_references

    found = find_references(_settings(config, changes), progress=obj["progress"])
    if is_first():
        _show(found)


@lm.command()
@configured
@click.option("--jobs", default=1, show_default=True, help="Runs at a time.")
@click.option("--only", multiple=True, metavar="RUN", help="Only this run. Can be repeated.")
@click.option("--seeds", help="Only these seeds, as 0,1,2.")
@click.option("--minutes", type=float, help="Begin no run after so many minutes.")
@click.option("--results", type=click.Path(file_okay=False), help="Where tables are written.")
@click.pass_obj
def compare(
    obj: dict[str, Any],
    config: str,
    changes: tuple[str, ...],
    jobs: int,
    only: tuple[str, ...],
    seeds: str | None,
    minutes: float | None,
    results: str | None,
) -> None:
    """Train many rules with many seeds, and compare them seed by seed.

    Runs that have ended are not repeated, so a stopped comparison goes on when called again. What
    was found goes to small files, tables and figures in the folder results/ of the comparison.
    """
    from counterpoise.lm.compare.plan import plan
    from counterpoise.lm.compare.run import RunsFailed, measure_all, run_all
    from counterpoise.lm.compare.study import Study, gather, headline, save_study
    from counterpoise.lm.training.measure import available_tasks
    from counterpoise.storage.files import locked

    chosen = None if seeds is None else _numbers(seeds)
    settings = _settings(config, changes)
    folder = Path(settings.out, "results") if results is None else Path(results)
    if settings.evaluate.tasks:
        available_tasks(settings)
    failed: RunsFailed | None = None
    try:
        run_all(
            settings,
            jobs=jobs,
            only=list(only) or None,
            seeds=chosen,
            minutes=minutes,
            progress=obj["progress"],
        )
    except RunsFailed as error:  # what has ended is told all the same
        failed = error
    command = " ".join(["counterpoise lm compare", config, *(f"--set {c}" for c in changes)])

    def keep(draw: bool) -> Study:
        """Write down what has ended by now, alone: another job may tell of other runs."""
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=RESULTS_WAIT):
            study = gather(settings, command)
            save_study(study, folder)
            if draw:
                _draw(folder, folder)
        return study

    try:
        keep(draw=False)
    except ValueError:
        if failed is not None:
            raise failed from None
        raise
    if settings.evaluate.tasks or settings.evaluate.final:
        planned = plan(settings, only=list(only) or None, seeds=chosen)
        measure_all([item for item in planned if item.done])
    click.echo(headline(keep(draw=True)))
    click.echo(f"tables, figures and the numbers themselves: {folder}")
    if failed is not None:
        raise failed


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--seeds must be whole numbers, as 0,1,2; got {text!r}") from None


@lm.command()
@click.argument("target", type=click.Path())
@click.option("--config", type=click.Path(dir_okay=False), help="Settings of a model by itself.")
@click.option("--all", "all_checkpoints", is_flag=True, help="All checkpoints of the run.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting.")
def evaluate(
    target: str, config: str | None, all_checkpoints: bool, changes: tuple[str, ...]
) -> None:
    """Measure a trained model: the loss of every domain, and downstream tasks.

    TARGET is the folder of a run, whose settings are then known and whose scores are added to it,
    or a model by itself (a folder, a .gguf file, a name on the hub) with --config.

    \b
    counterpoise lm evaluate out/one-run --set evaluate.tasks='["paper"]'
    counterpoise lm evaluate out/one-run --all --set evaluate.task_data=data/tasks
    """
    from counterpoise.lm.training.measure import (
        available_tasks,
        losses_of,
        measure_run,
        task_scores,
    )
    from counterpoise.lm.training.run_folder import CONFIG, RunFolder

    if config is None:
        folder = RunFolder(Path(target))
        if not (folder.path / CONFIG).is_file():
            raise click.UsageError(f"{target!r} is not the folder of a run; give --config too")
        settings = folder.settings.changed(parse_changes(changes))
        _show(measure_run(folder, settings, all_checkpoints=all_checkpoints))
        return
    settings = _settings(config, changes)
    asked = settings.evaluate
    losses = losses_of(settings, target, asked.report, asked.final or asked.sequences)
    found: dict[str, Any] = {"losses": losses}
    if settings.evaluate.tasks:
        scores = task_scores(settings, target, available_tasks(settings))
        found["tasks"] = [score.row() for score in scores]
    _show(found)


@lm.command()
@click.argument("data", required=False, type=click.Path(file_okay=False))
def tasks(data: str | None) -> None:
    """List the downstream tasks that have a name here; any task of lm_eval can be named too.

    With the folder DATA of local task files only those that it has are listed.
    """
    from counterpoise.lm.tasks.catalog import TASKS
    from counterpoise.lm.tasks.local import task_files

    local = None if data is None else task_files(data)
    for task in TASKS.values():
        if local is None or task.harness in local:
            click.echo(f"{task.name}: {task.harness}, {task.shots} examples, {task.metric}")


@lm.command()
@click.argument("results", type=click.Path(file_okay=False))
@click.option("--out", type=click.Path(file_okay=False), help="Where they go; beside the results.")
@click.option("--baseline", metavar="RUN", help="Compare the first group with this run instead.")
def figures(results: str, out: str | None, baseline: str | None) -> None:
    """Draw tables and figures of a comparison again, from its kept results alone."""
    click.echo(_draw(results, out or results, baseline))


def _draw(results: Any, out: Any, baseline: str | None = None) -> str:
    """Tables and figures of a study; figures where matplotlib is."""
    from counterpoise.lm.compare.study import draw_study, load_study, write_tables

    study = load_study(results)
    made_by = f"counterpoise lm figures {results}"
    if baseline is not None:
        study = study.against(baseline)
        made_by += f" --baseline {shlex.quote(baseline)}"
    text = write_tables(study, out)
    try:
        draw_study(study, out, made_by=made_by)
    except ImportError as error:
        click.echo(f"no figures: {error}", err=True)
    return text
