"""The theory's assumptions, checked group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.text import count
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis, GroupDiagnosis

NAME, TITLE = "assumptions", "Do the theory's assumptions hold for this data?"
MEANINGS = {
    "tails": "no feature has tails heavier than exponential",
    "margin": "rows where the neuron is active vary in every direction",
    "sharpness": "the neuron's outputs distinguish good coefficients from bad",
    "labels": "no group's loss is dominated by a few rows",
    "rows": "there are as many rows as the theorem asks for",
}
HEADINGS = {"rows": "Enough rows"}
STATUSES = ("holds", "doubtful", "violated")


def assumption_section(fit: FitView) -> Block:
    """Show advice and verdicts; without a diagnosis, say how to get one."""
    found = fit.record.diagnosis
    if found is None and fit.words.classifies:
        words = "The theory is on neurons with squared errors; it does not cover a classifier."
        return b.section(NAME, TITLE, b.text(f"{words} The certificate below needs no assumption."))
    if found is None:
        remedy = "counterpoise diagnose" if fit.record.command else "counterpoise.diagnose"
        return b.section(NAME, TITLE, b.text(f"Not checked for this fit; {remedy} does it."))
    return b.section(
        NAME,
        TITLE,
        b.text(
            f"Checked on a sample of {count(found.sampled, 'row')}. Advice, most pressing first:"
        ),
        b.bullets(advice[:1].upper() + advice[1:] for advice in found.advice),
        b.facts(_tally(found)),
        _table(found),
    )


def _assumptions(found: Diagnosis) -> list[str]:
    return list(found.groups[0].verdicts)


def _heading(assumption: str) -> str:
    return HEADINGS.get(assumption, assumption.capitalize())


def _tally(found: Diagnosis) -> list[tuple[str, str]]:
    """How many groups meet each assumption."""
    out = []
    for assumption in _assumptions(found):
        said = [group.verdicts[assumption].status for group in found.groups]
        parts = ", ".join(f"{status} in {said.count(status):,}" for status in STATUSES
                          if status in said)  # fmt: skip
        meaning = MEANINGS.get(assumption, assumption)
        out.append((_heading(assumption), f"{meaning}: {parts}"))
    return out


def _table(found: Diagnosis) -> Block:
    columns = [("Group", "text"), ("Rows", "count")]
    columns += [(_heading(assumption), "verdict") for assumption in _assumptions(found)]
    columns += [("Noise floor", "number")]
    rows = [
        [
            str(group.label) or "(empty)",
            group.rows,
            *(list(verdict) for verdict in group.verdicts.values()),
            group.noise_floor,
        ]
        for group in sorted(found.groups, key=_trouble)
    ]
    caption = (
        "Verdicts by group, most trouble first; open one to see the evidence. The noise floor is "
        "the risk that a neuron fitted to this group alone would leave."
    )
    return b.table("verdict-table", caption, columns, rows, search=True)


def _trouble(group: GroupDiagnosis) -> tuple[int, int]:
    said = [verdict.status for verdict in group.verdicts.values()]
    return -said.count("violated"), -said.count("doubtful")
