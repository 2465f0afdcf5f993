"""Training runs from settings: the loop, its checkpoints, and that nothing is lost by a stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from lm_problems import markov_corpus
from safetensors.torch import load_file

from counterpoise.common.stopping import Stopped
from counterpoise.common.toml import build, to_toml
from counterpoise.lm.logs import JsonlLog
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training import settings as all_settings
from counterpoise.lm.training import train as training
from counterpoise.lm.training.optimizer import learning_rate
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import Settings, TrainSettings
from counterpoise.lm.training.train import train

SIZES = {"x": 6000, "y": 3000, "z": 1500}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm") / "corpus"
    return markov_corpus(folder, SIZES, splits=("train", "validation", "test"))


def table(corpus, /, **changes):
    found = {
        "corpus": {"folder": str(corpus.folder)},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {
            "tokens": 16 * 8 * 24, "length": 16, "batch": 8, "learning_rate": 0.01,
            "evaluate_every": 16 * 8 * 4, "threads": 1,
        },
        "evaluate": {"sequences": 8},
    }  # fmt: skip
    for name, inner in changes.items():
        found[name] = {**found.get(name, {}), **inner}
    return found


def settings(corpus, /, **changes):
    return build(Settings, table(corpus, **changes))


def model_of(folder):
    result = RunFolder(Path(folder)).result
    return load_file(Path(folder) / result["model"] / checkpoints.MODEL)


def assert_same_model(one, other):
    a, b = model_of(one), model_of(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


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
    # the evaluation before the first step shows losses and moves nothing
    start = dict.fromkeys(SIZES, 1 / 3)
    assert records[0]["weights"] == pytest.approx(start)
    assert records[1]["weights"] != pytest.approx(start)
    assert [r["step"] for r in RunFolder(out).steps.read()] == list(range(1, 25))
    assert RunFolder(out).settings == replace(settings(corpus), out=str(out))
    (about,) = json.loads((out / "environment.json").read_text())
    assert about["packages"]["torch"] == version("torch")
    assert about["ranks"] == 1


def test_the_same_settings_give_the_same_bits(corpus, whole, tmp_path):
    train(settings(corpus), tmp_path, progress=False)
    assert_same_model(tmp_path, whole[0])


@pytest.mark.parametrize("when", [5, 8, 23])
def test_a_stopped_run_goes_on_to_the_same_bits(corpus, whole, tmp_path, when, monkeypatch):
    """A signal comes in the middle of training, as a cluster sends one."""
    advance = training.Run.advance

    def interrupted(self):
        advance(self)
        if self.step == when and not (tmp_path / "told").exists():
            (tmp_path / "told").touch()
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training.Run, "advance", interrupted)
    out = tmp_path / "run"
    with pytest.raises(Stopped, match="the same call goes on"):
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


def test_a_killed_run_goes_on_from_its_last_checkpoint(corpus, whole, tmp_path, monkeypatch):
    """Lines that were written after the checkpoint do not stay."""
    advance = training.Run.advance

    def killed(self):
        if self.step == 13:
            raise KeyboardInterrupt
        advance(self)

    often = settings(corpus, train={"checkpoint_every": 16 * 8 * 4, "keep": 2})
    with monkeypatch.context() as patch:
        patch.setattr(training.Run, "advance", killed)
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
    a, b = model_of(tmp_path), model_of(whole[0])
    for name in a:
        assert torch.allclose(a[name], b[name], atol=2e-4), name


def test_activation_checkpointing_changes_no_number(corpus, whole, tmp_path):
    train(settings(corpus, train={"activation_checkpointing": True}), tmp_path, progress=False)
    a, b = model_of(tmp_path), model_of(whole[0])
    for name in a:
        assert torch.allclose(a[name], b[name], atol=1e-5), name


def test_bf16_trains(corpus, tmp_path):
    short = settings(corpus, train={"precision": "bf16", "tokens": 16 * 8 * 4})
    result = train(short, tmp_path, progress=False)
    assert np.isfinite(result["average_loss"])
    assert model_of(tmp_path)["model.norm.weight"].dtype == torch.float32


def test_a_checkpoint_is_a_model_that_transformers_loads(corpus, whole):
    from transformers import AutoModelForCausalLM

    out, result = whole
    model = AutoModelForCausalLM.from_pretrained(out / result["model"])
    for name, tensor in model_of(out).items():
        assert torch.equal(model.state_dict()[name], tensor)


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
    for name, start in (("plain", None), ("weighed", {"x": 0.8, "y": 0.1, "z": 0.1})):
        chosen = {"rule": "static", "weigh": "loss"} | ({"start": start} if start else {})
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
        ({"reweight": {"options": {"heat": 1.0}}}, "are not those of the rule 'pd-kl'"),
        ({"references": {"losses": {"x": 1.0}}}, r"no reference loss for \['y', 'z'\]"),
        ({"references": {"file": "nowhere.json"}}, "run `counterpoise lm references`"),
        ({"references": {"model": "m"}}, "references.file must be set"),
        ({"reweight": {"prior": {"x": 0.5, "y": 0.1, "z": 0.1}}}, "sum to 0.7"),
    ],
)
def test_settings_that_do_not_fit_are_refused(corpus, tmp_path, changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(settings(corpus, **changes), tmp_path, progress=False)


def start_ranks(corpus, out, parallel, **changes):
    """Two processes through torchrun and the command line."""
    file = out.with_suffix(".toml")
    chosen = {"parallel": parallel, "checkpoint_every": 16 * 8 * 8, **changes}
    file.write_text(to_toml(settings(corpus, train=chosen).table))
    return two_ranks("train", str(file), "--out", str(out))


def two_ranks(*words):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", "2", "-m", "counterpoise", "lm", *words,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.xdist_group("two processes")
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_train_as_one_and_resume(corpus, whole, tmp_path, parallel):
    out = tmp_path / parallel
    done = start_ranks(corpus, out, parallel)
    assert done.returncode == 0, done.stderr[-3000:]
    a, b = model_of(out), model_of(whole[0])
    assert a.keys() == b.keys()
    for name in a:
        assert torch.allclose(a[name], b[name], atol=5e-4), name
    ours = RunFolder(out).evaluations.read()
    theirs = RunFolder(whole[0]).evaluations.read()
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["report"] == pytest.approx(other["report"], abs=2e-3)
        assert mine["shares"] == other["shares"]
    # from the checkpoint at step 16 on, once more
    half = tmp_path / "half"
    half.mkdir()
    short = start_ranks(corpus, half / "run", parallel, keep=9)
    assert short.returncode == 0, short.stderr[-3000:]
    (half / "run" / "result.json").unlink()
    last = RunFolder(half / "run").checkpoints / "step-00000024"
    for path in last.iterdir():
        path.unlink()
    last.rmdir()
    again = start_ranks(corpus, half / "run", parallel, keep=9)
    assert again.returncode == 0, again.stderr[-3000:]
    assert_same_model(half / "run", out)


@pytest.mark.xdist_group("two processes")
def test_two_ranks_find_references(corpus, tmp_path):
    """They train a model and measure it three times over."""
    file = tmp_path / "c.toml"
    asked = {"file": str(tmp_path / "r.json"), "model": "train", "tokens": 16 * 8 * 2}
    chosen = settings(corpus, references=asked, evaluate={"final": 12})
    file.write_text(to_toml(replace(chosen, out=str(tmp_path / "out")).table))
    done = two_ranks("references", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "r.json").read_text())
    assert json.loads(done.stdout) == found["losses"]
    assert found["final"]["of"] == {"split": "test", "sequences": 12, "length": 16}
    ended = RunFolder(tmp_path / "out" / "references" / "model").result
    assert found["reported"]["losses"] == pytest.approx(ended["losses"], rel=1e-5)


def stop_at(monkeypatch, step, kind):
    """Have a run stopped, or its process as good as killed, after a step."""
    advance = training.Run.advance
    told = []

    def interrupted(self):
        advance(self)
        if self.step == step and not told:
            told.append(step)
            if kind is not None:
                raise kind
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training.Run, "advance", interrupted)


def test_a_signal_in_the_last_step_lets_the_run_end(corpus, whole, tmp_path, monkeypatch):
    stop_at(monkeypatch, 24, None)
    small = settings(corpus, train={"save_optimizer": False})
    assert train(small, tmp_path, progress=False)["losses"] == whole[1]["losses"]
    assert not list(tmp_path.rglob(checkpoints.OPTIMIZER))


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
    stop_at(monkeypatch, 8, None)
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
            stop_at(patch, step, None)
            with pytest.raises(Stopped):
                train(often, tmp_path, progress=False)
        steps.append([p.name[-2:] for p in checkpoints.found(tmp_path / "checkpoints")])
    train(often, tmp_path, progress=False)
    steps.append([p.name[-2:] for p in checkpoints.found(tmp_path / "checkpoints")])
    assert steps == [["08", "11"], ["08", "16", "19"], ["16", "24"]]


def test_checkpoints_stay_when_others_are_asked_for_later(corpus, tmp_path, monkeypatch):
    often = settings(corpus, train={"checkpoint_every": 16 * 8 * 5, "keep": 9})
    with monkeypatch.context() as patch:
        stop_at(patch, 11, None)
        with pytest.raises(Stopped):
            train(often, tmp_path, progress=False)
    train(
        settings(corpus, train={"checkpoint_every": 16 * 8 * 12, "keep": 9}),
        tmp_path,
        progress=False,
    )
    left = [p.name[-2:] for p in checkpoints.found(tmp_path / "checkpoints")]
    assert left == ["05", "10", "12", "24"]


def test_workers_do_not_die_of_a_signal_to_all(corpus, tmp_path):
    """As a cluster sends it: to every process of the group."""
    chosen = settings(corpus, train={"workers": 1, "tokens": 16 * 8 * 4000})
    file = tmp_path / "c.toml"
    file.write_text(to_toml(chosen.table))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "counterpoise", "lm", "train", str(file), "--out", str(out)]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while len(RunFolder(out).steps.read()) < 5:
        assert process.poll() is None, process.stderr.read().decode()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 75, said.decode()[-2000:]
    assert b"the same call goes on" in said
    (saved,) = checkpoints.found(out / "checkpoints")
    assert checkpoints.read_state(saved)["step"] >= 5


def test_one_process_at_a_time_has_a_folder(corpus, tmp_path, monkeypatch):
    advance = training.Run.advance

    def twice(self):
        if self.step == 2:
            with pytest.raises(RuntimeError, match="is writing to"):
                train(settings(corpus), tmp_path, progress=False)
        advance(self)

    monkeypatch.setattr(training.Run, "advance", twice)
    train(settings(corpus), tmp_path, progress=False)
    assert [r["step"] for r in RunFolder(tmp_path).steps.read()] == list(range(1, 25))


def test_other_files_behind_the_same_names_are_another_run(tmp_path):
    names = ("train", "validation", "test")
    corpus = markov_corpus(tmp_path / "c", SIZES, splits=names)
    losses = tmp_path / "r.json"
    table = {"format": "counterpoise references", "version": 1, "losses": dict.fromkeys(SIZES, 1.0)}
    losses.write_text(json.dumps(table))
    chosen = settings(corpus, references={"file": str(losses)})
    train(chosen, tmp_path / "run", progress=False)
    losses.write_text(json.dumps(table | {"losses": dict.fromkeys(SIZES, 2.0)}))
    with pytest.raises(ValueError, match="a run with another references than there is now"):
        train(chosen, tmp_path / "run", progress=False)
    losses.write_text(json.dumps(table))
    shutil.rmtree(tmp_path / "c")
    markov_corpus(tmp_path / "c", SIZES, splits=names, seed=1)
    with pytest.raises(ValueError, match="a run with another corpus than there is now"):
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
    stop_at(monkeypatch, 6, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train(settings(corpus), tmp_path, progress=False)
    train(settings(corpus), tmp_path, progress=False)
    assert len(json.loads((tmp_path / "environment.json").read_text())) == 2
    # the first start left no checkpoint: its updates are not another run's
    assert [p.name for p in tmp_path.glob("weights*")] == ["weights.jsonl"]
    assert [r["update"] for r in JsonlLog(tmp_path / "weights.jsonl").read()] == list(range(1, 7))


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
                "reweight": {"losses": "batches", "reference_model": "m"},
                "references": {"losses": {"x": 1.0}},
            },
            "would both be subtracted",
        ),
        ({"reweight": {"reference_model": "m"}}, "compares the tokens of batches"),
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
