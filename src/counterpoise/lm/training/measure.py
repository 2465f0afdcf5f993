"""Measure finished models: the loss of every domain, and downstream tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterpoise.common.stopping import Stopped, asked_to_stop
from counterpoise.common.text import one_line
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.evaluate import domain_losses, held_out
from counterpoise.lm.model_files import load_model, load_tokenizer
from counterpoise.lm.tasks.catalog import PAPER_TASKS, Task, get_task
from counterpoise.lm.tasks.evaluate import evaluate_tasks
from counterpoise.lm.tasks.harness import check_installed, check_known
from counterpoise.lm.tasks.local import task_files
from counterpoise.lm.tasks.scores import Score, TasksFailed
from counterpoise.lm.training.checkpoints import found
from counterpoise.lm.training.domains import domains_of
from counterpoise.lm.training.integrity import read_state, verify_model
from counterpoise.lm.training.losses import summed_losses
from counterpoise.lm.training.ranks import join_ranks
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import locked

logger = logging.getLogger("counterpoise")

PAPER = "paper"


def losses_of(
    settings: Settings, model: str, split: str, sequences: int | None = None
) -> dict[str, float]:
    """Measure a checkpoint's loss on every domain of a split, as training does."""
    import torch

    corpus = Corpus.open(settings.corpus.folder)
    with join_ranks(settings.train.threads, settings.train.timeout) as process:
        process.on_first_rank(lambda: verify_model(model))
        loaded = load_model(model, dtype=torch.float32).to(process.device)
        samples = held_out(
            corpus,
            settings.train.length,
            split=split,
            domains=domains_of(settings, corpus),
            limit=(settings.evaluate.sequences if sequences is None else sequences) or None,
        )
        with process.autocast(settings.train.precision):
            return domain_losses(
                loaded,
                samples,
                batch_size=settings.evaluate.batch,
                loss=summed_losses,
                device=process.device,
            ).losses


def available_tasks(settings: Settings) -> list[Task]:
    """List the tasks of ``[evaluate]``, each once.

    ``paper`` stands for the paper's eleven. Those that local data lacks are named in a warning;
    other tasks that it lacks are an error.
    """
    asked = settings.evaluate
    there = None if asked.task_data is None else list(task_files(asked.task_data))
    found: dict[str, Task] = {}
    missing: list[str] = []
    for name in asked.tasks:
        for task in PAPER_TASKS if name == PAPER else [get_task(name)]:
            if there is None or task.harness in there:
                found.setdefault(task.name, task)
            elif name == PAPER:
                missing.append(task.name)
            else:
                raise ValueError(
                    f"evaluate.tasks: {name!r} is not in evaluate.task_data={asked.task_data!r}; "
                    f"choose from {there!r}"
                )
    if found:
        check_installed()
    if missing:
        logger.warning("leaving out tasks that %s lacks: %s", asked.task_data, ", ".join(missing))
    return list(found.values())


def task_scores(settings: Settings, model: str | Path, tasks: Sequence[Task]) -> Iterator[Score]:
    """Score a model on tasks, one after the other, in the precision of training.

    Raises `TasksFailed` at the end, if some could not be scored.
    """
    asked = settings.evaluate
    check_known(tasks)
    failures: dict[str, str] = {}
    with join_ranks(None, settings.train.timeout) as process:
        process.on_first_rank(lambda: verify_model(model))
        loaded, tokenizer = load_model(model).to(process.device), load_tokenizer(model)
        for task in tasks:
            try:
                scores = evaluate_tasks(
                    loaded,
                    tokenizer,
                    task,
                    data=asked.task_data,
                    limit=asked.task_limit,
                    batch_size=asked.task_batch,
                    precision=settings.train.precision,
                )
            except ImportError:
                raise
            except Exception as error:  # from any package; the other tasks can be scored
                failures[task.name] = one_line(error)
                logger.error("task %s failed: %s", task.name, failures[task.name])
                continue
            yield from scores
    if failures:
        raise TasksFailed(failures)


def measure_run(
    folder: RunFolder, settings: Settings, *, all_checkpoints: bool = False
) -> list[dict[str, Any]]:
    """Measure a run's last checkpoint, or all that it kept, and add the scores to ``scores.jsonl``.

    Losses are of the reported split; tasks are those of the settings. What was measured before in
    the same way is not measured again. Every score is stored at once, so a process that is asked to
    stop ends after the current one. If tasks failed, `TasksFailed` is raised when all else is
    measured; its ``scores`` are what would have been returned.
    """
    there = found(folder.checkpoints)
    if not there:
        raise FileNotFoundError(
            f"{str(folder.path)!r} holds no checkpoint; give the folder of a run"
        )
    tasks = available_tasks(settings)
    with locked(folder.path), asked_to_stop() as asked:
        known = {record["step"]: record for record in folder.scores.read()}
        steps = []
        failures: dict[str, str] = {}
        for path in there if all_checkpoints else there[-1:]:
            steps.append(step := int(read_state(path)["step"]))
            record = known.setdefault(
                step, {"step": step, "tokens": step * settings.train.step_tokens}
            )
            try:
                for _ in _measured(settings, path, record, tasks):
                    folder.scores.write([known[k] for k in sorted(known)])
                    if asked:
                        raise Stopped(
                            "measurements so far are kept; run the same command to resume"
                        )
            except TasksFailed as error:
                failures |= error.failures
    if failures:
        raise TasksFailed(failures, [known[step] for step in steps])
    return [known[step] for step in steps]


def _measured(
    settings: Settings, path: Path, record: dict[str, Any], tasks: Sequence[Task]
) -> Iterator[None]:
    """Add what a checkpoint's record lacks, one measurement at a time."""
    how = settings.closer_look
    if record.get("losses_of") != how:
        record["losses"] = losses_of(settings, str(path), how["split"], how["sequences"])
        record["losses_of"] = how
        yield
    ways = {task.name: _way(task, settings) for task in tasks}
    scored = {row["task"]: row for row in record.get("tasks", [])}
    lacking = [task for task in tasks if scored.get(task.name, {}).get("way") != ways[task.name]]
    for score in task_scores(settings, path, lacking) if lacking else ():
        scored[score.task] = score.row() | {"way": ways[score.task]}
        record["tasks"] = list(scored.values())
        yield


def _way(task: Task, settings: Settings) -> dict[str, Any]:
    """Describe how a task is measured."""
    limit = task.limit or settings.evaluate.task_limit
    asked = {"limit": limit, "data": settings.evaluate.task_data}
    return asdict(task) | asked | {"precision": settings.train.precision}
