"""A sharded model has the numbers of a whole one, which only the first rank ever held."""

import json

import pytest
import torch
from lm_problems import markov_corpus, small_llama
from lm_runs import SIZES, SPLITS
from paths import SUPPORT
from ranks import run_ranks

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("placing")
    corpus = markov_corpus(folder / "corpus", SIZES, splits=SPLITS)
    small_llama().to(torch.bfloat16).save_pretrained(folder / "model")  # its config says so
    words = ("sharded", corpus.folder, corpus.folder, folder, folder / "model")
    run_ranks(SUPPORT / "mesh_workers.py", *words)
    return [json.loads((folder / "sharded" / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("model", ["new", "tied", "checkpoint"])
def test_only_the_first_rank_makes_the_model(found, model):
    first, other = (rank[model] for rank in found)
    assert (first["made"], other["made"]) == (1, 0)
    for rank in (first, other):
        assert rank["empty"]
        assert all(rank["empty"]), "only shapes are sharded"
    # Elsewhere nothing is larger than one parameter, which comes by itself.
    assert other["largest"] <= other["parameter"]
    assert first["held"] + other["held"] == first["all"]
    assert abs(first["held"] - other["held"]) < first["all"] / 4


@pytest.mark.parametrize("model", ["new", "tied", "checkpoint"])
def test_the_numbers_are_those_of_a_whole_model(found, model):
    for rank in found:
        assert rank[model]["same"]
        assert rank[model]["buffers"]
        assert all(rank[model]["buffers"].values())
        assert rank[model]["tied"] == (model == "tied")
        assert rank[model]["config"], "also what a checkpoint says of its numbers' type"
        assert rank[model]["training"]
