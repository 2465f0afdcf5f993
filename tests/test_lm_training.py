"""Training runs from settings: the loop, its checkpoints, and that nothing is lost by a stop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lm_problems import markov_corpus
from safetensors.torch import load_file

from counterpoise.lm.logs import JsonlLog
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training import train as training
from counterpoise.lm.training.folder import RunFolder
from counterpoise.lm.training.optimizer import learning_rate
from counterpoise.lm.training.settings import Settings, TrainSettings
from counterpoise.lm.training.stopping import Stopped
from counterpoise.lm.training.train import train
from counterpoise.tables import build, to_toml

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
    assert RunFolder(out).settings == settings(corpus)
    about = json.loads((out / "environment.json").read_text())
    assert (
        about["packages"]["torch"] == torch.__version__.split("+")[0] or about["packages"]["torch"]
    )
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
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", "2", "-m", "counterpoise", "lm", "train", str(file), "--out", str(out),
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
