"""Birds whose background gives them away, nearly always: a constructed classification task.

Four groups, class x background, with the shares of the well-known Waterbirds pictures. The bird
itself is seen through noise, the background is plain. A network that minimises the average loss
reads the background and fails where it misleads. Four ways of training the same network on the
same batches:

- the average loss;
- groups counted alike, for ever (rule "static"): what reweighting does without any dual;
- GroupDRO as its authors write it: the weights move first, by exponentiated gradient, then the
  weighted loss is differentiated (a few lines below, independent of the library);
- `GroupDROLoss` with the rule pd-kl.

Each gets six settings. The best on validation rows (worst-group accuracy at the last epoch,
two seeds that are not used again) is trained anew with other seeds, other rows, and tested. There
are two tasks: groups that are equally hard, where counting them alike is all that is needed, and
one in which the rarest group's birds are also seen less clearly. In a batch without some group the
authors' code takes that group's loss for zero, so the rarest one loses weight for being rare; the
library leaves its weight alone.

    python examples/spurious.py [--out DIR]

needs ``pip install ".[torch]"`` in a checkout, and ``[plot]`` for the picture.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from counterpoise import Reweighter
from counterpoise.torch import GroupDROLoss

GROUPS = ["land bird, land", "land bird, water", "water bird, land", "water bird, water"]
SHARES = np.array([0.73, 0.04, 0.01, 0.22])
METHODS = ("average loss", "equal weights", "GroupDRO", "PD-KL")
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
GRID = {
    "average loss": [{"lr": lr} for lr in RATES],
    "equal weights": [{"lr": lr} for lr in RATES],
    "GroupDRO": [{"lr": lr, "step": step} for lr in RATES[:3] for step in (0.01, 0.1)],
    "PD-KL": [{"lr": lr, "step": step} for lr in RATES[:3] for step in (0.01, 0.1)],
}
BATCH = 128
CORE, NOISE = 4, 16  # features of the bird, and features that tell nothing
TASKS = {  # how clearly each group's birds are seen
    "groups equally hard": (0.7, 0.7, 0.7, 0.7),
    "rarest group harder": (0.7, 0.7, 0.4, 0.7),
}


def rows_of(task, shares, n, rng):
    """Rows of the four groups in given shares: features, class and group."""
    sizes = np.maximum(np.round(np.asarray(shares) * n).astype(int), 4)
    g = np.repeat(np.arange(4), sizes)
    bird, background = 2.0 * (g // 2) - 1.0, 2.0 * (g % 2) - 1.0
    X = rng.normal(size=(len(g), CORE + 1 + NOISE))
    X[:, :CORE] += (np.array(TASKS[task])[g] * bird)[:, None]
    X[:, CORE] = background + 0.3 * X[:, CORE]
    return torch.tensor(X, dtype=torch.float32), torch.tensor(g // 2), torch.tensor(g)


class AuthorsGroupDRO:
    """Weights first, then the loss; an absent group has loss zero."""

    def __init__(self, step):
        self.step, self.weights = step, torch.full((4,), 0.25)

    def __call__(self, losses, groups):
        counts = torch.bincount(groups, minlength=4).clamp(min=1)
        means = torch.zeros(4).index_add(0, groups, losses) / counts
        self.weights = self.weights * torch.exp(self.step * means.detach())
        self.weights = self.weights / self.weights.sum()
        return (self.weights * means).sum()


def objective(method, step):
    """From losses and groups to what is differentiated."""
    if method == "average loss":
        return lambda losses, groups: losses.mean()
    if method == "GroupDRO":
        return AuthorsGroupDRO(step)
    if method == "equal weights":
        return GroupDROLoss(Reweighter(GROUPS, "static"), shares=SHARES)
    return GroupDROLoss(Reweighter(GROUPS, "pd-kl", step=step), shares=SHARES)


@torch.no_grad()
def accuracies(net, X, y, g):
    right = (net(X).argmax(1) == y).double()
    return np.array([right[g == k].mean().item() for k in range(4)])


def train(task, method, setting, seed, *, rows, epochs, test):
    """One network; accuracy of each group and the weights after every epoch."""
    rng = np.random.default_rng(seed)
    X, y, g = rows_of(task, SHARES, rows, rng)
    held = rows_of(task, [0.25] * 4, 2000, np.random.default_rng([seed, test]))
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
    )
    loss = objective(method, setting.get("step"))
    optimiser = torch.optim.SGD(net.parameters(), setting["lr"], momentum=0.9, weight_decay=1e-3)
    history, weights = [], []
    for _ in range(epochs):
        for part in torch.tensor(rng.permutation(len(y))).split(BATCH):
            optimiser.zero_grad()
            loss(cross_entropy(net(X[part]), y[part], reduction="none"), g[part]).backward()
            optimiser.step()
        history.append(accuracies(net, *held))
        weights.append([float(w) for w in getattr(loss, "weights", SHARES)])
    return np.array(history), np.array(weights)


def choose(task, method, **size):
    """The setting with the best worst group on validation rows, by two seeds of their own."""

    def worst(setting):
        runs = [train(task, method, setting, s, test=0, **size)[0][-1].min() for s in (1000, 1001)]
        return float(np.mean(runs))

    return max(GRID[method], key=worst)


def show(task, found, chosen):
    """Mean and spread over seeds of the last epoch's test accuracy, and the last weights."""
    seeds = len(found[METHODS[0]])
    print(f"{task.capitalize()}. Test accuracy, %: mean and deviation over {seeds} seeds\n")
    print(f"{'':<14}{'all rows':>14}{'training mix':>14}{'worst group':>14}   chosen setting")
    for method in METHODS:
        last = 100 * np.array([history[-1] for history, _ in found[method]])
        shown = [last.mean(1), last @ SHARES, last.min(1)]
        cells = "".join(f"{f'{v.mean():.1f} ± {v.std(ddof=1):.1f}':>14}" for v in shown)
        print(f"{method:<14}{cells}   {chosen[method]}")
    print(f"\n{'Last weights':<14}" + "".join(f"{name:>20}" for name in GROUPS))
    for method in METHODS:
        mean = np.mean([weights[-1] for _, weights in found[method]], axis=0)
        print(f"{method:<14}" + "".join(f"{w:>20.3f}" for w in mean))


