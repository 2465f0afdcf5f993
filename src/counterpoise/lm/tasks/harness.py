"""Counterpoise's tasks through lm-evaluation-harness: definitions are its own, data may be local.

Nothing here reaches for the network when data are local. For this neither the harness's
``simple_evaluate``, which asks the hub about the model, nor ``datasets.load_dataset`` is used.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from counterpoise.lm.tasks.tasks import Score, Task

# The harness's own seed for drawing examples.
SEED = 1234


def check_installed() -> None:
    """Make sure that models can be scored, before hours are spent on training them."""
    _package()
    _models()


def _models() -> Any:
    try:
        from lm_eval.models.huggingface import HFLM
    except ImportError as error:  # of what lm_eval needs for models of transformers
        raise ImportError(
            f"downstream tasks need: pip install 'counterpoise[tasks]' ({error})"
        ) from error
    return HFLM


def wrap(
    model: Any, tokenizer: Any, batch_size: int, device: Any = None, precision: str = "float32"
) -> Any:
    """A model as the harness wants it; ``"bf16"`` computes in that by autocast."""
    _package()
    HFLM = _models()
    if isinstance(model, str) or not hasattr(model, "config"):
        raise TypeError(
            f"model must be a model of transformers; got {model!r}. load_checkpoint() makes one."
        )
    if isinstance(tokenizer, str) or not callable(getattr(tokenizer, "encode", None)):
        raise TypeError(
            f"tokenizer must be a tokenizer of transformers; got {tokenizer!r}. load_checkpoint() "
            "makes one."
        )
    if device is not None:
        model.to(device)
    own = deepcopy(tokenizer)  # as the harness may give it a token for padding
    with _quiet():
        return HFLM(
            pretrained=model,
            tokenizer=own,
            backend="causal",
            batch_size=batch_size,
            mixed_precision_dtype="bfloat16" if precision == "bf16" else None,
        )


def load(task: Task, files: Mapping[str, Path] | None = None) -> Any:
    """A task of the harness, with documents from local files by split, the scored split first, or
    from the hub."""
    definition: dict[str, Any] = {"include": str(_definition(task)), "task": task.harness}
    if task.shots is not None:
        # In the definition, as the harness ignores another number where its own says 0.
        definition["num_fewshot"] = task.shots
    if files is not None:
        definition |= _splits(files) | {"dataset_kwargs": {"files": _names(files)}}
    lines = [f"{key}: {json.dumps(value)}" for key, value in definition.items()]  # YAML as well
    if files is not None:
        lines.append(f"custom_dataset: !function {__name__}.{read_local.__name__}")
    with tempfile.TemporaryDirectory(prefix="counterpoise-") as folder:
        path = Path(folder) / "task.yaml"
        path.write_text("\n".join(lines), encoding="utf-8")
        try:
            with _quiet():
                loaded = _manager(task.folder).load(str(path))["tasks"][task.harness]
        except OSError as error:
            if files is not None:
                raise
            raise ConnectionError(
                f"task {task.name!r}: its dataset could not be loaded from the hub ({error}); give "
                "data=, a folder made by prepare_tasks, or try again with a connection"
            ) from error
    if loaded.config.num_fewshot is None:
        loaded.set_config(key="num_fewshot", value=0)
    loaded.set_fewshot_seed(seed=SEED)
    _check_shots(task, loaded)
    return loaded


def read_local(*, files: Mapping[str, str], **others: Any) -> dict[str, Any]:
    """Documents by split. The harness calls it, with whatever else its definition says."""
    from datasets import Dataset

    # Not datasets.load_dataset("json"), which tells a server that it was called.
    found = {}
    for split, path in files.items():
        with open(path, encoding="utf-8") as lines:
            found[split] = Dataset.from_list([json.loads(line) for line in lines])
    return found


def _names(files: Mapping[str, Path]) -> dict[str, str]:
    return {split: str(path) for split, path in files.items()}


def _splits(files: Mapping[str, Path]) -> dict[str, str | None]:
    scored = next(iter(files))
    names = ("training_split", "validation_split", "test_split", "fewshot_split")
    splits: dict[str, str | None] = dict.fromkeys(names)
    if "train" in files:
        # Named as in the harness's definition, for it to draw examples as it does from the hub.
        splits["training_split"] = "train"
        splits["test_split" if scored == "test" else "validation_split"] = scored
    else:
        # The harness leaves the scored document out of the examples only if these two are the same.
        splits["test_split"] = splits["fewshot_split"] = scored
    return splits


def score(lm: Any, task: Task, loaded: Any, limit: int | None, *, local: bool) -> Score:
    """Run the harness on a task."""
    from lm_eval.api.metrics import mean
    from lm_eval.evaluator import evaluate

    metrics = loaded.aggregation()
    metric = task.metric or next(iter(metrics))
    if metric not in metrics:
        raise ValueError(
            f"task {task.name!r} has no metric {metric!r}; it has {', '.join(map(repr, metrics))}"
        )
    # Its own standard errors may come from a bootstrap, by processes of its own.
    found = evaluate(
        lm=lm, task_dict={"tasks": {task.harness: loaded}}, limit=limit, bootstrap_iters=0
    )
    key = next(k for k in found["results"][task.harness] if k.startswith(f"{metric},"))
    filter_name = key.split(",", 1)[1]
    samples = [s for s in found["samples"][task.harness] if s["filter"] == filter_name]
    n = len(samples)
    stderr = None
    if metrics[metric] is mean and n > 1:
        average = sum(s[metric] for s in samples) / n
        stderr = math.sqrt(sum((s[metric] - average) ** 2 for s in samples) / (n - 1) / n)
    shots = int(loaded.config.num_fewshot)
    return Score(
        task=task.name,
        metric=metric,
        value=float(found["results"][task.harness][key]),
        stderr=stderr,
        shots=shots,
        n=n,
        source="local" if local else "hub",
        split=_scored(loaded),
        shots_from=_shots_from(loaded) if shots else None,
    )


def _scored(loaded: Any) -> str:
    return str(loaded.config.test_split or loaded.config.validation_split)


def _pool(loaded: Any) -> str:
    """The split that examples are drawn from, by the harness's rule."""
    own = loaded.config
    return str(own.fewshot_split or own.training_split or own.validation_split or own.test_split)


