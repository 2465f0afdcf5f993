"""``counterpoise lm``: prepare, train, evaluate and compare language models from one file."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from counterpoise.cli.printing import say, show_json
from counterpoise.cli.steer import steer
from counterpoise.common.toml import parse_changes
from counterpoise.lm.training.settings import Settings, load_settings

RESULTS_WAIT = 300.0  # seconds, for another job that writes to the same results


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of all commands that read a configuration file."""
    command = click.option(
        "--set", "changes", multiple=True, metavar="NAME=VALUE",
        help="Change a setting, as in --set train.seed=1. Can be repeated.",
    )(command)  # fmt: skip
    return click.argument("config", type=click.Path(dir_okay=False))(command)


def _settings(config: str, changes: tuple[str, ...]) -> Settings:
    return load_settings(config, parse_changes(changes))


@click.group()
def lm() -> None:
    """Train language models on a mixture of domains that follows the weights.

    One TOML file describes corpus, model, training and comparison; see configs/ for examples.

    \b
    counterpoise lm prepare configs/demo-lm.toml
    counterpoise lm train configs/demo-lm.toml --out out/one-run
    counterpoise lm compare configs/demo-lm.toml --jobs 2
    """


lm.add_command(steer)


@lm.command(short_help="Turn documents into token files.")
@configured
@click.option("--overwrite", is_flag=True, help="Overwrite a corpus prepared with other settings.")
@click.pass_obj
def prepare(obj: dict[str, Any], config: str, changes: tuple[str, ...], overwrite: bool) -> None:
    """Turn the documents of every domain into token files."""
    settings = _settings(config, changes)
    from counterpoise.lm.training.corpora import prepare_corpus

    corpus = prepare_corpus(settings, overwrite=overwrite, progress=obj["progress"])
    say(repr(corpus))


@lm.command(short_help="Group documents by what they are about.")
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("out", metavar="OUT", type=click.Path(dir_okay=False))
@click.option("--k", type=int, required=True, help="Number of clusters.")
@click.option("--text", default="text", show_default=True, help="Field that holds the text.")
@click.option("--field", default="cluster", show_default=True, help="Field to write labels to.")
@click.option("--size", default=64, show_default=True, help="Length of the embeddings.")
@click.option(
    "--sample", default=20_000, show_default=True, help="Documents in which clusters are found."
)
@click.option("--seed", default=0, show_default=True, help="Seed of sample and clusters.")
def cluster(
    source: str, out: str, k: int, text: str, field: str, size: int, sample: int, seed: int
) -> None:
    """Write the documents of IN to OUT (*.jsonl), each with the label of its cluster.

    Documents are embedded by their words. corpus.by = "cluster" in a configuration then makes a
    domain of every cluster.

    \b
    counterpoise lm cluster data/web.jsonl.gz data/clustered/web.jsonl --k 50
    """
    from counterpoise.lm.corpus.clusters import cluster_documents

    found = cluster_documents(
        source, out, k, text=text, field=field, size=size, sample=sample, seed=seed
    )
    least, most = min(found.values()), max(found.values())
    say(f"{out}: {sum(found.values()):,} documents in {k} clusters of {least:,} to {most:,}")


@lm.command(short_help="Train a model, or resume a stopped run.")
@configured
@click.option("--out", type=click.Path(file_okay=False), help="Folder of the run.")
@click.option("--dry-run", is_flag=True, help="Check the settings; estimate memory and time.")
@click.option("--ranks", type=int, help="With --dry-run: number of processes.")
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
    """Train a model, or resume a run that was stopped.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m counterpoise lm train CONFIG
    """
    settings = _settings(config, changes)
    if dry_run:
        chosen = settings if out is None else replace(settings, out=out)
        _dry_run(chosen, 1 if ranks is None else ranks, device or "a100-80gb", calibrate, as_json)
        return
    if ranks is not None or device is not None or calibrate or as_json:
        raise click.UsageError("--ranks, --device, --calibrate and --json need --dry-run")
    from counterpoise.lm.training.ranks import is_first, nothing_follows
    from counterpoise.lm.training.train import train as run

    with nothing_follows():
        result = run(settings, out, progress=obj["progress"])
    if is_first():
        show_json(result)


