"""Finished models measured: the loss of every domain, and downstream tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterpoise.lm.downstream.tasks import (
    PAPER_TASKS,
    Score,
    Task,
    average,
    evaluate_tasks,
    get_task,
)
from counterpoise.lm.evaluate import domain_losses, held_out
from counterpoise.lm.model_files import load_model, load_tokenizer
from counterpoise.lm.tokens import Corpus
from counterpoise.lm.training.checkpoints import found, read_state
from counterpoise.lm.training.domains import domains_of
from counterpoise.lm.training.folder import RunFolder
from counterpoise.lm.training.losses import summed_loss
from counterpoise.lm.training.place import take_place
from counterpoise.lm.training.settings import Settings

logger = logging.getLogger("counterpoise")

PAPER = "paper"


def losses_of(settings: Settings, model: str, split: str) -> dict[str, float]:
    """The loss of a checkpoint on every domain of a split, as training measures it."""
    import torch

    corpus = Corpus.open(settings.corpus.folder)
    with take_place(settings.train.threads) as place:
        loaded = load_model(model, dtype=torch.float32).to(place.device)
        samples = held_out(
            corpus,
            settings.train.length,
            split=split,
            domains=domains_of(settings, corpus),
            limit=settings.evaluate.sequences or None,
        )
        with place.precise(settings.train.precision):
            return domain_losses(
                loaded,
                samples,
                batch_size=settings.evaluate.batch,
                loss=summed_loss,
                device=place.device,
            ).losses


def named_tasks(names: Sequence[str]) -> list[Task]:
    """Tasks by name; ``paper`` is all of the paper's eleven."""
    return [task for name in names for task in (PAPER_TASKS if name == PAPER else [get_task(name)])]


def task_scores(settings: Settings, model: str | Path) -> list[Score]:
    """What a model scores on the tasks of ``[evaluate]``."""
    asked = settings.evaluate
    with take_place(None) as place:
        scores = evaluate_tasks(
            load_model(model).to(place.device),
            load_tokenizer(model),
            named_tasks(asked.tasks),
            data=asked.task_data,
            limit=asked.task_limit,
            batch_size=asked.task_batch,
            available_only=asked.task_data is not None and PAPER in asked.tasks,
        )
    logger.info("average of %d tasks: %.4f", len(scores), average(scores))
    return scores


def measure_run(
    folder: RunFolder, settings: Settings, *, all_checkpoints: bool = False
) -> list[dict[str, Any]]:
    """Losses of the reported split, and task scores if tasks are asked for, of a run's last
    checkpoint or of all that it kept; they are added to the run's ``scores.jsonl``.

    What was measured before is not measured again.
    """
    there = found(folder.checkpoints)
    if not there:
        raise FileNotFoundError(f"{str(folder.path)!r} holds no checkpoint; is it a run's folder?")
    known = {record["step"]: record for record in folder.scores.read()}
    records = []
    for path in there if all_checkpoints else there[-1:]:
        step = int(read_state(path)["step"])
        record = known.get(step, {"step": step, "tokens": step * settings.train.step_tokens})
        asked = settings.evaluate
        how = {"split": asked.report, "sequences": asked.sequences, "length": settings.train.length,
               "precision": settings.train.precision}  # fmt: skip
        if record.get("losses_of") != how:
            record["losses"] = losses_of(settings, str(path), asked.report)
            record["losses_of"] = how
        how = {"tasks": list(asked.tasks), "limit": asked.task_limit, "data": asked.task_data}
        if asked.tasks and record.get("tasks_of") != how:
            record["tasks"] = [score.row() for score in task_scores(settings, path)]
            record["tasks_of"] = how
        known[step] = record
        folder.scores.write([known[k] for k in sorted(known)])
        records.append(record)
    return records
