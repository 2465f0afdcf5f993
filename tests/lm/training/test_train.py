"""Training runs from settings: the loop, its checkpoints, and that nothing is lost by a stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from lm_problems import markov_corpus
from lm_runs import (
    SIZES,
    SPLITS,
    assert_close_model,
    assert_same_model,
    interrupt_at,
    model_of,
)
from lm_runs import run_settings as settings
from paths import DATA
from ranks import start

from counterpoise import Reweighter
from counterpoise.common.stopping import Stopped
from counterpoise.common.toml import to_toml
from counterpoise.lm.logs import JsonlLog
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training import settings as all_settings
from counterpoise.lm.training import train as training
from counterpoise.lm.training.integrity import read_state
from counterpoise.lm.training.optimizer import learning_rate
from counterpoise.lm.training.run_folder import OPTIMIZER, RunFolder
from counterpoise.lm.training.settings import TrainSettings
from counterpoise.lm.training.train import train


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm") / "corpus"
    return markov_corpus(folder, SIZES, splits=SPLITS)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """A run that nothing stopped."""
    out = tmp_path_factory.mktemp("whole")
    return out, train(settings(corpus), out, progress=False)


def test_a_run_learns_and_tells_all_about_itself(corpus, whole):
    out, result = whole
    records = RunFolder(out).evaluations.read()
    assert [r["step"] for r in records] == [0, 4, 8, 12, 16, 20, 24]
    assert records[-1]["report"] == result["losses"]
    mean = {step: np.mean(list(records[step]["report"].values())) for step in (0, -1)}
    assert mean[0] == pytest.approx(np.log(32), abs=0.2)  # nothing is known at first
    assert mean[-1] < mean[0] - 0.1
    assert result["average_loss"] == pytest.approx(mean[-1])
    assert result["tokens"] == 24 * 8 * 16
    # shares that were given add up to what was trained on
    assert sum(records[-1]["shares"].values()) == pytest.approx(1.0)
    # the first weights come from no measurement, so the evaluation before the first step moves them
    ours = Reweighter(list(SIZES), "adaptive")
    for record in records[:2]:
        moved = ours.update(record["driving"], errors=record["driving_errors"]).tolist()
        assert list(record["weights"].values()) == moved
    assert [r["step"] for r in RunFolder(out).steps.read()] == list(range(1, 25))
    assert RunFolder(out).settings == replace(settings(corpus), out=str(out))
    (about,) = json.loads((out / "environment.json").read_text())
    assert about["packages"]["torch"] == version("torch")
    assert about["ranks"] == 1


def test_the_same_settings_give_the_same_bits(corpus, whole, tmp_path):
    train(settings(corpus), tmp_path, progress=False)
    assert_same_model(tmp_path, whole[0])


@pytest.mark.parametrize("when", [5, 8])
def test_a_stopped_run_resumes_to_the_same_bits(corpus, whole, tmp_path, when, monkeypatch):
    """A signal arrives in the middle of training, as a cluster sends one."""
    interrupt_at(monkeypatch, when)
    out = tmp_path / "run"
    with pytest.raises(Stopped, match="run the same command to resume"):
        train(settings(corpus), out, progress=False)
    assert RunFolder(out).result is None
    torch.manual_seed(99)  # whatever happened in between
    result = train(settings(corpus), out, progress=False)
    assert_same_model(out, whole[0])
    same = ("evaluations", "steps")
    for name in same:
        a, b = (getattr(RunFolder(f), name).read() for f in (out, whole[0]))
        for record in a + b:
            record.pop("seconds", None)
        assert a == b
    assert (out / "weights.jsonl").read_text() == (whole[0] / "weights.jsonl").read_text()
    assert result["weights"] == whole[1]["weights"]


def test_a_killed_run_resumes_from_its_last_checkpoint(corpus, whole, tmp_path, monkeypatch):
    """Lines that were written after the checkpoint do not stay."""
    often = settings(corpus, train={"checkpoint_every": 16 * 8 * 4, "keep": 2})
    with monkeypatch.context() as patch:
        interrupt_at(patch, 14, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            train(often, tmp_path, progress=False)
    there = [p.name for p in checkpoints.found(tmp_path / "checkpoints")]
    assert there == ["step-00000008", "step-00000012"]
    # a checkpoint that was being written is not one
    half = tmp_path / "checkpoints" / ".step-00000016.new"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    train(often, tmp_path, progress=False)
    assert_same_model(tmp_path, whole[0])
    assert [r["step"] for r in RunFolder(tmp_path).steps.read()] == list(range(1, 25))


def test_an_ended_run_is_not_repeated_and_another_is_refused(corpus, whole):
    out, result = whole
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    assert train(settings(corpus), out, progress=False) == result
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before
    with pytest.raises(ValueError, match=r"other settings \(train.seed\)"):
        train(settings(corpus, train={"seed": 1}), out, progress=False)


def test_parts_of_a_batch_add_up_to_it(corpus, whole, tmp_path):
    """Gradients that are accumulated are those of the whole batch, up to rounding."""
    parts = settings(corpus, train={"micro_batch": 2})
    train(parts, tmp_path, progress=False)
    assert_close_model(tmp_path, whole[0], atol=2e-4)


def test_activation_checkpointing_changes_no_number(corpus, whole, tmp_path):
    train(settings(corpus, train={"activation_checkpointing": True}), tmp_path, progress=False)
    assert_close_model(tmp_path, whole[0], atol=1e-5)


def test_bf16_trains(corpus, tmp_path):
    short = settings(corpus, train={"precision": "bf16", "tokens": 16 * 8 * 4})
    result = train(short, tmp_path, progress=False)
    assert np.isfinite(result["average_loss"])
    assert model_of(tmp_path)["model.norm.weight"].dtype == torch.float32


def test_the_papers_update_leaves_the_first_weights_for_the_first_samples(corpus, tmp_path):
    """The evaluation before the first step shows losses and moves nothing."""
    train(settings(corpus, reweight={"rule": "pd-kl"}), tmp_path, progress=False)
    first, second = RunFolder(tmp_path).evaluations.read()[:2]
    start = dict.fromkeys(SIZES, 1 / 3)
    assert first["weights"] == pytest.approx(start)
    assert second["weights"] != pytest.approx(start)


def test_a_checkpoint_is_a_model_that_transformers_loads(corpus, whole):
    from transformers import AutoModelForCausalLM

    out, result = whole
    model = AutoModelForCausalLM.from_pretrained(out / result["model"])
    for name, tensor in model_of(out).items():
        assert torch.equal(model.state_dict()[name], tensor)


@pytest.mark.parametrize("workers", [0, 1])
def test_weights_can_move_before_the_first_batch(corpus, tmp_path, monkeypatch, workers):
    """As in LLM-Shearing; they hold from the first sample on, and a resume is exact."""
    early = settings(
        corpus,
        reweight={"rule": "pd-kl", "update_at_start": True, "step": 40.0},
        train={"workers": workers},
    )
    train(early, tmp_path / "one", progress=False)
    first, second = RunFolder(tmp_path / "one").evaluations.read()[:2]
    ours = Reweighter(list(SIZES), step=40.0)
    moved = ours.update(first["driving"]).tolist()
    assert list(first["weights"].values()) == moved
    assert max(moved) > 0.8
    assert list(second["shares"].values()) == pytest.approx(moved, abs=0.1)
    log = JsonlLog(tmp_path / "one" / "weights.jsonl").read()
    assert [r["step"] for r in log] == [0, 4, 8, 12, 16, 20, 24]
    interrupt_at(monkeypatch, 5)
    with pytest.raises(Stopped):
        train(early, tmp_path / "two", progress=False)
    train(early, tmp_path / "two", progress=False)
    assert_same_model(tmp_path / "one", tmp_path / "two")


def test_losses_of_batches_and_weights_on_the_loss(corpus, tmp_path):
    """A proxy that starts as its reference has no excess loss; its weights begin to move when the
    two differ, and samples are drawn by the prior all along."""
    first = settings(corpus, reweight={"rule": "static"})
    train(first, tmp_path / "reference", progress=False)
    reference = str(tmp_path / "reference" / RunFolder(tmp_path / "reference").result["model"])
    proxy = settings(
        corpus,
        reweight={
            "rule": "doremi", "losses": "batches", "weigh": "loss", "reference_model": reference,
        },
    )  # fmt: skip
    result = train(proxy, tmp_path / "proxy", progress=False)
    log = JsonlLog(tmp_path / "proxy" / "weights.jsonl").read()
    assert [r["update"] for r in log] == list(range(1, 25))  # every step
    assert all(d["excess"] is None or d["excess"] >= 0 for r in log for d in r["domains"].values())
    # an untrained model is worse than the reference on nearly every token
    assert any((log[0]["domains"][n]["excess"] or 0) > 0.05 for n in SIZES)
    assert sum(result["average_weights"].values()) == pytest.approx(1.0)
    assert result["average_weights"] != pytest.approx(dict.fromkeys(SIZES, 1 / 3), abs=1e-4)
    # the same model as its own reference: nothing moves
    same = settings(
        corpus,
        model={"checkpoint": reference},
        train={"tokens": 16 * 8},
        reweight={
            "rule": "doremi", "losses": "batches", "weigh": "loss", "reference_model": reference,
        },
    )  # fmt: skip
    still = train(same, tmp_path / "same", progress=False)
    assert still["weights"] == pytest.approx(dict.fromkeys(SIZES, 1 / 3), abs=1e-9)


def test_weights_on_the_loss_make_the_gradient_of_the_weighted_mean(corpus, tmp_path):
    """With one sequence a step, the gradient is the weight's multiple of the plain one."""
    one = {"tokens": 16, "batch": 1, "clip": 1e9, "evaluate_every": 16}
    runs = {}
    for name, first in (("plain", None), ("weighed", {"x": 0.8, "y": 0.1, "z": 0.1})):
        chosen = {"rule": "static", "weigh": "loss"} | ({"start": first} if first else {})
        train(settings(corpus, train=one, reweight=chosen), tmp_path / name, progress=False)
        runs[name] = RunFolder(tmp_path / name).steps.read()[0]
    first = RunFolder(tmp_path / "plain").evaluations.read()[-1]["shares"]
    drawn = max(first, key=first.get)
    ratio = {"x": 0.8, "y": 0.1, "z": 0.1}[drawn] * 3
    assert runs["weighed"]["norm"] == pytest.approx(ratio * runs["plain"]["norm"], rel=1e-4)
    assert runs["weighed"]["loss"] == pytest.approx(runs["plain"]["loss"])


