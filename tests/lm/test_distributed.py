"""Two real processes over gloo: the same data, the same weights, the same model as one."""

import json
import subprocess
import sys

import lm_workers
import numpy as np
import pytest
from lm_problems import markov_corpus
from paths import SUPPORT, environment

from counterpoise.lm import JsonlLog

pytestmark = pytest.mark.xdist_group("two processes")  # started once, by one worker

SIZES = {"x": 6000, "y": 3000, "z": 1500}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return markov_corpus(tmp_path_factory.mktemp("lm") / "corpus", SIZES)


@pytest.fixture(scope="module")
def two(corpus, tmp_path_factory):
    """All jobs by two processes, started once: what each rank found, by job, and the folder."""
    out = tmp_path_factory.mktemp("two")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", "2", str(SUPPORT / "lm_workers.py"), ",".join(lm_workers.JOBS),
        str(corpus.folder), str(out),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(OMP_NUM_THREADS="1"), timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
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


def test_a_group_of_ranks_shares_the_samples(two):
    for rank in two[0]["subgroups"]:
        assert rank["alone"] == pytest.approx(rank["together"], rel=1e-6)


def test_ranks_that_disagree_all_stop(two):
    for rank in two[0]["disagreeing"]:
        assert "not the same on all 2 ranks" in rank["error"]


@pytest.mark.parametrize("job", ["trainer", "lightning"])
def test_frameworks_under_torchrun(corpus, two, tmp_path, job):
    one, two = lm_workers.JOBS[job](corpus, tmp_path), two[0][job]
    assert two[0]["world"] == 2
    assert two[0]["state"] == two[1]["state"]
    assert two[0]["state"]["mixture"]["number"] == one["state"]["mixture"]["number"] == 48
    assert two[0]["state"]["mixture"]["cursors"] == one["state"]["mixture"]["cursors"]
    np.testing.assert_allclose(two[0]["weights"], one["weights"], rtol=1e-4)
    np.testing.assert_allclose(two[0]["parameters"], one["parameters"], atol=2e-5)
