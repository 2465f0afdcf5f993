"""Finished runs measured: losses and tasks, each kept when it is there."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from lm_problems import small_llama
from lm_tasks import byte_tokenizer, save_task_files

from counterpoise.cli.main import main
from counterpoise.common.stopping import Stopped
from counterpoise.common.toml import build
from counterpoise.lm.tasks import harness
from counterpoise.lm.tasks.evaluate import evaluate_tasks
from counterpoise.lm.tasks.scores import TasksFailed
from counterpoise.lm.training import measure
from counterpoise.lm.training.corpora import prepare_corpus
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import Settings
from counterpoise.lm.training.train import train
from counterpoise.storage.files import locked

TASKS = ["SciQ", "PIQA", "ARC-E"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_task_files(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def run(tmp_path, data):
    """A run with two checkpoints, on text, and the settings to measure it by."""
    for name, word in (("x", "owl"), ("y", "fox")):
        file = tmp_path / "texts" / f"{name}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"The {word} has {i} eggs.\n" for i in range(400)))
    folder = str(tmp_path / "corpus")
    table = {
        "corpus": {
            "folder": folder, "source": str(tmp_path / "texts"), "vocab_size": 300, "pieces": 200,
            "splits": {"train": 0.6, "validation": 0.2, "test": 0.2},
        },
        "model": {"hidden_size": 16, "layers": 1, "heads": 2},
        "train": {
            "tokens": 64 * 4 * 4, "length": 64, "batch": 4, "checkpoint_every": 64 * 4 * 2,
            "keep": 2, "threads": 1,
        },
        "evaluate": {"sequences": 2, "tasks": TASKS, "task_data": str(data), "task_limit": 2},
    }  # fmt: skip
    settings = build(Settings, table)
    prepare_corpus(settings, progress=False)
    train(settings, tmp_path / "run", progress=False)
    return RunFolder(tmp_path / "run"), settings


def test_what_was_measured_before_a_stop_is_not_measured_again(run, monkeypatch):
    folder, settings = run
    asked = []
    scoring = measure.evaluate_tasks

    def score(model, tokenizer, task, **options):
        asked.append(task.name)
        if len(asked) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return scoring(model, tokenizer, task, **options)

    monkeypatch.setattr(measure, "evaluate_tasks", score)
    with pytest.raises(Stopped, match="run the same command to resume"):
        measure.measure_run(folder, settings, all_checkpoints=True)
    (first,) = folder.scores.read()
    assert [row["task"] for row in first["tasks"]] == TASKS[:2]
    records = measure.measure_run(folder, settings, all_checkpoints=True)
    assert asked == TASKS * 2
    assert [r["step"] for r in records] == [2, 4]
    assert records == folder.scores.read()
    assert records[0]["losses"] == first["losses"]
    assert records[1]["losses"] == pytest.approx(folder.result["losses"], rel=1e-5)
    for record in records:
        assert [(r["task"], r["n"], r["source"]) for r in record["tasks"]] == [
            (name, 2, "local") for name in TASKS
        ]
    fewer = settings.changed({"evaluate.task_limit": 1, "evaluate.tasks": TASKS[:1]})
    (record,) = measure.measure_run(folder, fewer)  # another way to measure is another number
    assert [r["n"] for r in record["tasks"]] == [1, 2, 2]


def test_a_task_that_fails_is_reported_and_the_others_are_kept(run, data, tmp_path, capsys):
    folder, settings = run
    broken = shutil.copytree(data, tmp_path / "broken")
    (broken / "piqa.validation.jsonl").write_text("no document")
    changed = settings.changed({"evaluate.task_data": str(broken)})
    with pytest.raises(TasksFailed, match=r"1 task could not be scored.*PIQA: ") as failed:
        measure.measure_run(folder, changed, all_checkpoints=True)
    records = folder.scores.read()
    assert failed.value.scores == records
    assert [[row["task"] for row in r["tasks"]] for r in records] == [["SciQ", "ARC-E"]] * 2
    assert main(["lm", "evaluate", str(folder.path), "--set", f"evaluate.task_data={broken}",
                 "--set", f"evaluate.tasks={TASKS}"]) == 1  # fmt: skip
    shown, said = capsys.readouterr()
    assert [row["task"] for row in json.loads(shown)[0]["tasks"]] == ["SciQ", "ARC-E"]
    assert "error: 1 task could not be scored, the others were. PIQA: " in said
    shutil.copy(data / "piqa.validation.jsonl", broken)
    (record,) = measure.measure_run(folder, changed)
    assert [row["task"] for row in record["tasks"]] == ["SciQ", "ARC-E", "PIQA"]


def test_one_process_at_a_time_measures_a_run(run):
    folder, settings = run
    with locked(folder.path), pytest.raises(RuntimeError, match="another process"):
        measure.measure_run(folder, settings)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_tasks_are_scored_in_the_precision_of_training(data, precision, dtype):
    tokenizer = byte_tokenizer()
    model = small_llama(len(tokenizer), length=512)
    seen = []
    model.lm_head.register_forward_hook(lambda module, given, found: seen.append(found.dtype))
    evaluate_tasks(model, tokenizer, "SciQ", data=data, limit=1, precision=precision)
    assert set(seen) == {dtype}
    with pytest.raises(ValueError, match="precision must be one of 'float32', 'bf16'; got 'half'"):
        evaluate_tasks(model, tokenizer, "SciQ", data=data, precision="half")


def test_what_scoring_needs_is_missed_before_training(run, monkeypatch):
    """lm_eval is there, but not what it needs for models of transformers."""
    _, settings = run
    monkeypatch.delitem(sys.modules, "lm_eval.models.huggingface", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"pip install lm_eval accelerate .*\(.*accelerate"):
        measure.available_tasks(settings)
    monkeypatch.undo()
    harness.check_installed()


def test_a_run_that_is_none(tmp_path, run):
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        measure.measure_run(RunFolder(Path(tmp_path, "nothing")), run[1])
