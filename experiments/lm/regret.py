"""Regret of the weights in the studies' stored runs, beside its bound.

    python -m experiments.lm.regret [STUDY ...] [--out FILE]

Replays every run of `experiments/lm/STUDY` whose weights were moved by evaluations: the stored
losses of the driving split go through a `Reweighter` with the run's settings, whose weights must be
those that were stored. Its certificate gives the regret and the bound. The driving split's
reference losses were not stored. A run without extrapolation determines them up to a constant,
and Sheared LLaMA's rule, which clips, the constant. Prints means over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise import Reweighter
from counterpoise.lm.compare.markdown import aligned
from counterpoise.lm.compare.study import Study, load_study
from counterpoise.reweight.certificate import WeightCertificate
from counterpoise.reweight.rules import LIFT

Array = np.ndarray
HERE = Path(__file__).parent
STUDIES = ("continued", "redpajama", "registry", "control")
PLAIN = ("pd-kl, extrapolation 0", "pd-kl, extrapolation 0, step 1.25")
OPTIONS = ("step", "nu", "extrapolation", "smoothing", "clip", "ema", "floor", "cap")
RULES = ("pd-kl", "pd-chi2", "sheared")
REPLAYED = 2e-3  # the largest difference of a replayed weight; stored ones have six digits


def evaluations(study: Study, run: str, seed: int) -> tuple[list[str], Array, Array]:
    """Return domains, driving losses (T, K) and weights after each evaluation (T, K).

    A last evaluation that comes early, at the end of training, moves nothing and is left out.
    """
    found = study.results
    at = np.flatnonzero((found.run == run) & (found.seed == seed))
    domains = list(dict.fromkeys(found.domain[at].tolist()))
    shape = (len(at) // len(domains), len(domains))
    step = found.step[at].reshape(shape)[:, 0]
    due = step % step[1] == 0
    losses, weights = found.driving_loss[at].reshape(shape), found.weight[at].reshape(shape)
    return domains, losses[due], weights[due]


def settings_of(study: Study, run: str) -> dict[str, Any]:
    """Return the table [reweight] of a run, without what its rule does not need."""
    table = dict(study.about["settings"]["reweight"])
    for one in study.about["settings"]["compare"]["run"]:
        if one["name"] == run:
            for key, value in one["set"].items():
                section, _, name = key.partition(".")
                if section == "reweight":
                    table[name] = value
    return table


def references(study: Study) -> Array:
    """Infer the driving split's references, up to a constant, from a run without extrapolation."""
    run = next(name for name in PLAIN if name in set(study.results.run.tolist()))
    domains, losses, weights = evaluations(study, run, int(study.results.seed.min()))
    table = settings_of(study, run)
    smoothing, K = table["smoothing"], len(domains)
    lam = np.vstack([weights[0], (weights[1:] - smoothing / K) / (1.0 - smoothing)])
    clear = lam.min(axis=1) > 1e-3  # smaller ones have lost their digits
    moved = np.log(lam[1:]) - np.log(lam[:-1] + LIFT)
    found = losses[1:] - moved / table["step"]
    found = found - found.mean(axis=1, keepdims=True)
    kept = clear[1:] & clear[:-1]
    level = float(np.mean(list((study.references or {}).values())))
    shape = np.median(found[kept] if kept.any() else found, axis=0)
    return shape + _constant(study, shape, level)


def _constant(study: Study, shape: Array, level: float) -> float:
    """Return the constant with which the clipping rule's weights are replayed best."""
    seed = int(study.results.seed.min())

    def differs(constant: float) -> float:
        return replayed(study, "sheared", seed, shape + constant)[1]

    for width, parts in ((0.6, 401), (0.01, 41), (0.001, 41), (0.0001, 41)):
        level = min(level + width * np.linspace(-1.0, 1.0, parts), key=differs)
    return float(level)


def replayed(
    study: Study, run: str, seed: int, reference: Array
) -> tuple[WeightCertificate, float]:
    """Return a run's certificate, and the largest difference from the stored weights."""
    table = settings_of(study, run)
    domains, losses, weights = evaluations(study, run, seed)
    options = {k: table[k] for k in OPTIONS if table.get(k) is not None}
    first = np.maximum(weights[0], 1e-12) / np.maximum(weights[0], 1e-12).sum()
    ours = Reweighter(
        domains,
        table["rule"],
        start=first,
        prior=None if table["prior"] == "uniform" else first,
        reference=reference,
        **options,
    )
    worst = 0.0
    for t in range(1, len(losses)):
        worst = max(worst, float(np.abs(ours.update(losses[t]) - weights[t]).max()))
    return ours.certificate(), worst


def certificates(study: Study) -> Iterator[tuple[str, WeightCertificate, float]]:
    """Yield run, certificate and the largest difference from the stored weights, for all seeds."""
    reference, done = references(study), study.results
    for run in dict.fromkeys(done.run.tolist()):
        asked = settings_of(study, run)
        if asked["rule"] in RULES and asked["losses"] == "evaluation":
            for seed in dict.fromkeys(done.seed[done.run == run].tolist()):
                yield run, *replayed(study, run, seed, reference)


def table(name: str) -> str:
    """Tabulate a study: means over seeds, and the largest ratio of a regret to its bound."""
    rows: dict[str, list[WeightCertificate]] = {}
    for run, found, worst in certificates(load_study(HERE / name)):
        if worst > REPLAYED:
            raise ValueError(f"{name}, {run}: a replayed weight differs by {worst:.2g}")
        rows.setdefault(run, []).append(found)
    body = []
    for run, every in rows.items():
        regrets = np.array([one.regret for one in every])
        bounds = np.array([one.bound for one in every], dtype=float)
        figures = (regrets.mean(), bounds.mean(), (regrets / bounds).max())
        body.append([run, str(len(every)), *(f"{x:.3f}" for x in figures)])
    return aligned([name, "seeds", "regret", "bound", "largest regret / bound"], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("studies", nargs="*", default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = "\n\n".join(table(name) for name in given.studies) + "\n"
    print(text, end="")
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
