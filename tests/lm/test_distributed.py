"""Two real processes over gloo: the same data, the same weights, the same model as one."""

import json
from dataclasses import replace

import lm_workers
import numpy as np
import pytest
from lm_problems import markov_corpus
from lm_runs import (
    SIZES,
    SPLITS,
    STEP,
    assert_close_model,
    assert_same_model,
    run_settings,
)
from paths import SUPPORT
from ranks import run_ranks, torchrun

from counterpoise.common.toml import to_toml
from counterpoise.lm import JsonlLog
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.train import train

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return markov_corpus(tmp_path_factory.mktemp("lm") / "corpus", SIZES, splits=SPLITS)


@pytest.fixture(scope="module")
def two(corpus, tmp_path_factory):
    """All jobs by two processes, started once: what each rank found, by job, and the folder."""
    out = tmp_path_factory.mktemp("two")
    worker = SUPPORT / "lm_workers.py"
    run_ranks(worker, ",".join(lm_workers.JOBS), corpus.folder, out)
    found = {
        job: [json.loads((out / job / f"{rank}.json").read_text()) for rank in range(2)]
        for job in lm_workers.JOBS
    }
    return found, out


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    """One process, no torch.distributed at all."""
    out = tmp_path_factory.mktemp("alone")
    return lm_workers.plain(corpus, out), JsonlLog(out / "run.jsonl").read()


@pytest.mark.parametrize("job", ["ddp", "ddp_with_workers", "fsdp"])
def test_two_processes_are_as_one(alone, two, job):
    (one, log), (found, out) = alone, two
    two = found[job]
    # Every whole batch is the same, half of it on each rank.
    halves = zip(two[0]["read"], two[1]["read"], strict=True)
    assert [a + b for a, b in halves] == one["read"]
    # Both ranks agree to the bit; one process agrees up to the order of its sums.
    assert two[0]["state"] == two[1]["state"]
    assert two[0]["weights"] == two[1]["weights"]
    assert two[0]["state"]["mixture"]["cursors"] == one["state"]["mixture"]["cursors"]
    np.testing.assert_allclose(two[0]["weights"], one["weights"], rtol=1e-5)
    np.testing.assert_allclose(two[0]["losses"], one["losses"], rtol=1e-5)
    np.testing.assert_allclose(two[0]["parameters"], one["parameters"], atol=2e-6)
    # One rank writes the log.
    again = JsonlLog(out / job / "run.jsonl").read()
    assert [r["step"] for r in again] == [r["step"] for r in log] == [3, 6, 9]


def test_large_files_are_read_once_and_by_one_rank(two):
    """Tokens and the model that a run starts from, even if no disk can remember it."""
    first, other = two[0]["continued"]
    assert first.count("model.safetensors") == 1
    assert first.count("train.bin") == first.count("test.docs.bin") == len(SIZES)
    assert not [name for name in other if name.endswith((".bin", ".safetensors"))]


def test_a_group_of_ranks_shares_the_samples(two):
    for rank in two[0]["subgroups"]:
        assert rank["alone"] == pytest.approx(rank["together"], rel=1e-6)


def test_ranks_that_disagree_all_stop(two):
    for rank in two[0]["disagreeing"]:
        assert "not the same on all 2 ranks" in rank["error"]


@pytest.mark.parametrize("job", ["trainer", "lightning"])
def test_frameworks_on_two_ranks(corpus, two, tmp_path, job):
    one, two = lm_workers.JOBS[job](corpus, tmp_path), two[0][job]
    assert two[0]["world"] == 2
    assert two[0]["state"] == two[1]["state"]
    assert two[0]["state"]["mixture"]["number"] == one["state"]["mixture"]["number"] == 48
    assert two[0]["state"]["mixture"]["cursors"] == one["state"]["mixture"]["cursors"]
    np.testing.assert_allclose(two[0]["weights"], one["weights"], rtol=1e-4)
    np.testing.assert_allclose(two[0]["parameters"], one["parameters"], atol=2e-5)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """The run by one process."""
    out = tmp_path_factory.mktemp("whole")
    train(run_settings(corpus), out, progress=False)
    return out


@pytest.mark.parametrize("job", ["trained_ddp", "trained_fsdp"])
def test_two_ranks_train_as_one_and_resume(whole, two, job):
    out = two[1] / job
    assert_close_model(out / "whole", whole, atol=5e-4)
    ours, theirs = (RunFolder(f).evaluations.read() for f in (out / "whole", whole))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["report"] == pytest.approx(other["report"], abs=2e-3)
        assert mine["shares"] == other["shares"]
    assert_same_model(out / "resumed", out / "whole")


def test_two_ranks_find_references(corpus, tmp_path):
    """From the command line, by torchrun: train a model, measure it three times, and end."""
    file = tmp_path / "c.toml"
    asked = {"file": str(tmp_path / "r.json"), "model": "train", "tokens": STEP * 2}
    chosen = run_settings(corpus, references=asked, evaluate={"final": 12})
    file.write_text(to_toml(replace(chosen, out=str(tmp_path / "out")).table))
    printed = torchrun("-m", "counterpoise", "lm", "references", file)
    found = json.loads((tmp_path / "r.json").read_text())
    assert json.loads(printed) == found["losses"], "rank 0 alone prints"
    assert found["final"]["of"] == {"split": "test", "sequences": 12, "length": 16}
    ended = RunFolder(tmp_path / "out" / "references" / "model").result
    assert found["reported"]["losses"] == pytest.approx(ended["losses"], rel=1e-5)
