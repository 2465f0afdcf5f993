"""What a cross-validation chose and why, in words, from the rows that it held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.assessment.choice import NEEDED_GAIN, SURE, Choice
from counterpoise.assessment.record import RiskComparison
from counterpoise.common.text import change, figure
from counterpoise.estimators.designs import FEATURE, OWN
from counterpoise.estimators.far_search import FarSearch
from counterpoise.estimators.search import Search
from counterpoise.rows.groups import label_list

Array = np.ndarray


def sentences(
    search: Search | FarSearch,
    choice: Choice,
    found: RiskComparison,
    results: dict[str, Any],
    plain: int,
) -> list[str]:
    """Say what was chosen, what it gains and costs, and what to beware of."""
    out = _plain(search, choice, results, plain)
    if choice.chosen != plain:
        out = _chosen(search, choice, found, results)
    if choice.dearer:
        out.append("A fit with a lower worst-group error costs more than you allow.")
    if choice.striking:
        out.append(
            f"On {choice.striking} of {len(results['fold_worst'][0])} folds, the error of the "
            "worst group is far higher than on the others: a few rows dominate it. Check these "
            "rows before trusting any fit."
        )
    groups = search.groups
    single = [label_list(groups.labels)[k] for k in np.flatnonzero(groups.sizes == 1)]
    if single:
        out.append(f"Groups with one row cannot be judged: {', '.join(map(str, single[:5]))}.")
    return out


def name_of(candidate: Any, nu: float) -> str:
    """A candidate's name within a sentence."""
    if candidate.group == OWN:
        if not candidate.pull:
            return "one fit per group"
        rows = "pseudo-row" if candidate.pull == 1 else "pseudo-rows"
        return f"partial pooling of the groups ({candidate.pull:g} {rows} per coefficient)"
    if candidate.pooled:
        return "the plain average with the group as a feature"
    extra = candidate.family.replace(FEATURE, "with the group as a feature")
    return f"nu = {nu:.3g}" + ("" if extra == "plain" else f" ({extra})")


def _chosen(
    search: Search | FarSearch, choice: Choice, found: RiskComparison, results: dict[str, Any]
) -> list[str]:
    candidate, measure = search.candidates[choice.chosen], search.measure
    words, what = measure.shown_words, name_of(candidate, results["nu"][choice.chosen])
    begin = f"Chose {what}"
    if candidate.group:
        begin = f"Use the group: {what} holds up best"
    before, after = (measure.shown(side.worst.value) for side in (found.plain, found.ours))
    averages = measure.shown(found.plain_average), measure.shown(found.ours_average)
    sure = results["beats_average"][choice.chosen]
    return [
        f"{begin}. On held-out rows, the {words} of the worst group is {figure(after)}, compared "
        f"with {figure(before)} for the plain average ({change(before, after)}; better in "
        f"{sure:.0%} of resamples). The average {words} is {figure(averages[1])}, compared with "
        f"{figure(averages[0])} ({change(*averages)})."
    ]


def _plain(
    search: Search | FarSearch, choice: Choice, results: dict[str, Any], plain: int
) -> list[str]:
    measure, best = search.measure, choice.best
    words = measure.shown_words
    worst = [measure.shown(results["worst_group_risk"][i]) for i in (plain, best)]
    if best == plain or worst[1] >= worst[0]:
        return [
            f"Chose the plain average over rows: the best other fit has no lower held-out {words} "
            f"on the worst group than its {figure(worst[0])}."
        ]
    what = name_of(search.candidates[best], results["nu"][best])
    if choice.overruled:
        return [
            f"Chose the plain average over rows: the best other fit, {what}, has a held-out "
            f"worst-group {words} of {figure(worst[1])}, compared with {figure(worst[0])}, but "
            "fits that were chosen without a fold do not help the worst group on it."
        ]
    sure = results["beats_average"][best]
    why = f"in {sure:.0%} of resamples, and {SURE:.0%} are needed to rule out chance"
    if sure >= SURE:
        why = (
            f"by less than {NEEDED_GAIN:.0%}" if not choice.dearer else "at a cost above your limit"
        )
    return [
        f"Chose the plain average over rows: the best other fit, {what}, has a held-out "
        f"worst-group {words} of {figure(worst[1])}, compared with {figure(worst[0])}, but beats "
        f"it only {why}."
    ]
