"""Estimates of runs: parameters, bytes and operations against those of real models."""

import json
from dataclasses import replace

import pytest
import torch
from lm_memory import peak_bytes, peak_of_evaluation, saved_bytes
from lm_problems import markov_corpus
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaForCausalLM

from counterpoise.common.toml import build
from counterpoise.lm.evaluate import held_out
from counterpoise.lm.training import calibrate, checkpoints
from counterpoise.lm.training.devices import DEVICES, Device, get_device
from counterpoise.lm.training.estimate import estimate, evaluations_of
from counterpoise.lm.training.losses import token_losses
from counterpoise.lm.training.model import llama_config, recompute_activations
from counterpoise.lm.training.rank_memory import rank_memory
from counterpoise.lm.training.ranks import Process
from counterpoise.lm.training.settings import Settings, TrainSettings
from counterpoise.lm.training.shape import shape_of
from counterpoise.lm.training.train import make_optimizer, train

SHAPES = {
    "plain": {"hidden_size": 64, "intermediate_size": 176, "layers": 3, "heads": 4},
    "grouped": {"hidden_size": 48, "layers": 2, "heads": 6, "kv_heads": 2},
    "untied": {"hidden_size": 32, "layers": 2, "heads": 2, "tie_embeddings": False},
}


def settings(tmp_path, /, **changes):
    found = {
        "corpus": {"folder": str(tmp_path / "corpus"), "domains": ["x", "y", "z"]},
        "model": {"vocab_size": 200, **SHAPES["plain"]},
        "train": {"tokens": 32 * 8 * 10, "length": 32, "batch": 8, "evaluate_every": 32 * 8 * 4},
        "evaluate": {"sequences": 8, "batch": 4},
    }
    for name, inner in changes.items():
        found[name] = {**found.get(name, {}), **inner}
    return build(Settings, found)


