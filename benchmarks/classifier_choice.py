"""What GroupDROClassifierCV chooses where robustness pays and where it cannot, on fresh rows.

    python benchmarks/classifier_choice.py

Four groups. "same": one law for all, so no fit can serve the worst group better than the plain
average, and choosing a robust one is a mistake. "other": the fourth group follows another
feature. Ratios are of the worst group's log loss on 4,000 fresh rows a group: the chosen fit over
logistic regression; below one is a gain. Fifteen draws each.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from counterpoise import GroupDROClassifier, GroupDROClassifierCV, worst_group_log_loss

Array = np.ndarray
SETTINGS = ((60, 12), (250, 3), (400, 12))
CHOICES = {
    "loss": dict(scoring="loss"),
    "error": dict(scoring="error"),
    "loss, alphas": dict(scoring="loss", alphas=(1e-8, 1e-2, 1e-1)),
}


def draw(law: str, seed: int, rows: int, features: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(4), rows)
    X = rng.normal(size=(len(groups), features))
    score = X[:, 0]
    if law == "other":
        score = np.where(groups == 3, 2 * X[:, 1], 2 * X[:, 0])
    return X, (score + rng.logistic(size=len(groups)) > 0).astype(int), groups


def main(draws: int = 15) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    head = f"{'law':<8}{'rows':>6}{'features':>10}  {'choice by':<14}"
    print(f"{head}{'robust':>8}{'mean':>8}{'worst':>8}")
    for law in ("same", "other"):
        for rows, features in SETTINGS:
            for name, options in CHOICES.items():
                robust, ratios = [], []
                for seed in range(draws):
                    X, y, groups = draw(law, seed, rows, features)
                    plain = GroupDROClassifier(nu=np.inf, prior="rows").fit(X, y, groups=groups)
                    chosen = GroupDROClassifierCV(**options).fit(X, y, groups=groups)
                    fresh = draw(law, 1000 + seed, 4000, features)
                    ours, before = (
                        worst_group_log_loss(fresh[1], fit.predict_proba(fresh[0]), groups=fresh[2])
                        for fit in (chosen, plain)
                    )
                    robust.append(chosen.robust_)
                    ratios.append(ours / before)
                print(
                    f"{law:<8}{rows:>6}{features:>10}  {name:<14}{np.mean(robust):>8.2f}"
                    f"{np.mean(ratios):>8.3f}{np.max(ratios):>8.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=15)
    main(parser.parse_args().draws)