def _leaves_out(loaded: Any) -> bool:
    return bool(loaded.fewshot_cfg.split == loaded.config.test_split)


def _shots_from(loaded: Any) -> str:
    if loaded.fewshot_cfg.samples is not None and loaded.fewshot_cfg.split is None:
        return "the task's own"
    pool = _pool(loaded)
    if pool != _scored(loaded):
        return pool
    return f"{pool}, {'without' if _leaves_out(loaded) else 'with'} the scored document"


def _check_shots(task: Task, loaded: Any) -> None:
    shots = int(loaded.config.num_fewshot)
    known = len(loaded.sampler.df) if shots else 0
    # The harness draws one more where one may have to be left out.
    if shots and shots + _leaves_out(loaded) > known:
        raise ValueError(
            f"task {task.name!r}: shots={shots} examples cannot be drawn from {known} documents of "
            f"the split {_pool(loaded)!r}; ask for fewer"
        )


def _definition(task: Task) -> Path:
    """The harness's own definition of a task."""
    for folder in dict.fromkeys((task.folder, "")):
        entry = _manager(folder).task_index.get(task.harness)
        if entry is not None:
            break
    else:
        raise ValueError(
            f"task {task.name!r}: lm_eval {_package().__version__} has no {task.harness!r}; use a "
            "name of PAPER_TASKS, or one that `lm_eval ls tasks` lists"
        )
    if entry.yaml_path is None or entry.kind.name in ("GROUP", "TAG"):
        raise ValueError(
            f"task {task.name!r}: {task.harness!r} is a {entry.kind.name.lower()} of several tasks "
            "in lm_eval; name each of them"
        )
    return Path(entry.yaml_path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the harness's warnings, each of which is about what is done here on purpose."""
    harness = logging.getLogger("lm_eval")
    level = harness.level
    harness.setLevel(logging.ERROR)
    try:
        yield
    finally:
        harness.setLevel(level)


@lru_cache(maxsize=32)
def _manager(folder: str) -> Any:
    _package()
    import lm_eval.tasks

    root = Path(lm_eval.tasks.__file__).parent
    if folder and (root / folder).is_dir():
        return lm_eval.tasks.TaskManager(include_path=str(root / folder), include_defaults=False)
    return lm_eval.tasks.TaskManager()


def _package() -> Any:
    try:
        import lm_eval
    except ImportError as error:
        raise ImportError("downstream tasks need: pip install 'counterpoise[tasks]'") from error
    return lm_eval
