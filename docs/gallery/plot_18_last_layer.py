"""
The last layer of a network: for readers of DFR
===============================================

Deep feature reweighting (DFR; Kirichenko et al., 2023) found that a network which leans on a
spurious feature often knows the true one as well: fit its last layer again, to rows in which the
groups are balanced, and the worst group recovers. :func:`~counterpoise.torch.robust_head` does so
in one call. It runs the body once, fits the layer for the worst group rather than for balanced
groups, writes it back into the model, and returns a certificate for it.

Here are scikit-learn's handwritten digits, in colour: small digits (0-4) are mostly red and large
ones (5-9) mostly green, so that a network may learn the colour.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from counterpoise import GroupDROClassifier
from counterpoise.torch import robust_head

torch.set_num_threads(1)  # batches are too small to share
digits = load_digits()
GROUPS = ["small, red", "small, green", "large, red", "large, green"]


def coloured(rows, agreement, rng):
    """Images with a red and a green channel, the class, and the group: class x colour."""
    y = (digits.target[rows] >= 5).astype(int)
    colour = np.where(rng.random(len(y)) < agreement, y, 1 - y)
    x = np.zeros((len(y), 2, 8, 8), np.float32)
    x[np.arange(len(y)), colour] = digits.images[rows] / 16
    return torch.tensor(x), torch.tensor(y), torch.tensor(2 * y + colour)


def trained(x, y, seed):
    """A small network, trained for the average image."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 16, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 2),
    )
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(15):
        for rows in torch.randperm(len(y)).split(64):
            optimiser.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
    return net


def accuracies(net, x, y, g):
    """The share of right classes in every group."""
    with torch.no_grad():
        right = (net(x).argmax(1) == y).numpy()
    return np.array([right[g.numpy() == k].mean() for k in range(4)])


# %%
# One network. Half of the images train it, a quarter fits the last layer, and the rest is for
# tests, in which both colours are equally frequent. In the other parts, 95 % have the usual colour.
# DFR asks for rows that the body was not trained on: on its own training rows, the network makes
# hardly any error that a new head could learn from.


def parts(seed):
    rng = np.random.default_rng(seed)
    train, held, test = np.split(rng.permutation(len(digits.target)), [900, 1350])
    return coloured(train, 0.95, rng), coloured(held, 0.95, rng), coloured(test, 0.5, rng)


train, held, test = parts(0)
net = trained(*train[:2], seed=0)
groups = np.array(GROUPS)[held[2]]
result = robust_head(net, [held[:2]], groups, estimator=GroupDROClassifier(alpha=1e-3))
print(result)

# %%
# The loader here is a list with one batch; a ``DataLoader`` does as well, as long as it does not
# shuffle, or yields the groups with its batches. Ten networks, each with three heads: its own, one
# for the average over groups (``nu=inf``, which weights groups equally where DFR subsamples them),
# and one for the worst group. ``alpha`` is the ridge; it keeps a head of 33 numbers from fitting
# groups of ten images by heart.

HEADS = {"equal weights": {"nu": np.inf}, "worst group": {}}
found = {"as trained": []} | {name: [] for name in HEADS}
for seed in range(10):
    train, held, test = parts(seed)
    net = trained(*train[:2], seed)
    found["as trained"].append(accuracies(net, *test))
    for name, options in HEADS.items():
        fitted = copy.deepcopy(net)
        robust_head(fitted, [held], estimator=GroupDROClassifier(alpha=1e-3, **options))
        found[name].append(accuracies(fitted, *test))

print(f"{'test accuracy, %':<20}{'mean of groups':>16}{'worst group':>14}   (ten networks)")
for name, runs in found.items():
    table = 100 * np.array(runs)
    print(f"{name:<20}{table.mean():>16.1f}{table.min(1).mean():>14.1f}")

# %%

colours = ["#8a8f98", "#0f9d8a", "#1f6feb"]
fig, ax = plt.subplots(figsize=(8.5, 4), layout="constrained")
for k, ((name, runs), colour) in enumerate(zip(found.items(), colours, strict=True)):
    table = 100 * np.array(runs)
    place = np.arange(4) + 0.2 * (k - 1)
    ax.plot(place, table.mean(0), "o", ms=9, color=colour, label=name)
    for x, values in zip(place, table.T, strict=True):
        ax.plot([x] * len(values), values, "_", ms=9, color=colour, alpha=0.5)
ax.set_xticks(range(4), GROUPS)
ax.set(ylabel="test accuracy, %", ylim=(0, 102))
ax.set_title("Accuracy in each group (dashes: single networks)", fontsize=11)
ax.legend(frameon=False, loc="lower center", ncols=3)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** The body knew the digits all along; a new last layer, fitted in a fraction
# of a second, brings the misled groups back. Equal weights do most of it, which is DFR's finding.
# Fitting for the worst group matters where groups differ in difficulty and not only in size.
# :doc:`Last layers </last-layers>` has two larger examples, with training by GroupDRO beside them.
