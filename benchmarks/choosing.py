"""Does the chosen fit hold up? Held-out worst-group risk over repeated splits of real tables.

    python benchmarks/choosing.py [--splits 20] [--tables NAME ...] [--activations identity relu]

Every table is split 70/30 by group, again and again. ``GroupDRONeuronCV`` chooses on the larger
part alone; it is compared on the other with the plain average (least squares for the identity)
and with the worst-group fit (``nu = 0``). Risks are in units of the labels' variance. Tables are
had as for ``run.py``. Writes ``choosing.json`` and ``choosing.md`` to ``out/bench``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import numpy as np
from datasets import SOURCES
from environments import Unavailable
from sklearn.exceptions import ConvergenceWarning

from counterpoise import GroupDRONeuron, GroupDRONeuronCV

TABLES = (
    "diamonds", "bikeshare", "flights-air-time", "crime", "compas", "flights-delay", "flights-3m",
)  # fmt: skip
# Tables so large that fewer splits and one activation will do.
LARGE = {"flights-3m": (3, ("identity",))}


def held_out(codes, rng, share=0.3):
    """A mask of rows to hold out, the same share of every group."""
    out = np.zeros(len(codes), dtype=bool)
    for k in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == k))
        out[rows[: max(1, round(share * len(rows)))]] = True
    return out


def compare(X, y, groups, activation, split):
    test = held_out(groups, np.random.default_rng(split))
    train, unit = ~test, float(np.var(y))
    models = {
        "average": GroupDRONeuron(activation, nu=math.inf, prior="rows"),
        "nu = 0": GroupDRONeuron(activation, nu=0.0),
        "chosen": GroupDRONeuronCV(activation, random_state=split),
    }
    row = {}
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(X[train], y[train], groups=groups[train])
        row[f"{name} seconds"] = time.perf_counter() - began
        row[name] = model.worst_group_risk(X[test], y[test], groups[test]) / unit
    chosen = models["chosen"]
    best = chosen.frontier_
    row.update(robust=bool(chosen.robust_), family=best.family[best.chosen],
               share=float(chosen.cv_results_["nu_share"][best.chosen]))  # fmt: skip
    return row


def summary(name, activation, rows):
    column = {key: np.array([row[key] for row in rows]) for key in ("average", "nu = 0", "chosen")}
    better = min(column["average"].mean(), column["nu = 0"].mean())
    middle = min(np.median(column["average"]), np.median(column["nu = 0"]))
    robust = sum(row["robust"] for row in rows)
    seconds = np.mean([row["chosen seconds"] for row in rows])
    return (
        f"| {name} | {activation} | {len(rows)} | {column['average'].mean():.3f} | "
        f"{column['nu = 0'].mean():.3f} | {column['chosen'].mean():.3f} | "
        f"{column['chosen'].mean() / better:.3f} | "
        f"{np.median(column['chosen']) / middle:.3f} | {robust}/{len(rows)} | {seconds:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--activations", nargs="+", default=["identity", "relu"])
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--cache", type=Path, default=Path("out/bench/packages"))
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "| table | activation | splits | average | nu = 0 | chosen | chosen / better, means "
        "| same, medians | robust | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    results = {}
    for name in args.tables:
        limit, activations = LARGE.get(name, (args.splits, tuple(args.activations)))
        for activation in activations:
            try:
                X, y, groups = SOURCES[name].load(activation, args.cache)
            except Unavailable as error:
                print(f"{name}: left out, {error}", flush=True)
                break
            if activation != "identity":
                y = y - y.min()  # such a neuron says nothing below zero
            rows = [
                compare(X, y, groups, activation, split) for split in range(min(limit, args.splits))
            ]
            results[f"{name} {activation}"] = rows
            lines.append(summary(name, activation, rows))
            print(lines[-1], flush=True)
            (args.out / "choosing.json").write_text(json.dumps(results, indent=1))
            (args.out / "choosing.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