def _dry_run(settings: Settings, ranks: int, device: str, calibrate: bool, as_json: bool) -> None:
    from counterpoise.lm.compare.dry_run import check_all
    from counterpoise.lm.training.estimate import estimate

    notes = check_all(settings, ranks)
    found = estimate(settings, ranks=ranks, device=device, calibrate=calibrate)
    if as_json:
        show_json({**found.as_dict(), "notes": notes})
    else:
        say("\n".join([str(found), *(f"note: {note}" for note in notes)]))


@lm.command(short_help="Find the loss each domain can reach.")
@configured
@click.pass_obj
def references(obj: dict[str, Any], config: str, changes: tuple[str, ...]) -> None:
    """Find the loss that each domain can be expected to reach.

    It is given, measured on a model, or predicted by a scaling law fitted to small runs; see
    [references] in the configuration.
    """
    settings = _settings(config, changes)
    from counterpoise.lm.training.ranks import is_first, nothing_follows
    from counterpoise.lm.training.references import find_references

    with nothing_follows():
        found = find_references(settings, progress=obj["progress"])
    if is_first():
        show_json(found)


@lm.command(short_help="Train several rules and compare them.")
@configured
@click.option("--jobs", default=1, show_default=True, help="Number of runs at the same time.")
@click.option("--only", multiple=True, metavar="RUN", help="Only this run. Can be repeated.")
@click.option("--seeds", help="Only these seeds, for example 0,1,2.")
@click.option("--minutes", type=float, help="Start no new run after this many minutes.")
@click.option("--results", type=click.Path(file_okay=False), help="Folder for results.")
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
    """Train several rules with several seeds and compare them seed by seed.

    Finished runs are not repeated, so the same command resumes a comparison that was stopped.
    Numbers, tables, figures and a report go to the folder results/ of the comparison.
    """
    chosen = None if seeds is None else _numbers(seeds)
    settings = _settings(config, changes)
    from counterpoise.lm.compare.findings import findings
    from counterpoise.lm.compare.launch import RunsFailed, measure_all, run_all
    from counterpoise.lm.compare.plan import plan
    from counterpoise.lm.compare.study import Study, gather, save_study
    from counterpoise.lm.compare.tables import headline
    from counterpoise.lm.tasks.scores import TasksFailed
    from counterpoise.lm.training.measure import available_tasks
    from counterpoise.storage.files import locked

    folder = Path(settings.out, "results") if results is None else Path(results)
    if settings.evaluate.tasks:
        available_tasks(settings)
    failed: RunsFailed | TasksFailed | None = None
    try:
        run_all(
            settings,
            jobs=jobs,
            only=list(only) or None,
            seeds=chosen,
            minutes=minutes,
            progress=obj["progress"],
        )
    except RunsFailed as error:  # finished runs are compared all the same
        failed = error
    command = _compare_command(config, changes, only, seeds, results)

    def keep(draw: bool) -> Study:
        """Store the results of finished runs; one job at a time, since others may store theirs."""
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
        try:
            measure_all([item for item in planned if item.done])
        except TasksFailed as error:
            failed = failed or error
    study = keep(draw=True)
    say(headline(study))
    say("\n".join(findings(study)))
    say(f"numbers, tables and figures: {folder}")
    if failed is not None:
        raise failed
    _report(folder)


def _compare_command(
    config: str,
    changes: tuple[str, ...],
    only: tuple[str, ...],
    seeds: str | None,
    results: str | None,
) -> str:
    """Rebuild the command, without options that change no number (--jobs and --minutes)."""
    words = ["counterpoise", "lm", "compare", config]
    for change in changes:
        words += ["--set", change]
    for run in only:
        words += ["--only", run]
    for option, value in (("--seeds", seeds), ("--results", results)):
        if value is not None:
            words += [option, value]
    return shlex.join(words)


