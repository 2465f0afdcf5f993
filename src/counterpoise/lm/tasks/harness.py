"""Run tasks through lm-evaluation-harness: its definitions, its prompts, its metrics.

Nothing here reaches for the network when the documents are local. That rules out the harness's
``simple_evaluate``, which asks the hub about the model, and ``datasets.load_dataset``, which
reports its calls to a server. The harness's ``TaskManager`` and ``evaluate`` do the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoise.common.packages import TASKS, not_installed
from counterpoise.common.text import one_line
from counterpoise.lm.model_checks.unattended import unattended
from counterpoise.lm.tasks.catalog import Task
from counterpoise.lm.tasks.scores import Score

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager

# The harness's own seed for drawing examples.
SEED = 1234
# The branch in which the hub keeps a dataset's tables as Parquet.
TABLES = "refs/convert/parquet"


def check_installed() -> None:
    """Make sure that models can be scored, before hours are spent on training them."""
    try:
        import lm_eval  # noqa: F401
        from lm_eval.models.huggingface import HFLM  # noqa: F401
    except ImportError as error:  # of the harness, or of what it needs for transformers
        raise not_installed("downstream tasks need", *TASKS, error=error) from error


def wrap(
    model: Any, tokenizer: Any, batch_size: int, device: Any = None, precision: str = "float32"
) -> LM:
    """Wrap a model of transformers for the harness; "bf16" computes in bfloat16 by autocast."""
    check_installed()
    from lm_eval.models.huggingface import HFLM

    if isinstance(model, str) or not hasattr(model, "config"):
        raise TypeError(
            f"model must be a model of transformers; got {model!r}. Load one with load_checkpoint()"
        )
    if isinstance(tokenizer, str) or not callable(getattr(tokenizer, "encode", None)):
        raise TypeError(
            f"tokenizer must be a tokenizer of transformers; got {tokenizer!r}. Load one with "
            "load_checkpoint()"
        )
    if device is not None:
        model.to(device)
    own = deepcopy(tokenizer)  # the harness may add a padding token
    with _quiet():
        return HFLM(
            pretrained=model,
            tokenizer=own,
            backend="causal",
            batch_size=batch_size,
            mixed_precision_dtype="bfloat16" if precision == "bf16" else None,
        )


def load(task: Task, files: Mapping[str, Path] | None = None) -> ConfigurableTask:
    """Load a task of the harness, with documents from the hub or from local files.

    Parameters
    ----------
    task : Task
    files : mapping of splits to paths, optional
        The scored split first.
    """
    manager = _manager_of(task)
    changes: dict[str, Any] = {}
    if task.shots is not None:
        # Set here because the harness ignores another number where its definition says 0.
        changes["num_fewshot"] = task.shots
    if files is not None:
        names = {split: str(path) for split, path in files.items()}
        changes |= _splits(files) | {
            "custom_dataset": read_local,
            "dataset_kwargs": {"files": names},
        }
    try:
        loaded = _load(manager, task, changes)
    except Exception as error:  # of files, connections, formats: each package has its own
        if files is not None:
            raise
        remedy = "or try again with a connection"
        if _is_script(error):
            remedy = "because datasets runs no scripts"
        raise ConnectionError(
            f"task {task.name!r}: the hub's dataset could not be loaded ({one_line(error)}); pass "
            f"data=, a folder of task files, {remedy}"
        ) from error
    if loaded.config.num_fewshot is None:
        loaded.set_config(key="num_fewshot", value=0)
    loaded.set_fewshot_seed(seed=SEED)
    _check_shots(task, loaded)
    return loaded


def _load(manager: TaskManager, task: Task, changes: dict[str, Any]) -> ConfigurableTask:
    """Load a task; where its dataset is a script, from the tables that the hub made of it."""
    try:
        return _load_changed(manager, task, changes)
    except RuntimeError as error:
        if not _is_script(error) or "custom_dataset" in changes:
            raise
        config = manager.task_index[task.harness].cfg or {}
        name = config.get("dataset_name")
        tables = {"revision": TABLES} | ({} if name is None else {"data_dir": name})
        return _load_changed(
            manager, task, changes | {"dataset_name": None, "dataset_kwargs": tables}
        )


def _load_changed(manager: TaskManager, task: Task, changes: dict[str, Any]) -> ConfigurableTask:
    # The harness takes changes to a task from the group that lists it.
    group = {"group": "counterpoise", "task": [{"task": task.harness, **changes}]}
    with _quiet(), unattended():
        return manager.load(group)["tasks"][task.harness]


def _is_script(error: Exception) -> bool:
    """Return whether datasets, from release 4 on, refused to run a dataset's script."""
    return isinstance(error, RuntimeError) and "scripts are no longer supported" in str(error)


def check_known(tasks: Iterable[Task]) -> None:
    """Make sure that the harness has all tasks, before any of them is scored."""
    for task in tasks:
        _manager_of(task)


