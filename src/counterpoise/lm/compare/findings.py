"""Say in sentences how the runs of a comparison end."""

from __future__ import annotations

import numpy as np

from counterpoise.common.text import count, listed
from counterpoise.lm.compare.study import Study
from counterpoise.lm.compare.summary import Difference

MOST = 8  # names in a sentence


def findings(study: Study) -> list[str]:
    """Compare the runs of the first group with its baseline, a sentence for each metric.

    With several seeds, a run counts as lower or higher if the 95 % interval of its paired
    difference excludes zero. One seed gives no interval, so only the losses are stated.

    Examples
    --------
    With one seed: "One seed: no interval.", "Average loss: static 3.120, pd-kl 3.090."
    """
    group = next(iter(study.groups))
    by_metric = {metric: study.differences(metric, group) for metric in study.metrics}
    seeds = max(len(study.results.seeds(run)) for run in study.results.runs)
    if seeds == 1:
        return ["One seed: no interval.", *(_losses(study, metric) for metric in study.metrics)]
    if not any(by_metric.values()):
        return [_losses(study, metric) for metric in study.metrics]
    against = study.groups[group]["against"]
    said = [_clear(metric, found, against) for metric, found in by_metric.items()]
    return [f"Paired differences over {_seeds(by_metric)}, by their 95 % intervals:", *said]


def _losses(study: Study, metric: str) -> str:
    """State where every run of the first group ends, the lowest first."""
    results = study.results
    ends = {
        run: np.mean([
            results.curve(run, seed, metric, study.references)[1][-1]
            for seed in results.seeds(run)
        ])
        for run in study.shown
    }  # fmt: skip
    ordered = sorted(ends, key=lambda run: float(ends[run]))
    return f"{_title(metric)}: {listed([f'{run} {ends[run]:.3f}' for run in ordered], MOST)}."


def _clear(metric: str, found: list[Difference], against: str) -> str:
    """State which runs differ from the baseline."""
    lower = [d.run for d in found if d.high < 0]
    higher = [d.run for d in found if d.low > 0]
    if not (lower or higher):
        return f"{_title(metric)}: no run differs clearly from {against}."
    said = [
        f"{word} than {against} for {listed(runs, MOST)}"
        for word, runs in (("lower", lower), ("higher", higher))
        if runs
    ]
    return f"{_title(metric)}: {'; '.join(said)}."


def _title(metric: str) -> str:
    words = metric if metric.endswith("excess") else f"{metric} loss"
    return words[:1].upper() + words[1:]


def _seeds(by_metric: dict[str, list[Difference]]) -> str:
    numbers = sorted({d.n for found in by_metric.values() for d in found})
    if len(numbers) == 1:
        return count(numbers[0], "seed")
    return f"{numbers[0]} to {numbers[-1]} seeds"