def _report(folder: Path) -> None:
    """Write the report of a comparison and name it; say what is missing if that fails."""
    from counterpoise.lm.report import write_report

    try:
        say(f"report: {write_report(folder)}")
    except ImportError as error:
        say(f"no report: {error}", err=True)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--seeds must be whole numbers such as 0,1,2; got {text!r}"
        ) from None


@lm.command(short_help="Measure losses and tasks of a trained model.")
@click.argument("target", type=click.Path())
@click.option(
    "--config", type=click.Path(dir_okay=False), help="Settings for a model that is not a run."
)
@click.option("--all", "all_checkpoints", is_flag=True, help="Measure all checkpoints of the run.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting.")
def evaluate(
    target: str, config: str | None, all_checkpoints: bool, changes: tuple[str, ...]
) -> None:
    """Measure a trained model: the loss of every domain, and downstream tasks.

    TARGET is the folder of a run, which keeps the scores, or a model (a folder, a .gguf file or a
    name on the hub) together with --config.

    \b
    counterpoise lm evaluate out/one-run --set evaluate.tasks='["paper"]'
    counterpoise lm evaluate out/one-run --all --set evaluate.task_data=data/tasks
    """
    settings = None if config is None else _settings(config, changes)
    from counterpoise.lm.tasks.scores import TasksFailed
    from counterpoise.lm.training.measure import (
        available_tasks,
        losses_of,
        measure_run,
        task_scores,
    )
    from counterpoise.lm.training.run_folder import CONFIG, RunFolder

    if settings is None:
        folder = RunFolder(Path(target))
        if not (folder.path / CONFIG).is_file():
            raise click.UsageError(
                f"{target!r} is not the folder of a run; add --config for a model"
            )
        settings = folder.settings.changed(parse_changes(changes))
        try:
            show_json(measure_run(folder, settings, all_checkpoints=all_checkpoints))
        except TasksFailed as error:
            show_json(error.scores)
            raise
        return
    asked = settings.evaluate
    losses = losses_of(settings, target, asked.report, asked.final or asked.sequences)
    found: dict[str, Any] = {"losses": losses}
    if settings.evaluate.tasks:
        found["tasks"] = []
        try:
            for score in task_scores(settings, target, available_tasks(settings)):
                found["tasks"].append(score.row())
        except TasksFailed:
            show_json(found)
            raise
    show_json(found)


@lm.command(short_help="List built-in task names.")
@click.argument("data", required=False, type=click.Path(file_okay=False))
def tasks(data: str | None) -> None:
    """List built-in task names; any lm_eval task works too.

    Given DATA, a folder of local task files, list only the tasks in it.
    """
    from counterpoise.lm.tasks.catalog import TASKS
    from counterpoise.lm.tasks.local import task_files

    local = None if data is None else task_files(data)
    for task in TASKS.values():
        if local is None or task.harness in local:
            say(f"{task.name}: {task.harness}, {task.shots} examples, {task.metric}")


@lm.command(short_help="Redraw the tables and figures of a comparison.")
@click.argument("results", type=click.Path(file_okay=False))
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    help="Folder for tables and figures; that of the results if not given.",
)
@click.option("--baseline", metavar="RUN", help="Compare the first group with this run.")
def figures(results: str, out: str | None, baseline: str | None) -> None:
    """Redraw the tables and figures of a comparison from its stored results."""
    say(_draw(results, out or results, baseline))


def _draw(results: Any, out: Any, baseline: str | None = None) -> str:
    """Write tables, and figures if matplotlib is installed; return the tables."""
    from counterpoise.lm.compare.drawing import draw_study
    from counterpoise.lm.compare.study import load_study
    from counterpoise.lm.compare.tables import write_tables

    study = load_study(results)
    made_by = shlex.join(["counterpoise", "lm", "figures", str(results)])
    if baseline is not None:
        study = study.against(baseline)
        made_by += f" --baseline {shlex.quote(baseline)}"
    text = write_tables(study, out)
    try:
        draw_study(study, out, made_by=made_by)
    except ImportError as error:
        say(f"no figures: {error}", err=True)
    return text