def draw(results, path):
    """Worst-group accuracy on each task, and the weights on the last one, epoch by epoch."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = dict(zip(METHODS, ("#8a8f98", "#2e7d4f", "#d97706", "#1f6feb"), strict=True))
    fig, axes = plt.subplots(1, 3, figsize=(13.2, 4.0), layout="constrained")
    for ax, (task, found) in zip(axes, results.items(), strict=False):
        for method in METHODS:
            worst = 100 * np.array([history.min(1) for history, _ in found[method]])
            epochs = np.arange(1, worst.shape[1] + 1)
            ax.plot(epochs, worst.mean(0), color=colours[method], lw=2, label=method)
            ax.fill_between(epochs, worst.min(0), worst.max(0), color=colours[method], alpha=0.15)
        ax.set(xlabel="epoch", ylabel="test accuracy of the worst group, %", ylim=(0, 100))
        ax.set_title(f"{task.capitalize()} (bands: all seeds)", fontsize=10)
    axes[0].legend(loc="lower right", frameon=False)
    styles = (":", "-.", "-", "--")
    for method in METHODS[2:]:
        mean = np.mean([weights for _, weights in found[method]], axis=0)
        for k, style in enumerate(styles):
            axes[2].plot(epochs, mean[:, k], color=colours[method], ls=style, lw=1.6)
    for k, style in enumerate(styles):
        axes[2].plot([], [], color="#444", ls=style, label=f"{GROUPS[k]} ({SHARES[k]:.0%})")
    axes[2].set(xlabel="epoch", ylabel="weight", ylim=(0, 0.7))
    axes[2].set_title(f"Weights, {task} (mean over seeds)", fontsize=10)
    axes[2].legend(loc="upper right", frameon=False, fontsize=8.5)
    for ax in axes:
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=150)
    plt.close(fig)


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=4000, help="training rows")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for a picture")
    given = parser.parse_args(arguments)
    size = {"rows": given.rows, "epochs": given.epochs}
    start = time.perf_counter()
    results = {}
    for task in TASKS:
        chosen = {method: choose(task, method, **size) for method in METHODS}
        results[task] = {
            method: [
                train(task, method, chosen[method], s, test=1, **size) for s in range(given.seeds)
            ]
            for method in METHODS
        }
        show(task, results[task], chosen)
        print()
    print(f"{time.perf_counter() - start:.0f} s.")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        draw(results, given.out / "spurious.png")
        print(f"Picture: {given.out / 'spurious.png'}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # batches are too small to share
    main()
