"""The example of annotators' groups, small."""

import importlib.util

import numpy as np
import pytest
import torch
from paths import ROOT


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("dpo_groups", ROOT / "examples/dpo_groups.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pairs_are_what_the_text_says(example):
    preferred, other, groups = example.pairs_of([0.8, 0.2], 2000, np.random.default_rng(0))
    assert groups.bincount().tolist() == [1600, 400]
    assert torch.equal(preferred[:, 0], other[:, 0])
    longer = (preferred == example.FILLER).sum(1) > (other == example.FILLER).sum(1)
    assert torch.equal(longer, groups == 0)
    right = preferred[:, 1] == preferred[:, 0] + example.QUESTIONS
    assert right[groups == 1].all()
    assert right[groups == 0].double().mean() == pytest.approx(example.RIGHT, abs=0.03)
    assert (other[:, 1] == other[:, 0] + example.QUESTIONS)[~right].all()
    assert (preferred[:, -1] == example.END).all()


def test_log_probabilities_end_with_the_response(example):
    torch.manual_seed(0)
    model = example.TinyLM()
    ids = example.response(np.array([3]), np.array([5]), np.array([2]))
    scores = model.write(model.read(model.embed(ids[:, :-1]))[0]).log_softmax(-1)[0]
    by_hand = sum(scores[i, ids[0, i + 1]] for i in range(4))  # answer, two fillers, the end
    assert model.log_probability(ids).item() == pytest.approx(by_hand.item(), rel=1e-6)


@pytest.mark.slow
def test_the_few_are_served_when_groups_count(example, capsys):
    found = {m: [example.train(m, 0, pairs=2000, steps=150)] for m in example.METHODS}
    example.show(found)
    table = capsys.readouterr().out
    assert all(name in table for name in (*example.METHODS, *example.GROUPS))
    few = {method: runs[0][0][1] for method, runs in found.items()}
    assert few["PD-KL"] > few["average loss"] + 0.2
    weight_of_the_few = found["PD-KL"][0][1][1]
    assert weight_of_the_few > 4 * example.SHARES[1]
