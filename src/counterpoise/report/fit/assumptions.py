"""The diagnosis, group by group: the theory's assumptions, or what a linear score can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterpoise.common.text import count
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.classes import ClassDiagnosis
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis

    AnyDiagnosis = Diagnosis | ClassDiagnosis

NAME, TITLE = "assumptions", "Do the theory's assumptions hold for this data?"
CLASS_TITLE = "What can a linear classifier do for each group?"
# The checks of a classifier; the theory's assumptions, below, are on neurons.
CLASS_MEANINGS = {
    "rows": "there are several rows for each coefficient",
    "classes": "every class has rows in the group",
    "linear": "a linear score fitted to the group alone beats its class shares",
    "separable": "no linear score separates the classes, which would make it grow without end",
    "noise": "rows that are alike have the same class",
}
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
    found, classes = fit.record.diagnosis, fit.words.classifies
    title = CLASS_TITLE if classes else TITLE
    if found is None:
        remedy = "counterpoise diagnose"
        if not fit.record.command:
            remedy = "counterpoise.diagnose_classes" if classes else "counterpoise.diagnose"
        return b.section(NAME, title, b.text(f"Not checked for this fit; {remedy} does it."))
    return b.section(
        NAME,
        title,
        b.text(
            f"Checked on a sample of {count(found.sampled, 'row')}. Advice, most pressing first:"
        ),
        b.bullets(advice[:1].upper() + advice[1:] for advice in found.advice),
        b.facts(_tally(found, CLASS_MEANINGS if classes else MEANINGS)),
        _table(found, classes=classes),
    )


def _assumptions(found: AnyDiagnosis) -> list[str]:
    return list(found.groups[0].verdicts)


def _heading(assumption: str) -> str:
    return HEADINGS.get(assumption, assumption.capitalize())


def _tally(found: AnyDiagnosis, meanings: dict[str, str]) -> list[tuple[str, str]]:
    """How many groups meet each assumption."""
    out = []
    for assumption in _assumptions(found):
        said = [group.verdicts[assumption].status for group in found.groups]
        parts = ", ".join(f"{status} in {said.count(status):,}" for status in STATUSES
                          if status in said)  # fmt: skip
        meaning = meanings.get(assumption, assumption)
        out.append((_heading(assumption), f"{meaning}: {parts}"))
    return out


def _table(found: AnyDiagnosis, *, classes: bool) -> Block:
    columns = [("Group", "text"), ("Rows", "count")]
    columns += [(_heading(assumption), "verdict") for assumption in _assumptions(found)]
    columns += [("Own fit" if classes else "Noise floor", "number")]
    groups: Any = found.groups
    rows = [
        [
            str(group.label) or "(empty)",
            group.rows,
            *(list(verdict) for verdict in group.verdicts.values()),
            group.own_loss if classes else group.noise_floor,
        ]
        for group in sorted(groups, key=_trouble)
    ]
    caption = "Verdicts by group, most trouble first; open one to see the evidence. " + (
        "The own fit is the loss that a classifier fitted to this group alone would leave."
        if classes
        else "The noise floor is the risk that a neuron fitted to this group alone would leave."
    )
    return b.table("verdict-table", caption, columns, rows, search=True)


def _trouble(group: Any) -> tuple[int, int]:
    said = [verdict.status for verdict in group.verdicts.values()]
    return -said.count("violated"), -said.count("doubtful")