def model_of(given, *, checkpointing=False, bf16=False):
    torch.manual_seed(0)
    model = LlamaForCausalLM(llama_config(given, given.model.vocab_size)).train()
    model.config.use_cache = False
    if checkpointing:
        recompute_activations(model)
    return model.bfloat16() if bf16 else model


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_those_of_the_model(tmp_path, name):
    given = settings(tmp_path, model={"kv_heads": None, **SHAPES[name]})
    found, m = estimate(given), given.model
    h, V, i = m.hidden_size, 200, m.intermediate_size or 8 * -(-m.hidden_size * 8 // 24)
    kv = (m.kv_heads or m.heads) * h // m.heads
    block = 2 * h * h + 2 * h * kv + 3 * h * i + 2 * h
    embeddings = (1 if m.tie_embeddings else 2) * V * h
    assert found.shape.parameters == embeddings + m.layers * block + h
    assert found.shape.parameters == sum(p.numel() for p in model_of(given).parameters())
    about = found.as_dict()
    assert about["non_embedding_parameters"] == m.layers * block + h
    assert found.shape.multiplied == m.layers * (block - 2 * h) + V * h


def test_weights_gradients_and_moments_to_the_byte(tmp_path):
    given = settings(tmp_path)
    model = model_of(given)
    optimizer = make_optimizer(model, given.train, Process(torch.device("cpu")))
    token_losses(model, torch.randint(200, (2, 32))).mean().backward()
    optimizer.step()
    found = estimate(given).memory
    assert found.weights == sum(p.nbytes for p in model.parameters())
    assert found.gradients == sum(p.grad.nbytes for p in model.parameters())
    moments = [s[key] for s in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    assert found.moments == sum(m.nbytes for m in moments)


def test_ranks_share_what_fsdp_shards_and_repeat_what_ddp_does(tmp_path):
    given = settings(tmp_path)
    P = shape_of(given).parameters
    one = estimate(given).memory
    ddp = estimate(given, ranks=4).memory
    assert (ddp.weights, ddp.moments) == (one.weights, one.moments) == (4 * P, 8 * P)
    assert ddp.gradients == 8 * P  # and the buckets that travel
    assert ddp.activations == one.activations / 4
    chosen = replace(given.train, parallel="fsdp")
    fsdp = estimate(replace(given, train=chosen), ranks=4).memory
    assert (fsdp.weights, fsdp.moments, fsdp.gradients) == (P, 2 * P, P)
    # parts of a batch are added up before they travel
    parts = estimate(replace(given, train=replace(chosen, micro_batch=1)), ranks=4).memory
    assert parts.gradients == P + 4 * P
    assert parts.logits == fsdp.logits / 2
    alone = estimate(replace(given, train=chosen)).memory
    assert alone == one  # one rank has nothing to shard


# float32; autocast, as on one rank or with DDP; parameters in bf16, as FSDP gives them
WAYS = {"float32": (False, False), "autocast": (True, False), "sharded": (True, True)}


@pytest.fixture(params=[(way, again) for way in WAYS for again in (False, True)], ids=str)
def measured(request, tmp_path):
    """A model, a batch for it, and the estimate that should tell what it takes."""
    way, again = request.param
    half, sharded = WAYS[way]
    model = {"vocab_size": 1000, "kv_heads": 2, "tie_embeddings": False}
    plan = {"batch": 8, "micro_batch": 4, "length": 64, "tokens": 512}
    given = settings(
        tmp_path,
        model={**SHAPES["plain"], **model},
        train={
            **plan, "precision": "bf16" if half else "float32", "activation_checkpointing": again,
            "parallel": "fsdp" if sharded else "ddp", "batch": 16 if sharded else 8, "tokens": 2048,
        },
    )  # fmt: skip
    found = rank_memory(shape_of(given), given.train, 2 if sharded else 1, 4)
    torch.manual_seed(0)
    ids = torch.randint(1000, (4, 64))
    return model_of(given, checkpointing=again, bf16=sharded), ids, half, found, given


def test_saved_tensors_are_as_many_bytes_as_foretold(measured):
    model, ids, half, found, given = measured
    logs = 4 * ids.numel() * 1000  # the softmax of the logits
    expected = found.activations + logs
    if (
        half and given.train.parallel == "ddp"
    ):  # and weights in bf16, but those of blocks made again
        again = given.train.activation_checkpointing
        expected += 2 * (1000 * 64 if again else shape_of(given).multiplied)
    assert saved_bytes(model, ids, half) == pytest.approx(expected, rel=0.05)


def test_the_most_bytes_at_one_time_are_as_foretold(measured):
    model, ids, half, found, given = measured
    copies = found.copies
    if given.train.parallel == "fsdp":  # this model is not gathered from anywhere
        copies = 2 * 1000 * 64
    expected = copies + found.activations + max(found.logits, found.recomputed)
    assert peak_bytes(model, ids, half) == pytest.approx(expected, rel=0.15)
    once = peak_of_evaluation(model.eval(), ids, half)
    assert 0.7 * found.evaluation <= once <= 1.1 * found.evaluation


@pytest.mark.parametrize("again", [False, True])
def test_operations_are_those_that_torch_counts(tmp_path, again):
    given = settings(
        tmp_path,
        model={"kv_heads": 2},
        train={"activation_checkpointing": again, "tokens": 256, "evaluate_every": 256},
    )
    model, ids = model_of(given, checkpointing=again), torch.randint(200, (8, 32))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        token_losses(model, ids).mean().backward()
    found = estimate(given)
    # The head and the last matrix of every block are not made again, as nothing needs their output.
    spared = 2 * ids.numel() * (200 * 64 + 3 * 64 * 176) if again else 0
    assert found.flops - spared == pytest.approx(counter.get_total_flops(), rel=1e-3)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        token_losses(model, ids)
    per_token = found.evaluation_flops / found.evaluated_tokens
    assert per_token * ids.numel() == pytest.approx(counter.get_total_flops(), rel=1e-3)


def test_operations_in_closed_form(tmp_path):
    found = estimate(settings(tmp_path))
    h, i, V, L, layers = 64, 176, 200, 32, 3
    N = layers * (4 * h * h + 3 * h * i) + V * h
    assert found.flops == 10 * 8 * L * (6 * N + 12 * layers * h * L)
    assert found.evaluations == 4  # before the first step, after 4, 8 and 10
    assert found.evaluated_tokens == 4 * 2 * 3 * 8 * L
    assert found.evaluation_flops == found.evaluated_tokens * (2 * N + 4 * layers * h * L)
    plan = settings(tmp_path, train={"activation_checkpointing": True})
    assert estimate(plan).flops == pytest.approx(4 / 3 * found.flops)


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (10, 4), (12, 4), (24, 5), (7, 100)])
def test_evaluations_are_counted_as_the_loop_makes_them(steps, every):
    plan = TrainSettings(tokens=steps * 8, length=8, batch=1, evaluate_every=every * 8)
    due = [s for s in range(1, steps + 1) if s % plan.evaluate_steps == 0 or s == steps]
    assert evaluations_of(plan) == 1 + len(due)