def test_rates_follow_a_line_and_a_cosine():
    plan = TrainSettings(
        tokens=100 * 8, length=8, batch=1, learning_rate=2.0, warmup=0.1, final=0.1
    )
    rates = [learning_rate(plan, step) for step in range(plan.steps)]
    assert rates[:10] == pytest.approx([2.0 * (i + 1) / 10 for i in range(10)])
    assert rates[54] == pytest.approx(0.5 * (2.0 + 0.2))  # half way down
    assert rates[-1] == pytest.approx(0.2)
    assert max(np.diff(rates[10:])) <= 0
    longer = replace(plan, schedule_tokens=1000 * 8)  # of which this is the first tenth
    assert [learning_rate(longer, step) for step in range(100)] == pytest.approx(
        [2.0 * (i + 1) / 100 for i in range(100)]
    )
    shorter = replace(plan, schedule_tokens=50 * 8)
    assert learning_rate(shorter, 49) == learning_rate(shorter, 99) == pytest.approx(0.2)
    flat = TrainSettings(tokens=800, length=8, batch=1, schedule="constant", warmup=0.0)
    assert {learning_rate(flat, step) for step in range(100)} == {1e-3}


def test_a_loss_that_is_not_finite_stops_the_run(corpus, tmp_path):
    wild = settings(corpus, train={"learning_rate": 1e30, "clip": 1e30})
    with pytest.raises(FloatingPointError, match=r"lower train\.learning_rate"):
        train(wild, tmp_path, progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"batch": 9, "micro_batch": 2}}, "train.batch=9 must be a multiple"),
        ({"corpus": {"domains": ["x", "w"]}}, r"corpus.domains names \['w'\]"),
        ({"reweight": {"options": {"heat": 1.0}}}, "are not those of the rule 'adaptive'"),
        ({"reweight": {"step": 2.0}}, "step=2.0 has no effect on the rule 'adaptive'"),
        ({"references": {"losses": {"x": 1.0}}}, r"no reference loss for \['y', 'z'\]"),
        ({"references": {"file": "nowhere.json"}}, "run `counterpoise lm references`"),
        ({"references": {"model": "m"}}, "references.file must be set"),
        ({"reweight": {"prior": {"x": 0.5, "y": 0.1, "z": 0.1}}}, "sum to 0.7"),
    ],
)
def test_settings_that_do_not_fit_are_refused(corpus, tmp_path, changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(settings(corpus, **changes), tmp_path, progress=False)


def test_a_signal_in_the_last_step_lets_the_run_end(corpus, whole, tmp_path, monkeypatch):
    interrupt_at(monkeypatch, 24)
    small = settings(corpus, train={"save_optimizer": False})
    assert train(small, tmp_path, progress=False)["losses"] == whole[1]["losses"]
    assert not list(tmp_path.rglob(OPTIMIZER))


def test_a_kill_between_the_last_checkpoint_and_the_result(corpus, whole, tmp_path, monkeypatch):
    """The model is there, its optimizer is not, and nothing is left to train."""
    small = settings(corpus, train={"save_optimizer": False})
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(small, tmp_path, progress=False)
    assert RunFolder(tmp_path).result is None
    result = train(small, tmp_path, progress=False)
    assert result["losses"] == whole[1]["losses"]
    assert result["average_weights"] == whole[1]["average_weights"]


def test_a_signal_when_a_checkpoint_is_due_saves_it_once(corpus, whole, tmp_path, monkeypatch):
    saved = []
    writing = checkpoints._plain_config
    monkeypatch.setattr(checkpoints, "_plain_config", lambda m: saved.append(1) or writing(m))
    interrupt_at(monkeypatch, 8)
    often = settings(corpus, train={"checkpoint_every": 16 * 8 * 8})
    with pytest.raises(Stopped):
        train(often, tmp_path, progress=False)
    assert len(saved) == 1
    # half of a checkpoint is none
    half = tmp_path / "checkpoints" / "step-00000099"
    half.mkdir()
    (half / "state.json").write_text("{}")
    train(often, tmp_path, progress=False)
    assert_same_model(tmp_path, whole[0])


def test_a_stop_takes_no_place_of_the_checkpoints_that_are_kept(corpus, tmp_path, monkeypatch):
    """Of every eighth step two are kept, wherever the run was stopped in between."""
    often = settings(corpus, train={"checkpoint_every": 16 * 8 * 8, "keep": 2})
    steps = []
    for step in (11, 19):
        with monkeypatch.context() as patch:
            interrupt_at(patch, step)
            with pytest.raises(Stopped):
                train(often, tmp_path, progress=False)
        steps.append([p.name[-2:] for p in checkpoints.found(tmp_path / "checkpoints")])
    train(often, tmp_path, progress=False)
    steps.append([p.name[-2:] for p in checkpoints.found(tmp_path / "checkpoints")])
    assert steps == [["08", "11"], ["08", "16", "19"], ["16", "24"]]


def test_checkpoints_stay_when_others_are_asked_for_later(corpus, tmp_path, monkeypatch):
    often = settings(corpus, train={"checkpoint_every": 16 * 8 * 5, "keep": 9})
    with monkeypatch.context() as patch:
        interrupt_at(patch, 11)
        with pytest.raises(Stopped):
            train(often, tmp_path, progress=False)
    train(
        settings(corpus, train={"checkpoint_every": 16 * 8 * 12, "keep": 9}),
        tmp_path,
        progress=False,
    )
    left = [p.name[-2:] for p in checkpoints.found(tmp_path / "checkpoints")]
    assert left == ["05", "10", "12", "24"]


@pytest.mark.slow
def test_workers_survive_a_signal_to_all_processes(corpus, tmp_path):
    """As a cluster sends it: to every process of the group."""
    chosen = settings(corpus, train={"workers": 1, "tokens": 16 * 8 * 4000})
    file, out = tmp_path / "c.toml", tmp_path / "run"
    file.write_text(to_toml(chosen.table))
    command = [sys.executable, "-m", "counterpoise", "lm", "train", str(file), "--out", str(out)]
    with ExitStack() as stack:
        process = start(stack, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 100
        while len(RunFolder(out).steps.read()) < 5:
            assert process.poll() is None, process.stderr.read().decode()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 75, said.decode()[-2000:]
    assert b"run the same command to resume" in said
    (saved,) = checkpoints.found(out / "checkpoints")
    assert read_state(saved)["step"] >= 5


def test_one_process_at_a_time_has_a_folder(corpus, tmp_path, monkeypatch):
    advance = training.Trainer.advance

    def twice(self):
        if self.step == 2:
            with pytest.raises(RuntimeError, match="is writing to"):
                train(settings(corpus), tmp_path, progress=False)
        advance(self)

    monkeypatch.setattr(training.Trainer, "advance", twice)
    train(settings(corpus), tmp_path, progress=False)
    assert [r["step"] for r in RunFolder(tmp_path).steps.read()] == list(range(1, 25))


def test_other_files_behind_the_same_names_are_another_run(tmp_path):
    corpus = markov_corpus(tmp_path / "c", SIZES, splits=SPLITS)
    losses = tmp_path / "r.json"
    table = {"format": "counterpoise references", "version": 1, "losses": dict.fromkeys(SIZES, 1.0)}
    losses.write_text(json.dumps(table))
    chosen = settings(corpus, references={"file": str(losses)})
    train(chosen, tmp_path / "run", progress=False)
    losses.write_text(json.dumps(table | {"losses": dict.fromkeys(SIZES, 2.0)}))
    with pytest.raises(ValueError, match="used other files: references changed"):
        train(chosen, tmp_path / "run", progress=False)
    losses.write_text(json.dumps(table))
    shutil.rmtree(tmp_path / "c")
    markov_corpus(tmp_path / "c", SIZES, splits=SPLITS, seed=1)
    with pytest.raises(ValueError, match="used other files: corpus changed"):
        train(chosen, tmp_path / "run", progress=False)


def test_a_refused_setting_leaves_no_folder_behind(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"train\.batch=9 must be a multiple"):
        train(settings(corpus, train={"batch": 9, "micro_batch": 2}), tmp_path, progress=False)
    train(settings(corpus, train={"tokens": 16 * 8}), tmp_path, progress=False)


def test_held_out_losses_that_are_not_finite_stop_the_run(corpus, tmp_path, monkeypatch):
    step = torch.optim.AdamW.step

    def broken(self, *args):
        step(self, *args)
        with torch.no_grad():
            self.param_groups[0]["params"][0].fill_(float("nan"))

    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    short = settings(corpus, train={"tokens": 16 * 8})
    with pytest.raises(FloatingPointError, match="held-out losses are"):
        train(short, tmp_path, progress=False)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("failing", ["make_optimizer", "domain_losses"])
def test_an_error_at_the_start_releases_the_model(corpus, tmp_path, monkeypatch, failing):
    """Whatever was made by then; it must not outlive the process group."""
    started = []
    start = training.Trainer.start

    def spied(self):
        started.append(self)
        start(self)

    def broken(*args, **kwargs):
        assert started[0].model is not None
        raise OSError("broken")

    monkeypatch.setattr(training.Trainer, "start", spied)
    monkeypatch.setattr(training, failing, broken)
    with pytest.raises(OSError, match="broken"):
        train(settings(corpus), tmp_path, progress=False)
    kept = {"model", "optimizer", "loader", "batches"} & vars(started[0]).keys()
    assert not kept


def test_a_checkpoint_without_its_optimizer_is_refused_unread(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        with pytest.raises(Stopped):
            train(settings(corpus), tmp_path, progress=False)
    (last,) = checkpoints.found(tmp_path / "checkpoints")
    (last / OPTIMIZER).unlink()
    monkeypatch.setattr(checkpoints, "restore", lambda *args: pytest.fail("restored"))
    with pytest.raises(ValueError, match="holds no optimizer"):
        train(settings(corpus), tmp_path, progress=False)


def test_checkpoints_describe_themselves(corpus, tmp_path):
    train(
        settings(corpus, train={"keep": 9, "checkpoint_every": 16 * 8 * 8}),
        tmp_path,
        progress=False,
    )
    there = checkpoints.found(tmp_path / "checkpoints")
    assert len(there) == 3
    for path in there:
        config = json.loads((path / "config.json").read_text())
        assert config["architectures"] == ["LlamaForCausalLM"]
        assert config["use_cache"] is True


def test_every_start_is_written_down(corpus, tmp_path, monkeypatch):
    interrupt_at(monkeypatch, 6, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train(settings(corpus), tmp_path, progress=False)
    train(settings(corpus), tmp_path, progress=False)
    assert len(json.loads((tmp_path / "environment.json").read_text())) == 2
    # the first start left no checkpoint: its updates are not another run's
    assert [p.name for p in tmp_path.glob("weights*")] == ["weights.jsonl"]
    assert [r["update"] for r in JsonlLog(tmp_path / "weights.jsonl").read()] == list(range(1, 8))


def test_a_model_must_know_the_tokens_of_the_corpus(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"model\.vocab_size=8 is less than the 32 tokens"):
        train(settings(corpus, model={"vocab_size": 8}), tmp_path, progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"length": 1}}, "train.length must be a whole number >= 2"),
        ({"evaluate": {"sequences": -3}}, "evaluate.sequences must be a whole number"),
        ({"evaluate": {"task_limit": -1}}, "evaluate.task_limit must be a whole number"),
        ({"evaluate": {"report": "train"}}, "evaluate.report='train' is trained on"),
        ({"evaluate": {"report": "validation"}}, "cannot be reported as held out"),
        ({"references": {"tokens": -3}}, "references.tokens must be a whole number"),
        (
            {
                "reweight": {"rule": "doremi", "losses": "batches", "reference_model": "m"},
                "references": {"losses": {"x": 1.0}},
            },
            "would both be subtracted",
        ),
        ({"reweight": {"reference_model": "m"}}, "compares the tokens of batches"),
        (
            {"reweight": {"losses": "batches", "update_at_start": True}},
            "moves them by batches alone",
        ),
        ({"reweight": {"losses": "batches"}}, "single batches are too noisy for that"),
        ({"train": {"timeout": 0}}, r"train\.timeout must be above 0; got 0"),
    ],
)
def test_settings_that_make_no_sense(corpus, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(corpus, **changes)


def test_no_setting_is_lost_by_being_none():
    """None is not written, so that it must be what is read when nothing is."""
    for kind in vars(all_settings).values():
        if isinstance(kind, type) and is_dataclass(kind):
            for field in fields(kind):
                if "None" in str(field.type):
                    assert field.default is None, (kind.__name__, field.name)


@pytest.mark.parametrize("weigh", ["samples", "loss"])
def test_a_run_of_release_0_1_resumes(tmp_path, monkeypatch, weigh):
    """Its checkpoint at step 4 of 8 was written by 0.1, and so was the expected end."""
    shutil.copytree(DATA / "run-0.1", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)  # the corpus is named relative to it
    run = RunFolder(Path(weigh))
    found = train(run.settings, run.path, progress=False)
    expected = json.loads(Path(weigh, "expected.json").read_text())
    for name in ("losses", "driving_losses", "weights", "average_weights"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name
    assert [r["step"] for r in run.steps.read()] == list(range(1, 9))
    last = json.loads((run.path / found["model"] / "state.json").read_text())
    assert last["version"] == 3
    assert "steering" not in last  # the mixture is saved once


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 9}, "version 9; this release reads versions 1 to 3.*install a newer one"),
        ({"format": "other"}, "is not a checkpoint of a run"),
    ],
)
def test_other_checkpoints_are_refused(tmp_path, changes, message):
    state = DATA / "run-0.1" / "samples" / "checkpoints" / "step-00000004" / "state.json"
    (tmp_path / "state.json").write_text(json.dumps(json.loads(state.read_text()) | changes))
    with pytest.raises(ValueError, match=message):
        read_state(tmp_path)
