"""
A language model's mixture: texts of the standard library
=========================================================

In pre-training, weights belong in the data: how often a domain is read. ``Steering`` moves them by
the domains' held-out losses. Three domains that every Python has at hand, code, manual pages and
names of Unicode characters; a byte-level convolution that learns in seconds; and a mixture that
starts out badly skewed.
"""

import json
import sysconfig
import unicodedata
from pathlib import Path
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from counterpoise import Reweighter
from counterpoise.lm import MixtureDataset, Steering, domain_losses, held_out, prepare

torch.set_num_threads(1)
library = Path(sysconfig.get_path("stdlib"))
modules = ("argparse", "ast", "dataclasses", "doctest", "inspect", "pdb", "statistics", "typing")
names = [unicodedata.name(chr(i), "") for i in range(0x20, 0x3000)]
texts = {
    "code": [(library / f"{name}.py").read_text(encoding="utf-8") for name in modules],
    "manual": list(topics.values()),
    "names": ["\n".join(filter(None, names[i : i + 64])) for i in range(0, len(names), 64)],
}

# %%
# The corpus: one file of tokens per domain and split. The model: five causal convolutions.

folder = TemporaryDirectory()
for domain, documents in texts.items():
    lines = "\n".join(json.dumps({"text": text}) for text in documents)
    (Path(folder.name) / f"{domain}.jsonl").write_text(lines, encoding="utf-8")
corpus = prepare(
    {domain: Path(folder.name) / f"{domain}.jsonl" for domain in texts},
    Path(folder.name) / "corpus", tokenizer="bytes", splits={"train": 0.9, "validation": 0.1},
    pieces=2000, workers=0, progress=False,
)  # fmt: skip
LENGTH, STEPS, EVERY = 128, 150, 10
START = {"code": 0.9, "manual": 0.08, "names": 0.02}


class Bytes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(corpus.vocab_size, 64)
        self.layers = torch.nn.ModuleList(torch.nn.Conv1d(64, 64, 3) for _ in range(5))
        self.head = torch.nn.Linear(64, corpus.vocab_size)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        for layer in self.layers:
            x = x + torch.relu(layer(torch.nn.functional.pad(x, (2, 0))))
        return self.head(x.transpose(1, 2))


def summed(model, batch):
    """Loss of a batch's tokens and their number, as `domain_losses` asks for."""
    scores, following = model(batch["input_ids"])[:, :-1], batch["input_ids"][:, 1:].flatten()
    total = cross_entropy(scores.flatten(0, 1), following, reduction="sum")
    return total, torch.tensor(len(following))


# %%
# One loop for all runs. ``observe`` gives the losses to the rule, and the new weights to the mixture.

DOMAINS = list(texts)
validation = held_out(corpus, LENGTH, limit=16)


def train(rule, start, **options):
    """Held-out losses and weights, every so many steps: (T, 3) each."""
    mixture = MixtureDataset(corpus, LENGTH, weights=start)
    steering = Steering(Reweighter(DOMAINS, rule, start=start, **options), mixture)
    torch.manual_seed(0)
    model = Bytes()
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    losses, weights = [], []
    for step, batch in enumerate(mixture.loader(batch_size=8), start=1):
        total, count = summed(model, batch)
        optimiser.zero_grad()
        (total / count).backward()
        optimiser.step()
        if step % EVERY == 0:
            found = domain_losses(model, validation, loss=summed)
            steering.observe(*found, step=step)
            losses.append([found.losses[name] for name in DOMAINS])
            weights.append(steering.weights)
        if step == STEPS:
            return np.array(losses), np.array(weights)


# %%
# First uniform weights, whose final losses serve as references: what each domain can be expected to
# reach. Then two runs from the skewed start: weights that stay, and weights that follow the excess.

uniform = dict.fromkeys(DOMAINS, 1 / 3)
runs = {"uniform": train("static", uniform)}
reference = dict(zip(DOMAINS, runs["uniform"][0][-1], strict=True))
runs["skewed, fixed"] = train("static", START)
runs["skewed, PD-KL"] = train("pd-kl", START, reference=reference, step=1.0)
print(f"{'final loss, nats a byte':<24}" + "".join(f"{name:>9}" for name in [*DOMAINS, "worst"]))
for name, (losses, _) in runs.items():
    print(f"{name:<24}" + "".join(f"{loss:>9.2f}" for loss in [*losses[-1], losses[-1].max()]))

# %%

steps = np.arange(EVERY, STEPS + 1, EVERY)
looks = {"code": "-", "manual": "--", "names": ":"}
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for name, colour in (("skewed, fixed", "#8a8f98"), ("skewed, PD-KL", "#1f6feb")):
    for k, domain in enumerate(DOMAINS):
        label = f"{domain}, {name.split()[1]}"
        left.plot(steps, runs[name][0][:, k], looks[domain], color=colour, lw=1.8, label=label)
left.set(xlabel="step", ylabel="held-out loss, nats a byte", title="Losses")
left.legend(frameon=False, fontsize=9)
right.stackplot(np.append(0, steps), np.vstack([list(START.values()), runs["skewed, PD-KL"][1]]).T,
                colors=["#1f6feb", "#7fb0f5", "#cfe1fc"], labels=DOMAINS)  # fmt: skip
right.set(xlabel="step", ylabel="weight, stacked", title="Weights of PD-KL", xlim=(0, STEPS))
right.set_ylim(0, 1)
right.legend(loc="lower left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
folder.cleanup()