def test_a_prepared_corpus_tells_vocabulary_and_sequences(tmp_path):
    sizes = {"x": 6000, "y": 3000}
    corpus = markov_corpus(tmp_path / "corpus", sizes, splits=("train", "validation", "test"))
    given = settings(
        tmp_path, corpus={"domains": None}, model={"vocab_size": None}, evaluate={"sequences": 0}
    )
    found = estimate(given)
    assert found.shape.vocab == corpus.vocab_size
    both = [held_out(corpus, 32, split=split) for split in ("validation", "test")]
    count = sum(len(samples) for split in both for samples in split.values())
    assert found.evaluated_tokens == found.evaluations * count * 32
    few = estimate(given.changed({"evaluate.sequences": 2}))
    assert few.evaluated_tokens == few.evaluations * 2 * 2 * 2 * 32


def test_disk_is_what_a_run_leaves(tmp_path):
    markov_corpus(tmp_path / "corpus", dict.fromkeys("xyz", 2000), splits=("train", "a", "b"))
    plan = {"checkpoint_every": 32 * 8 * 3, "keep": 3, "keep_optimizers": 2, "threads": 1}
    given = settings(
        tmp_path, model={"vocab_size": None}, train=plan, evaluate={"driving": "a", "report": "b"}
    )
    found = estimate(given)
    train(given, tmp_path / "out", progress=False)
    there = checkpoints.found(tmp_path / "out" / "checkpoints")
    assert [p.name[-2:] for p in there] == ["06", "09", "10"]
    assert [(p / checkpoints.OPTIMIZER).is_file() for p in there] == [False, True, True]
    kept = [p for folder in there for p in folder.glob("*.safetensors")]
    assert found.checkpoints == 3
    # files have headers
    assert found.disk_bytes == pytest.approx(sum(p.stat().st_size for p in kept), rel=0.02)
    assert found.disk_bytes == (3 + 2 * 2) * 4 * found.shape.parameters
    last = estimate(given.changed({"train.save_optimizer": False}))
    assert last.disk_bytes == (3 + 2 * 1) * 4 * found.shape.parameters


def test_what_does_not_fit_is_said_with_what_would(tmp_path):
    given = settings(tmp_path, train={"batch": 64, "tokens": 64 * 32})
    small = Device("small", 30e6, 1e9, 1e9)
    found = estimate(given, device=small)
    assert not found.fits
    assert found.advice == ("train.micro_batch = 32 fits",)
    assert "DOES NOT FIT" in str(found)
    assert estimate(given.changed({"train.micro_batch": 32}), device=small).fits
    # less room: activations are made again, and then nothing helps
    smaller = estimate(given, device=replace(small, memory=3.4e6))
    assert smaller.advice[0] == (
        "train.micro_batch = 1 and train.activation_checkpointing = true fits"
    )
    tried = given.changed({"train.micro_batch": 1, "train.activation_checkpointing": True})
    assert estimate(tried, device=replace(small, memory=3.4e6)).memory.training <= 0.9 * 3.4e6
    hopeless = estimate(given, device=replace(small, memory=1e6))
    assert hopeless.advice[0].startswith("no micro-batch fits")
    large = given.changed({"train.micro_batch": 1, "evaluate.batch": 1000})
    evaluation = estimate(large, device=small)
    assert not evaluation.fits
    (advice,) = evaluation.advice
    batch = int(advice.removeprefix("evaluate.batch = ").removesuffix(" fits"))
    assert estimate(large.changed({"evaluate.batch": batch}), device=small).fits
    assert not estimate(large.changed({"evaluate.batch": batch + 1}), device=small).fits


