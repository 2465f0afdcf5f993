"""
A language model's mixture: texts of the standard library
=========================================================

In pre-training, weights determine the data: how often each domain is read. ``Steering`` moves them
by the domains' held-out losses. The three domains come with every Python: code, manual pages and
names of Unicode characters. The model predicts the next byte from the last six, and the mixture
starts badly skewed.
"""

import json
import sysconfig
import unicodedata
from pathlib import Path
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

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
DOMAINS = list(texts)

# %%
# The corpus: one file of tokens per domain and split, in a temporary folder.

folder = TemporaryDirectory()
sources = {domain: Path(folder.name) / f"{domain}.jsonl" for domain in texts}
for domain, path in sources.items():
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts[domain]))
corpus = prepare(
    sources, Path(folder.name) / "corpus", tokenizer="bytes", pieces=2000,
    splits={"train": 0.9, "validation": 0.1}, workers=0, progress=False,
)  # fmt: skip
validation = held_out(corpus, 64, limit=24)
print("training bytes:", corpus.sizes("train"))

# %%
# A model with ``.loss``, as in transformers, and one loop for all runs. ``observe`` passes the
# domains' losses to the rule, and the new weights to the mixture.


class NextByte(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(corpus.vocab_size, 16)
        self.hidden = torch.nn.Linear(6 * 16, 128)
        self.guess = torch.nn.Linear(128, corpus.vocab_size)

    def forward(self, input_ids, labels):
        last = self.embed(pad(input_ids, (5, 0), value=corpus.end)).unfold(1, 6, 1).flatten(2)
        scores = self.guess(torch.relu(self.hidden(last)))
        loss = cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(loss=loss)


def train(rule, start, steps=150, every=10, **options):
    """Held-out losses and weights after every tenth step."""
    mixture = MixtureDataset(corpus, 64, weights=start)
    steering = Steering(Reweighter(DOMAINS, rule, start=start, **options), mixture)
    torch.manual_seed(0)
    model = NextByte()
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    losses, weights = [], []
    for step, batch in enumerate(mixture.loader(batch_size=8), start=1):
        optimiser.zero_grad()
        model(batch["input_ids"], batch["labels"]).loss.backward()
        optimiser.step()
        if step % every == 0:
            weights.append(steering.weights)
            found = domain_losses(model, validation)
            steering.observe(*found, step=step)
            losses.append([found.losses[name] for name in DOMAINS])
        if step == steps:
            break
    return np.arange(every, steps + 1, every), np.array(losses), np.array(weights)


# %%
# First, uniform weights. Their final losses serve as references: what each domain can be expected
# to reach. Then two runs from the skewed start: fixed weights, and weights that follow the
# excess.

skewed = {"code": 0.9, "manual": 0.08, "names": 0.02}
runs = {"uniform": train("static", dict.fromkeys(DOMAINS, 1 / 3))}
reference = dict(zip(DOMAINS, runs["uniform"][1][-1], strict=True))
runs["skewed, fixed"] = train("static", skewed)
runs["skewed, PD-KL"] = train("pd-kl", skewed, reference=reference, step=0.5)
print(f"{'final loss, nats a byte':<24}" + "".join(f"{name:>9}" for name in [*DOMAINS, "worst"]))
for name, (_, losses, _) in runs.items():
    print(f"{name:<24}" + "".join(f"{loss:>9.2f}" for loss in [*losses[-1], losses[-1].max()]))
folder.cleanup()

# %%

looks = dict(zip(DOMAINS, ("-", "--", ":"), strict=True))
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for name, colour in (("skewed, fixed", "#8a8f98"), ("skewed, PD-KL", "#1f6feb")):
    steps, losses, weights = runs[name]
    for k, domain in enumerate(DOMAINS):
        left.plot(steps, losses[:, k], looks[domain], color=colour, lw=1.8,
                  label=f"{domain}, {name.split()[1]}")  # fmt: skip
left.set(xlabel="step", ylabel="held-out loss, nats a byte", title="Losses")
left.legend(frameon=False, fontsize=9)
right.stackplot(steps, weights.T, colors=["#1f6feb", "#7fb0f5", "#cfe1fc"])
for domain, top, weight in zip(DOMAINS, weights[-1].cumsum(), weights[-1], strict=True):
    right.text(0.95 * steps[-1], top - weight / 2, domain, ha="right", va="center", fontsize=11)
right.set(xlabel="step", ylabel="weight, stacked", title="Weights of PD-KL")
right.set(xlim=(steps[0], steps[-1]), ylim=(0, 1))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** With fixed skewed weights, the names are hardly learned. Weights that
# follow the excess over the references move from code to names. The worst domain's loss then
# comes close to that of uniform weights, and code pays a little. Uniform weights from the start
# are even better for the worst domain: steering repairs a bad mixture, but does not beat a good
# one.
