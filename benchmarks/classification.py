"""Worst-group accuracy on rows held out, beside what people use instead.

    python benchmarks/classification.py [--quick] [--splits 10] [--tables NAME ...]
                                        [--methods NAME ...]

Tables have a binary label and attributes of people (``datasets/tables.py``). Groups are the
attribute's values, or label and value together as in studies of spurious correlations; the
methods get the groups of the rows they train on, and no method sees the attribute as a feature.
Every table is split 70/30 within label and attribute, again and again. On the held-out part,
accuracy is taken in every group; the table shows the worst group's and that of all rows, means
over splits with their standard errors (of the splits alone: the rows are always the same). The
smallest of several noisy numbers is too low on average, most with small groups, for every method
alike; groups with fewer than SMALLEST rows held out are not judged. ``lead`` is group DRO's
(nu = 0) worst group above the best of the others, split by split.

Writes ``classification.json`` and ``classification.md`` to ``out/bench``. ``--quick`` takes the
three smaller tables and three splits.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import numpy as np
from choosing import held_out
from datasets.tables import TABLES, title
from environments import Unavailable
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import GroupDROClassifier

QUICK = ("compas", "german", "credit")
SMALLEST = 20  # rows held out that a group needs to be judged


def balanced(groups):
    """Weights of rows that give every group the same total, and a mean of one."""
    counts = np.bincount(groups)
    return (len(groups) / np.count_nonzero(counts) / np.maximum(counts, 1))[groups]


def subsample(groups, rng):
    """As many rows of every group as the smallest has."""
    counts = np.bincount(groups)
    least = counts[counts > 0].min()
    rows = [rng.permutation(np.flatnonzero(groups == k))[:least] for k in np.unique(groups)]
    return np.concatenate(rows)


def logistic(X, y, weight=None):
    """scikit-learn's, with its own ridge, on standardised features."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return model.fit(X, y, logisticregression__sample_weight=weight)


def boosting(X, y, weight=None):
    return HistGradientBoostingClassifier(random_state=0).fit(X, y, sample_weight=weight)


def fit_subsampled(X, y, groups, split):
    rows = subsample(groups, np.random.default_rng(split))
    return logistic(X[rows], y[rows])


def worst_group(X, y, groups, split):
    return GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)


def chosen(X, y, groups, split):
    from counterpoise import GroupDROClassifierCV

    return GroupDROClassifierCV(random_state=split).fit(X, y, groups=groups)


# Those that need no groups are fitted once, whatever the groups are.
PLAIN = {"logistic regression": logistic, "boosting": boosting}
GROUPED = {
    "logistic, balanced groups": lambda X, y, g, split: logistic(X, y, balanced(g)),
    "logistic, subsampled groups": fit_subsampled,
    "boosting, balanced groups": lambda X, y, g, split: boosting(X, y, balanced(g)),
    "group DRO, nu = 0": worst_group,
    "group DRO, chosen": chosen,
}
METHODS = (
    "logistic regression", "logistic, balanced groups", "logistic, subsampled groups", "boosting",
    "boosting, balanced groups", "group DRO, nu = 0", "group DRO, chosen",
)  # fmt: skip
OURS = "group DRO, nu = 0"


def judge(model, X, y, groups):
    """Accuracy of the worst group and of all rows; the worst group's mean log loss."""
    right = model.predict(X) == y
    p = model.predict_proba(X)[np.arange(len(y)), y]
    loss = -np.log(np.clip(p, 1e-12, None))
    counts = np.bincount(groups)
    kept = counts >= min(SMALLEST, counts.max())
    share = np.bincount(groups, weights=right)[kept] / counts[kept]
    losses = np.bincount(groups, weights=loss)[kept] / counts[kept]
    return {
        "worst": share.min(), "average": right.mean(), "balanced": share.mean(),
        "worst log loss": losses.max(),
    }  # fmt: skip


def timed(fit, *given):
    began = time.perf_counter()
    return fit(*given), time.perf_counter() - began