def read_local(*, files: Mapping[str, str], **others: Any) -> dict[str, Any]:
    """Return documents by split; the harness passes what else its definition says."""
    from datasets import Dataset

    found = {}
    for split, path in files.items():
        with open(path, encoding="utf-8") as lines:
            found[split] = Dataset.from_list([json.loads(line) for line in lines])
    return found


def _splits(files: Mapping[str, Path]) -> dict[str, str | None]:
    scored = next(iter(files))
    names = ("training_split", "validation_split", "test_split", "fewshot_split")
    splits: dict[str, str | None] = dict.fromkeys(names)
    if "train" in files:
        # Named as in the harness's definition, so that it draws the same examples as from the hub.
        splits["training_split"] = "train"
        splits["test_split" if scored == "test" else "validation_split"] = scored
    else:
        # The harness excludes the scored document from the examples only if these two are equal.
        splits["test_split"] = splits["fewshot_split"] = scored
    return splits


def score(lm: LM, task: Task, loaded: ConfigurableTask, limit: int | None, *, local: bool) -> Score:
    """Run the harness on a task."""
    from lm_eval.api.metrics import mean, mean_stderr
    from lm_eval.evaluator import evaluate

    metrics = loaded.aggregation()
    metric = task.metric or next(iter(metrics))
    if metric not in metrics:
        raise ValueError(
            f"task {task.name!r} has no metric {metric!r}; it has {', '.join(map(repr, metrics))}"
        )
    # Without iterations, as the harness would bootstrap in processes of its own.
    found = evaluate(
        lm=lm, task_dict={"tasks": {task.harness: loaded}}, limit=limit, bootstrap_iters=0
    )
    results = found["results"][task.harness]
    key = next(key for key in results if key.startswith(f"{metric},"))
    filter_name = key.split(",", 1)[1]
    samples = found["samples"][task.harness]
    values = [sample[metric] for sample in samples if sample["filter"] == filter_name]
    shots = int(loaded.config.num_fewshot)
    return Score(
        task=task.name,
        metric=metric,
        value=float(results[key]),
        stderr=mean_stderr(values) if metrics[metric] is mean and len(values) > 1 else None,
        shots=shots,
        n=len(values),
        source="local" if local else "hub",
        split=_scored_split(loaded),
        shots_from=_shots_from(loaded) if shots else None,
    )


def _scored_split(loaded: ConfigurableTask) -> str:
    return str(loaded.config.test_split or loaded.config.validation_split)


def _shots_split(loaded: ConfigurableTask) -> str:
    """Return the split that examples are drawn from, by the harness's rule."""
    own = loaded.config
    return str(own.fewshot_split or own.training_split or own.validation_split or own.test_split)


def _leaves_out(loaded: ConfigurableTask) -> bool:
    """Return whether the scored document is never among the examples."""
    return bool(loaded.fewshot_cfg.split == loaded.config.test_split)


def _shots_from(loaded: ConfigurableTask) -> str:
    if loaded.fewshot_cfg.samples is not None and loaded.fewshot_cfg.split is None:
        return "the task's own"
    split = _shots_split(loaded)
    if split != _scored_split(loaded):
        return split
    return f"{split}, {'without' if _leaves_out(loaded) else 'with'} the scored document"


def _check_shots(task: Task, loaded: ConfigurableTask) -> None:
    shots = int(loaded.config.num_fewshot)
    known = len(loaded.sampler.df) if shots else 0
    # The harness draws one more where it may have to leave one out.
    if shots and shots + _leaves_out(loaded) > known:
        raise ValueError(
            f"task {task.name!r}: shots={shots} is too many for the {known} documents of the split "
            f"{_shots_split(loaded)!r}; ask for fewer"
        )


def _manager_of(task: Task) -> TaskManager:
    """Return a manager that knows the task."""
    for folder in dict.fromkeys((task.folder, "")):
        manager = _manager(folder)
        if task.harness in manager.all_subtasks:
            return manager
        for kind, names in (("group", manager.all_groups), ("tag", manager.all_tags)):
            if task.harness in names:
                raise ValueError(
                    f"task {task.name!r}: {task.harness!r} is a {kind} of several tasks in "
                    "lm_eval; name each of them"
                )
    raise ValueError(
        f"task {task.name!r}: lm_eval has no {task.harness!r}; use a name of PAPER_TASKS, or one "
        "that `lm_eval ls tasks` lists"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the harness's warnings, all of which are about what is done here on purpose."""
    harness = logging.getLogger("lm_eval")
    level = harness.level
    harness.setLevel(logging.ERROR)
    try:
        yield
    finally:
        harness.setLevel(level)


@lru_cache(maxsize=32)
def _manager(folder: str) -> TaskManager:
    check_installed()
    import lm_eval.tasks

    root = Path(lm_eval.tasks.__file__).parent
    if folder and (root / folder).is_dir():
        return lm_eval.tasks.TaskManager(include_path=str(root / folder), include_defaults=False)
    return lm_eval.tasks.TaskManager()
