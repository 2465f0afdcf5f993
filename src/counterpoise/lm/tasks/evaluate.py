"""Score a language model on downstream tasks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from counterpoise.common.arguments import check_choice, check_whole
from counterpoise.common.text import one_line
from counterpoise.lm.evaluate import evaluating
from counterpoise.lm.tasks.catalog import PAPER_TASKS, TASKS, Task, choose_tasks
from counterpoise.lm.tasks.harness import check_known, load, score, wrap
from counterpoise.lm.tasks.local import task_files
from counterpoise.lm.tasks.scores import Score, TasksFailed

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger("counterpoise")


def evaluate_tasks(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: str | Task | Iterable[str | Task] = PAPER_TASKS,
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    batch_size: int = 8,
    device: str | torch.device | None = None,
    precision: str = "float32",
    available_only: bool = False,
) -> list[Score]:
    """Score a causal language model on downstream tasks, with lm-evaluation-harness.

    Parameters
    ----------
    model, tokenizer
        A model and a tokenizer of transformers, as `load_checkpoint` returns them.
    tasks : names or Tasks, default PAPER_TASKS
        See `get_task`.
    data : path, optional
        A folder of task files: JSONL files with the documents of the tasks, and ``tasks.json``,
        which lists them. Nothing is then read from elsewhere. By default the harness loads its
        datasets from the Hugging Face hub.
    limit : int, optional
        Score only the first documents of each task that has no limit of its own.
    batch_size : int, default 8
    device : optional
        Move the model to this device first.
    precision : "float32" or "bf16"
        "bf16" computes in bfloat16 by autocast; "float32" computes in the type of the weights.
    available_only : bool, default False
        Skip tasks that ``data`` lacks, with a warning in the log, instead of raising an error.

    Returns
    -------
    list of Score
        In the order of the tasks.

    Raises
    ------
    TasksFailed
        If some of several tasks could not be scored, after all others were. It holds their scores
        in ``scores`` and the reasons in ``failures``.

    Notes
    -----
    The harness draws examples with its own seed. A prompt longer than the model's context loses
    its beginning; the harness logs it.
    """
    chosen = choose_tasks(tasks)
    check_whole("batch_size", batch_size, 1)
    check_choice("precision", precision, ("float32", "bf16"))
    if limit is not None:
        check_whole("limit", limit, 1)
    files = None
    if data is not None:
        files = task_files(data)
        chosen = _available(chosen, list(files), os.fspath(data), available_only)
    check_known(chosen)
    scores: list[Score] = []
    failures: dict[str, str] = {}
    with evaluating(model):
        lm = wrap(model, tokenizer, batch_size, device, precision)
        for task in chosen:
            began = time.monotonic()
            try:
                loaded = load(task, None if files is None else files[task.harness])
                scores.append(score(lm, task, loaded, task.limit or limit, local=files is not None))
            except Exception as error:  # from any package; the other tasks can be scored
                if len(chosen) == 1 or isinstance(error, ImportError):
                    raise
                failures[task.name] = one_line(error)
                logger.error("task %s failed: %s", task.name, failures[task.name])
                continue
            logger.info(
                "task %s: %s %.4f on %d documents, %.1f s", task.name, scores[-1].metric,
                scores[-1].value, scores[-1].n, time.monotonic() - began,
            )  # fmt: skip
    if failures:
        raise TasksFailed(failures, scores)
    return scores


def _available(
    tasks: list[Task], in_data: list[str], data: str, available_only: bool
) -> list[Task]:
    missing = [task.name for task in tasks if task.harness not in in_data]
    if not missing:
        return tasks
    if not available_only or len(missing) == len(tasks):
        names = [task.name for task in TASKS.values() if task.harness in in_data]
        raise ValueError(
            f"data={data!r} lacks the tasks {missing!r}; it has {names!r}. Name only those, pass "
            "available_only=True to skip the others, or pass data=None to load them from the hub"
        )
    logger.warning("skipped tasks that %s lacks: %s", data, ", ".join(missing))
    return [task for task in tasks if task.harness in in_data]