def test_time_follows_device_ranks_and_utilisation(tmp_path):
    given = settings(tmp_path, train={"precision": "bf16"})
    found = estimate(given)
    work = found.flops + found.evaluation_flops
    assert found.hours == pytest.approx(work / (0.4 * 312e12) / 3600)
    half = replace(DEVICES["a100-80gb"], utilisation=0.2)
    assert estimate(given, ranks=2, device=half).hours == pytest.approx(found.hours)
    whole = given.changed({"train.precision": "float32"})
    assert estimate(whole).hours == pytest.approx(found.hours * 312 / 19.5)
    with pytest.raises(ValueError, match="device='a1000' is unknown"):
        estimate(given, device="a1000")
    with pytest.raises(ValueError, match="utilisation must be above 0"):
        replace(half, utilisation=40)


def test_nothing_is_assumed_of_a_cpu_but_it_can_be_measured(tmp_path, monkeypatch):
    given = settings(tmp_path, train={"threads": 1})
    found = estimate(given, device="cpu")
    assert found.hours is None
    assert "unknown on 'cpu'" in str(found)
    monkeypatch.setattr(calibrate, "SECONDS", 0.0)
    found = estimate(given, device="cpu", calibrate=True)
    assert found.measured
    assert found.hours == pytest.approx((found.flops + found.evaluation_flops) / found.rate / 3600)
    memory = get_device("cpu").memory
    if memory is not None:  # which all ranks share
        assert estimate(given, ranks=2, device="cpu").room == pytest.approx(0.45 * memory)


def test_a_reference_model_takes_memory_and_work(tmp_path):
    proxy = {"rule": "doremi", "losses": "batches", "weigh": "loss", "reference_model": "there"}
    given = settings(tmp_path)
    model_of(given).config.save_pretrained(tmp_path / "there")
    plain = estimate(given)
    found = estimate(
        given.changed({"reweight": proxy | {"reference_model": str(tmp_path / "there")}})
    )
    assert found.memory.reference == plain.memory.weights
    assert found.flops == pytest.approx(4 / 3 * plain.flops)


def test_an_estimate_is_a_table_and_json(tmp_path):
    found = estimate(settings(tmp_path), ranks=2)
    text = str(found)
    for shown in (f"{found.shape.parameters:,} parameters", "2 ranks", "fits", "10 of 256 tokens"):
        assert shown in text
    again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert again["memory"]["total"] == found.memory.total
    assert again["hours"] == found.hours
    assert again["shape"]["hidden"] == 64


def test_a_checkpoints_own_shape_counts_and_another_serves_if_it_is_away(tmp_path, monkeypatch):
    given = settings(tmp_path)
    small = given.changed({"model.hidden_size": 32})
    model_of(small).config.save_pretrained(tmp_path / "there")
    there = given.changed({"model.checkpoint": str(tmp_path / "there")})
    assert shape_of(there) == shape_of(small)
    away = given.changed({"model.checkpoint": "nobody/nothing"})
    assert replace(shape_of(away), longest=None) == replace(shape_of(given), longest=None)
    # a run's numbers do not depend on what is only said for estimates
    assert away.identity == away.changed({"model": {"checkpoint": "nobody/nothing"}}).identity
    assert away.identity != there.identity
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    bare = given.changed({"model": {"checkpoint": "nobody/nothing"}})
    for name in ("nobody/nothing", "nothing.gguf"):
        with pytest.raises(FileNotFoundError, match=f"model.checkpoint='{name}'.*shape in .model."):
            estimate(bare.changed({"model.checkpoint": name}))


def test_a_vocabulary_that_nothing_tells_is_asked_for(tmp_path):
    unknown = settings(tmp_path, model={"vocab_size": None}, corpus={"tokenizer": "t.json"})
    with pytest.raises(ValueError, match=r"set model\.vocab_size"):
        estimate(unknown)
    trained = unknown.changed({"corpus.tokenizer": "train", "corpus.vocab_size": 300})
    assert estimate(trained).shape.vocab == 300
    assert estimate(unknown.changed({"corpus.tokenizer": "bytes"})).shape.vocab == 257
