"""Preferences of two kinds of annotators, one of them rare: DPO on a tiny language model.

A response names an answer and fills up with padding. Most annotators prefer the longer response,
which mostly has the right answer, too; a few prefer the right answer in few words. A model that
minimises the average DPO loss learns that longer is better, and is wrong about the few.

Direct preference optimisation has a loss per pair, so groups of annotators can be weighed as
groups of examples are. Four ways of training the same model on the same batches:

- the average DPO loss;
- annotators counted alike, for ever (rule "static"): what reweighting does without any dual;
- `GroupDROLoss` with the rule pd-kl;
- pairs of the few repeated until both groups are as large, which needs no library.

All have the same learning rate and number of steps; nothing is chosen on the test pairs. What
counts is how often a held-out pair is ordered right, by group.

    python examples/dpo_groups.py [--seeds 5]

needs ``pip install ".[torch]"`` in a checkout.
"""

from __future__ import annotations

import argparse
import copy
import time

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from counterpoise import Reweighter
from counterpoise.torch import GroupDROLoss

GROUPS = ["likes length", "likes brevity"]
SHARES = np.array([0.95, 0.05])
METHODS = ("average loss", "equal weights", "PD-KL", "repeated pairs")
QUESTIONS = 8  # token q asks; tokens 8 to 15 answer, 16 fills up, 17 ends
FILLER, END, VOCABULARY, LONGEST = 16, 17, 18, 6
RIGHT = 0.9  # how often the longer response has the right answer
BATCH, RATE, BETA = 64, 3e-3, 0.5


class TinyLM(torch.nn.Module):
    """A recurrent language model of about ten thousand parameters."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, width)
        self.read = torch.nn.GRU(width, width, batch_first=True)
        self.write = torch.nn.Linear(width, VOCABULARY)

    def log_probability(self, ids):
        """Of each response, given the question that comes first."""
        scores = self.write(self.read(self.embed(ids[:, :-1]))[0]).log_softmax(-1)
        chosen = scores.gather(-1, ids[:, 1:, None]).squeeze(-1)
        ended = (ids[:, :-1] == END).cumsum(1) > 0  # what follows the end does not count
        return chosen.masked_fill(ended, 0.0).sum(1)


def pairs_of(shares, n, rng):
    """Preferred and other responses, as token ids after their question, and the groups."""
    groups = rng.permutation(np.repeat([0, 1], np.round(np.asarray(shares) * n).astype(int)))
    question = rng.integers(QUESTIONS, size=len(groups))
    wrong = (question + rng.integers(1, QUESTIONS, size=len(groups))) % QUESTIONS
    short = rng.integers(1, LONGEST // 2 + 1, size=len(groups))
    long = short + rng.integers(1, LONGEST // 2 + 1, size=len(groups))
    likes_long = groups == 0
    right = ~likes_long | (rng.random(len(groups)) < RIGHT)  # has the preferred one the answer?
    preferred = response(
        question, np.where(right, question, wrong), np.where(likes_long, long, short)
    )
    other = response(question, np.where(right, wrong, question), np.where(likes_long, short, long))
    return preferred, other, torch.tensor(groups)


def response(question, answer, fillers):
    """Question, answer, fillers and the end."""
    ids = np.full((len(question), LONGEST + 3), END)
    ids[:, 0], ids[:, 1] = question, QUESTIONS + answer
    ids[:, 2:][np.arange(LONGEST + 1) < fillers[:, None]] = FILLER
    return torch.tensor(ids)


def preference(model, preferred, other):
    """How much likelier is each pair's preferred response?"""
    both = model.log_probability(torch.cat([preferred, other]))
    return both[: len(preferred)] - both[len(preferred) :]


def objective(method):
    if method in ("average loss", "repeated pairs"):
        return lambda losses, groups: losses.mean()
    rule = "static" if method == "equal weights" else "pd-kl"
    return GroupDROLoss(Reweighter(GROUPS, rule, step=0.05), shares=SHARES)


def train(method, seed, *, pairs, steps):
    """Train one model; return each group's accuracy on held-out pairs, and the last weights."""
    rng = np.random.default_rng(seed)
    data = pairs_of(SHARES, pairs, rng)
    held = pairs_of([0.5, 0.5], 4000, np.random.default_rng([seed, 1]))
    torch.manual_seed(seed)
    reference = TinyLM()
    model, loss = copy.deepcopy(reference), objective(method)
    with torch.no_grad():
        before = preference(reference, *data[:2])
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    chance = np.ones(len(data[2]))
    if method == "repeated pairs":
        chance = 1.0 / np.bincount(data[2].numpy())[data[2].numpy()]
    for _ in range(steps):
        part = torch.tensor(rng.choice(len(chance), BATCH, p=chance / chance.sum()))
        found = preference(model, data[0][part], data[1][part]) - before[part]
        optimiser.zero_grad()
        loss(-logsigmoid(BETA * found), data[2][part]).backward()
        optimiser.step()
    with torch.no_grad():
        right = (preference(model, *held[:2]) > preference(reference, *held[:2])).double()
    accuracy = np.array([right[held[2] == k].mean().item() for k in range(2)])
    return accuracy, np.array(getattr(loss, "weights", [np.nan, np.nan]))


def show(found):
    """Mean and spread over seeds of the share of held-out pairs ordered right."""
    seeds = len(found[METHODS[0]])
    print(f"Held-out pairs ordered right, %: mean and deviation over {seeds} seeds\n")
    heads = (*GROUPS, "training mix", "worst group", "weight of the few")
    print(f"{'':<16}" + "".join(f"{head:>19}" for head in heads))
    for method, runs in found.items():
        right = 100 * np.array([accuracy for accuracy, _ in runs])
        shown = [right[:, 0], right[:, 1], right @ SHARES, right.min(1)]
        cells = [f"{v.mean():.1f} ± {v.std(ddof=min(1, seeds - 1)):.1f}" for v in shown]
        weight = np.mean([weights[1] for _, weights in runs])
        cells.append("-" if np.isnan(weight) else f"{weight:.2f}")
        print(f"{method:<16}" + "".join(f"{cell:>19}" for cell in cells))


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=4000, help="training pairs")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    size = {"pairs": given.pairs, "steps": given.steps}
    show({m: [train(m, seed, **size) for seed in range(given.seeds)] for m in METHODS})
    print(f"\n{time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    torch.set_num_threads(1)  # batches are too small to share
    main()