def compare(table, groupings, methods, split):
    """Every method on one split, for all groupings: a mapping for each."""
    # The same rows are held out whatever the groups are: the finest cut decides.
    finest = max((table.groups(a, True) for a in table.attributes), key=np.max)
    test = held_out(finest, np.random.default_rng(split))
    train = ~test
    X, y = table.X[train], table.y[train]
    fits = {name: timed(PLAIN[name], X, y) for name in methods if name in PLAIN}
    found = []
    for groups in groupings:
        here = fits | {
            name: timed(GROUPED[name], X, y, groups[train], split)
            for name in methods
            if name in GROUPED
        }
        held = table.X[test], table.y[test], groups[test]
        found.append({name: {"seconds": here[name][1], **judge(here[name][0], *held)}
                      for name in methods})  # fmt: skip
    return found


def mean(values) -> str:
    """Mean and standard error of percentages."""
    values = 100.0 * np.asarray(values)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{values.mean():.1f} ± {error:.1f}"


def lead(rows) -> str:
    """Our worst group above the best of the methods that are not ours, split by split."""
    others = [name for name in rows[0] if not name.startswith("group DRO")]
    if OURS not in rows[0] or not others:
        return "-"
    best = max(others, key=lambda name: np.mean([row[name]["worst"] for row in rows]))
    gain = [row[OURS]["worst"] - row[best]["worst"] for row in rows]
    return f"{mean(gain)} over {best}"


def section(name, rows, sizes) -> str:
    lines = [
        f"## {name}",
        f"{sum(sizes):,} rows in {len(sizes)} groups of {min(sizes):,} to {max(sizes):,}; "
        f"{len(rows)} splits. Lead in the worst group: {lead(rows)}.",
        "",
        "| method | worst group, % | all rows, % | mean of groups, % | worst group's log loss "
        "| seconds |",
        "|---|---|---|---|---|---|",
    ]
    for method in rows[0]:
        got = {key: [row[method][key] for row in rows] for key in rows[0][method]}
        lines.append(
            f"| {method} | {mean(got['worst'])} | {mean(got['average'])} | "
            f"{mean(got['balanced'])} | {np.mean(got['worst log loss']):.3f} | "
            f"{np.mean(got['seconds']):.2g} |"
        )
    return "\n".join(lines)


def overview(results, methods) -> str:
    """All problems: worst-group accuracies alone."""
    lines = [f"| groups | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for name, rows in results.items():
        cells = [mean([row[method]["worst"] for row in rows]) for method in methods]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three small tables, three splits")
    parser.add_argument("--splits", type=int)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args(arguments)
    given.tables = given.tables or list(QUICK if given.quick else TABLES)
    given.splits = given.splits or (3 if given.quick else 10)
    return given


def main(arguments=None) -> None:
    given = parse(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    given.out.mkdir(parents=True, exist_ok=True)
    results, sections = {}, []
    for name in given.tables:
        try:
            table = TABLES[name](given.out / "packages")
        except Unavailable as error:
            print(f"{name}: left out, {error}", flush=True)
            continue
        cuts = [(a, with_label) for a in table.attributes for with_label in (False, True)]
        groupings = [table.groups(*cut) for cut in cuts]
        runs = [compare(table, groupings, given.methods, split) for split in range(given.splits)]
        for cut, groups, rows in zip(cuts, groupings, zip(*runs, strict=True), strict=True):
            about = title(name, *cut)
            results[about] = rows
            sections.append(section(about, rows, np.bincount(groups).tolist()))
            print(sections[-1], end="\n\n", flush=True)
        write(given, results, sections)
    print(overview(results, given.methods))


def write(given, results, sections) -> None:
    head = "# Worst-group accuracy on rows held out\n\n" + overview(results, given.methods)
    (given.out / "classification.json").write_text(json.dumps(results, indent=1))
    (given.out / "classification.md").write_text("\n\n".join([head, *sections]) + "\n")


if __name__ == "__main__":
    main()
