"""Results of a study that never was: rules that differ by hundredths, seeds by tenths."""

from __future__ import annotations

import numpy as np

from counterpoise.lm.compare.results import Results
from counterpoise.lm.compare.scores import Tasks

DOMAINS = ("web", "code", "books", "wiki", "forums", "papers")
EFFECTS = {
    "static": 0.0,
    "uniform": 0.020,
    "dro": -0.015,
    "dro + extrapolation": -0.030,
    "chi2": -0.022,
    "chi2 + extrapolation": -0.034,
    "doremi": 0.004,
    "no reference": 0.012,
}


def study(
    effects=EFFECTS, *, seeds=5, domains=DOMAINS, evaluations=40, end=400_000_000, between=0.08,
    within=0.004, rng=0,
) -> Results:  # fmt: skip
    """Losses fall like a power of the tokens; ``between`` is what seeds share over all runs, and
    ``within`` what is left of a run's own."""
    rng = np.random.default_rng(rng)
    tokens = np.linspace(end / evaluations, end, evaluations).astype(int)
    part = tokens / end
    base = 2.4 + 0.25 * np.arange(len(domains))
    tilt = np.linspace(1.0, -1.0, len(domains))
    shared = between * rng.normal(size=(seeds, 1, len(domains)))
    rows = {name: [] for name in (
        "run", "seed", "step", "tokens", "domain", "loss", "driving_loss", "weight", "share",
        "epochs",
    )}  # fmt: skip
    for run, effect in effects.items():
        own = within * rng.normal(size=(seeds, 1, len(domains)))
        noise = 0.3 * within * rng.normal(size=(seeds, evaluations, len(domains)))
        gain = effect * part[:, None] ** 0.5 * (1.0 + 1.5 * tilt)
        loss = base + 1.1 * part[:, None] ** -0.3 - 1.1 + gain + shared + own + noise
        drift = -25 * effect * part[:, None] * tilt
        logits = drift + 0.05 * np.cumsum(rng.normal(size=noise.shape), axis=1) * (effect != 0)
        weight = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        for seed in range(seeds):
            for i in range(evaluations):
                for k, domain in enumerate(domains):
                    values = (
                        run, seed, 100 * (i + 1), int(tokens[i]), domain, loss[seed, i, k],
                        loss[seed, i, k] + 0.01, weight[seed, i, k], weight[seed, i, k],
                        float(part[i] * weight[seed, i, k] * 3),
                    )  # fmt: skip
                    for name, value in zip(rows, values, strict=True):
                        rows[name].append(value)
    return Results(**rows)


def curves(values, *, tokens=None, domains=("a",)) -> Results:
    """Results whose losses are given: ``values[run][seed]`` is a list of evaluations, each a number
    or a list of one for each domain."""
    rows = {name: [] for name in ("run", "seed", "step", "tokens", "domain", "loss")}
    for run, seeds in values.items():
        for seed, losses in enumerate(seeds):
            for i, now in enumerate(losses):
                for domain, loss in zip(domains, np.atleast_1d(now).tolist(), strict=True):
                    at = 100 * (i + 1) if tokens is None else tokens[i]
                    for name, value in zip(
                        rows, (run, seed, i + 1, at, domain, float(loss)), strict=True
                    ):
                        rows[name].append(value)
    missing = np.full(len(rows["run"]), np.nan)
    return Results(**rows, **dict.fromkeys(("driving_loss", "weight", "share", "epochs"), missing))


def scores(rows) -> Tasks:
    """From tuples of run, seed, tokens, task, metric and score."""
    columns = list(zip(*rows, strict=True))
    names = ("run", "seed", "tokens", "task", "metric", "score")
    how = {"stderr": 0.01, "shots": 0, "n": 100, "source": "local"}
    same = {name: [value] * len(rows) for name, value in how.items()}
    return Tasks(**dict(zip(names, map(list, columns), strict=True)), **same)
