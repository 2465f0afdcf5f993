"""Does the chosen fit hold up? Held-out worst-group risk over repeated splits of real tables.

    python benchmarks/choosing.py [--splits 5] [--tables NAME ...] [--no-boosting]

Every table is split 70/30 by group, again and again. Methods are fitted to the larger part and
judged on the other: mean squared errors of the worst group and of all rows, as ratios to least
squares. "chosen" is ``GroupDRONeuronCV("identity")``, which does not use the group to predict;
"chosen, group known" may. Beside them: what one would do instead in five minutes.

The tables of ``datasets/rtables.py`` were listed in advance. Every second one settled the rule of
choice ("deciding"); the others, and all tables of earlier benchmarks ("earlier"), only report. A
split is *harmed* if the chosen fit's worst group is more than 2 % worse than that of least squares.
The last table compares what `diagnose` answers with what happened. Tables are had as for
``run.py``. Writes ``choosing.json`` and ``choosing.md`` to ``out/bench``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from datasets import SOURCES
from datasets.rtables import HALVES, MOST_ROWS
from environments import Unavailable
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, diagnose

EARLIER = ["bikeshare", "crime", "compas", "flights-air-time", "flights-delay"]
TABLES = {**HALVES, "earlier": EARLIER}
SLACK = 1.02
PAID = 0.98  # a held-out ratio below this is a gain


def held_out(codes, rng, share=0.3):
    """A mask of rows to hold out, the same share of every group."""
    out = np.zeros(len(codes), dtype=bool)
    for k in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == k))
        out[rows[: max(1, round(share * len(rows)))]] = True
    return out


def least_squares(X, y, groups, Z, own):
    return plain(X, y)(Z)


def plain(X, y):
    """Least squares as we fit it, which leaves out directions in which features hardly vary.

    Without that, indicators that are nearly collinear (ames has 238) ruin its predictions.
    """
    return GroupDRONeuron("identity", nu=math.inf).fit(X, y).predict


def equal_weights(X, y, groups, Z, own):
    return GroupDRONeuron("identity", nu=math.inf).fit(X, y, groups=groups).predict(Z)


def worst_group(X, y, groups, Z, own):
    return GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups).predict(Z)


def dummies(X, y, groups, Z, own):
    K = groups.max() + 1
    return plain(np.c_[X, np.eye(K)[groups]], y)(np.c_[Z, np.eye(K)[own]])


def one_each(X, y, groups, Z, own):
    """One least squares per group with five rows per coefficient; dummies for the others."""
    out = dummies(X, y, groups, Z, own)
    for k in np.unique(own):
        rows = groups == k
        if rows.sum() >= 5 * (X.shape[1] + 1):
            out[own == k] = plain(X[rows], y[rows])(Z[own == k])
    return out


def boosting(X, y, groups, Z, own):
    return HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(Z)


def boosting_with_group(X, y, groups, Z, own):
    known = groups.max() < 255  # more categories than it takes
    model = HistGradientBoostingRegressor(
        random_state=0, categorical_features=[X.shape[1]] if known else None
    )
    return model.fit(np.c_[X, groups], y).predict(np.c_[Z, own])


METHODS = {
    "least squares": least_squares,
    "equal weights": equal_weights,
    "nu = 0": worst_group,
    "boosting": boosting,
    "group as a feature": dummies,
    "one fit per group": one_each,
    "boosting, group known": boosting_with_group,
}
BOOSTED = ("boosting", "boosting, group known")


def errors(y, predicted, groups):
    """Mean squared errors: of the worst group, and of all rows."""
    squares = (y - predicted) ** 2
    counts = np.bincount(groups)
    risks = np.bincount(groups, squares) / np.maximum(counts, 1)
    return float(risks[counts > 0].max()), float(squares.mean())


def one_split(X, y, groups, split, boosted=True):
    test = held_out(groups, np.random.default_rng(split))
    train = ~test
    given = (X[train], y[train], groups[train])
    row = {}
    for name, method in METHODS.items():
        if boosted or name not in BOOSTED:
            row[name] = errors(y[test], method(*given, X[test], groups[test]), groups[test])
    for name, known in (("chosen", False), ("chosen, group known", True)):
        began = time.perf_counter()
        model = GroupDRONeuronCV("identity", group_known=known, random_state=split)
        model.fit(*given[:2], groups=given[2])
        row[f"{name}: seconds"] = time.perf_counter() - began
        predicted = model.predict(X[test], groups=groups[test])
        row[name] = errors(y[test], predicted, groups[test])
        found = model.held_out_comparison()
        row[f"{name}: promised"] = found.ours.worst.value / found.plain.worst.value
        row[f"{name}: robust"] = bool(model.robust_)
        row[f"{name}: uses group"] = model.uses_group_
    answer = diagnose(*given, activation="identity", random_state=split).worth
    row["diagnosis"] = answer.answer
    return row


def ratio(rows, name, place=0):
    return np.array([row[name][place] / row["least squares"][place] for row in rows])


def by_means(rows, name, place=0):
    """Ratio of the mean errors over splits."""
    means = [np.mean([row[of][place] for row in rows]) for of in (name, "least squares")]
    return means[0] / means[1]


def geometric(values):
    return float(np.exp(np.mean(np.log(values))))


def table(results):
    shown = ["chosen", "chosen, group known", *list(METHODS)[1:]]
    shown = [name for name in shown if any(name in rows[0] for rows in results.values())]
    lines = ["| table | " + " | ".join(shown) + " | all rows: chosen | robust | harmed |",
             "|---" * (len(shown) + 4) + "|"]  # fmt: skip
    for name, rows in results.items():
        cells = [f"{by_means(rows, of):.3f}" for of in shown]
        harmed = int(np.sum(ratio(rows, "chosen") > SLACK))
        robust = sum(row["chosen: robust"] for row in rows)
        cells += [f"{by_means(rows, 'chosen', 1):.3f}", f"{robust}/{len(rows)}", str(harmed)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def summaries(results):
    """One line per half, for each method: geometric mean, median, share of splits harmed."""
    lines = ["| tables | method | worst group: mean | median | all rows: mean "
             "| splits harmed | tables above 1.02 | promised |", "|---" * 8 + "|"]  # fmt: skip
    for half, names in TABLES.items():
        own = {name: results[name] for name in names if name in results}
        if not own:
            continue
        rows = [row for group in own.values() for row in group]
        for name in ("chosen", "chosen, group known", *list(METHODS)[1:]):
            if name not in rows[0]:
                continue
            worst, average = ratio(rows, name), ratio(rows, name, 1)
            above = sum(by_means(group, name) > SLACK for group in own.values())
            promised = "-"
            if f"{name}: promised" in rows[0]:
                promised = f"{geometric([row[f'{name}: promised'] for row in rows]):.3f}"
            lines.append(
                f"| {half} ({len(own)}) | {name} | {geometric(worst):.3f} | {np.median(worst):.3f} "
                f"| {geometric(average):.3f} | {np.mean(worst > SLACK):.1%} | {above} "
                f"| {promised} |"
            )
    return lines


def confusion(results):
    """What `diagnose` answers against whether the best of two robust fits paid on held-out rows."""
    seen = Counter()
    for rows in results.values():
        for row in rows:
            best = min(row[name][0] for name in ("chosen", "nu = 0")) / row["least squares"][0]
            seen[row["diagnosis"], "paid" if best < PAID else "did not"] += 1
    lines = ["| diagnose | paid | did not |", "|---|---|---|"]
    for answer in ("yes", "uncertain", "no"):
        lines.append(f"| {answer} | {seen[answer, 'paid']} | {seen[answer, 'did not']} |")
    return lines


def main() -> None:
    every = [name for names in TABLES.values() for name in names]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--tables", nargs="+", default=every, choices=every)
    parser.add_argument("--no-boosting", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--cache", type=Path, default=Path("out/bench/packages"))
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    args.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in args.tables:
        try:
            X, y, groups = SOURCES[name].load("identity", args.cache)
        except Unavailable as error:
            print(f"{name}: left out, {error}", flush=True)
            continue
        if len(y) > MOST_ROWS:
            some = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
            X, y, groups = X[some], y[some], np.unique(groups[some], return_inverse=True)[1]
        results[name] = [
            one_split(X, y, groups, split, not args.no_boosting) for split in range(args.splits)
        ]
        print(table({name: results[name]})[-1], flush=True)
        (args.out / "choosing.json").write_text(json.dumps(results, indent=1))
    text = "\n\n".join("\n".join(f(results)) for f in (summaries, confusion, table))
    (args.out / "choosing.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
