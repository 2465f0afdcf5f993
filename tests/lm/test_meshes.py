"""Real ranks over gloo in meshes: who reads what, who agrees with whom, and resuming on another."""

import json

import lm_workers
import mesh_workers
import numpy as np
import pytest
import torch.distributed.checkpoint as dcp
from lm_problems import markov_corpus, numbered_corpus, small_llama
from mesh_workers import LENGTH, SAVED, STEPS, WHOLE
from paths import SUPPORT
from ranks import run_ranks

from counterpoise.lm import Checkpointable, JsonlLog, domain_losses, held_out

# torch says so where there is one process.
pytestmark = [
    pytest.mark.distributed,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]

# The mesh, and the rank's place among the data-parallel ranks, whose number is the third.
MESHES = {
    "dp=2:tp=1": ([0, 1], 2),
    "dp=1:tp=2": ([0, 0], 1),
    "dp=2:tp=2": ([0, 0, 1, 1], 2),
    "pp=2:dp=2": ([0, 1, 0, 1], 2),
    "dp_replicate=2:dp_shard=2": ([0, 1, 2, 3], 4),
    "dp_replicate=2:tp=1:dp_shard=2": ([0, 1, 2, 3], 4),
}
GROUPS = {
    "dp=2:tp=1": [[0, 1]] * 2,
    "dp=1:tp=2": [[0], [1]],
    "dp=2:tp=2": [[0, 2], [1, 3]] * 2,
    "pp=2:dp=2": [[0, 1]] * 2 + [[2, 3]] * 2,
    "dp_replicate=2:dp_shard=2": [[0, 1, 2, 3]] * 4,
    "dp_replicate=2:tp=1:dp_shard=2": [[0, 1, 2, 3]] * 4,
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    sizes = {"a": 40, "b": 11, "c": 90}
    numbered = numbered_corpus(folder / "numbered", sizes, LENGTH)
    return numbered, markov_corpus(folder / "markov", {"x": 3000, "y": 2000, "z": 1500})


@pytest.fixture(scope="module")
def alone(corpora, tmp_path_factory):
    """One process without torch.distributed: its stream, its state, and what it saved."""
    out = tmp_path_factory.mktemp("alone")
    mixture, steering = mesh_workers.steered(corpora[0], logs=out / "run.jsonl")
    found = mesh_workers.read(mixture, steering, save=lambda: mesh_workers.written(steering, out))
    return found, steering.state_dict(), out


@pytest.fixture(scope="module")
def found(corpora, alone, tmp_path_factory):
    """What the ranks of every mesh found, and the folder of their runs.

    Two ranks resume what one process saved, four resume what two did.
    """
    out = tmp_path_factory.mktemp("meshes")
    numbered, markov = (corpus.folder for corpus in corpora)
    given = alone[2]
    for ranks in (2, 4):
        named = [name for name, (places, _) in MESHES.items() if len(places) == ranks]
        named += ["trained"] * (ranks == 4)
        words = (",".join(named), numbered, markov, out, given)
        run_ranks(SUPPORT / "mesh_workers.py", *words, ranks=ranks)
        given = out / named[0]
    sizes = {name: len(places) for name, (places, _) in MESHES.items()} | {"trained": 4}
    by_mesh = {
        name: [json.loads((out / name / f"{rank}.json").read_text()) for rank in range(size)]
        for name, size in sizes.items()
    }
    return by_mesh, out


@pytest.mark.parametrize("mesh", MESHES)
def test_samples_follow_the_data_parallel_rank(alone, found, mesh):
    (whole, state, _), (by_mesh, _), (places, size) = alone, found, MESHES[mesh]
    ranks, part = by_mesh[mesh], WHOLE // size
    assert [(rank["rank"], rank["size"]) for rank in ranks] == [(place, size) for place in places]
    for rank, place in zip(ranks, places, strict=True):
        mine = slice(place * part, (place + 1) * part)
        assert rank["read"] == [step[mine] for step in whole]
        assert rank["state"] == state


@pytest.mark.parametrize("mesh", MESHES)
def test_another_mesh_resumes_sample_for_sample(alone, found, mesh):
    """From what 1 or 2 ranks gave to torch.distributed.checkpoint, with changes still to come."""
    (whole, _, _), (by_mesh, _), (places, size) = alone, found, MESHES[mesh]
    part = WHOLE // size
    for rank, place in zip(by_mesh[mesh], places, strict=True):
        mine = slice(place * part, (place + 1) * part)
        assert rank["resumed"] == [step[mine] for step in whole[SAVED:]]


@pytest.mark.parametrize("mesh", MESHES)
def test_one_process_resumes_what_a_mesh_saved(corpora, alone, found, mesh):
    whole, folder = alone[0], found[1] / mesh
    saved = json.loads((folder / "steering.json").read_text())
    assert len(saved["mixture"]["changes"]) > 1, "weights that do not hold yet"
    assert mesh_workers.resumed(corpora[0], folder) == whole[SAVED:]
    mixture, steering = mesh_workers.steered(corpora[0])
    steering.load(folder / "steering.json")
    assert mesh_workers.read(mixture, steering, SAVED + 1) == whole[SAVED:]


@pytest.mark.parametrize("mesh", MESHES)
def test_the_first_rank_of_all_writes_the_log(alone, found, mesh):
    ours, theirs = (JsonlLog(f / "run.jsonl").read() for f in (found[1] / mesh, alone[2]))
    assert [r["step"] for r in ours] == [2, 4, 5, 8]
    assert ours == theirs


@pytest.mark.parametrize("mesh", MESHES)
def test_held_out_samples_are_counted_once(corpora, found, mesh):
    expected = domain_losses(small_llama(), held_out(corpora[1], 16), batch_size=5)
    ranks = found[0][mesh]
    for rank, group in zip(ranks, GROUPS[mesh], strict=True):
        assert rank["group"] == group
        assert rank["counts"] == expected.counts
        assert rank["losses"] == pytest.approx(expected.losses, rel=1e-9)
        assert rank["losses"] == ranks[0]["losses"], "to the bit, whatever the ranks beside it find"


@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_that_disagree_all_stop(found, mesh):
    for rank in found[0][mesh]:
        assert f"not the same on all {len(found[0][mesh])} ranks" in rank["stops"]


def test_a_tensor_parallel_model_trains_as_one(corpora, found, tmp_path):
    one, ranks = lm_workers.plain(corpora[1], tmp_path), found[0]["trained"]
    halves = zip(ranks[0]["read"], ranks[2]["read"], strict=True)
    assert [[*a, *b] for a, b in halves] == one["read"]
    assert [rank["read"] for rank in ranks[1::2]] == [rank["read"] for rank in ranks[::2]]
    for rank in ranks:
        assert rank["state"] == ranks[0]["state"]
        np.testing.assert_allclose(rank["weights"], one["weights"], rtol=1e-5)
        np.testing.assert_allclose(rank["parameters"], one["parameters"], atol=2e-6)


def test_a_state_is_stored_once_and_as_a_tensor(found):
    folder = found[1] / "dp=2:tp=2" / "dcp"
    metadata = dcp.FileSystemReader(folder).read_metadata()
    (entry,) = metadata.state_dict_metadata.values()
    size = Checkpointable(mesh_workers.Reweighter(["a", "b", "c"])).capacity
    assert (list(entry.size), len(entry.chunks)) == ([size], 1)
    stored = b"".join(path.read_bytes() for path in folder.glob("*.distcp"))
    assert stored.count(b'"cursors"') == 1


def test_the_stream_is_long_enough(alone):
    """Weights changed on the way, and every sample came once in its epoch."""
    whole = np.array(alone[0])
    assert whole.shape == (STEPS, WHOLE)
    assert len(alone[1]["mixture"]["changes"]) > 0
