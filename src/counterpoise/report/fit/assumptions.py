"""The theory's assumptions, checked group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.text import count
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.classes import ClassDiagnosis, GroupClassDiagnosis
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis, GroupDiagnosis

    AnyDiagnosis = Diagnosis | ClassDiagnosis

NAME, TITLE = "assumptions", "Do the theory's assumptions hold for this data?"
CLASS_TITLE = "What can a linear classifier do for each group?"
MEANINGS = {
    "tails": "no feature has tails heavier than exponential",
    "margin": "rows where the model is active vary in every direction",
    "sharpness": "the model's outputs distinguish good coefficients from bad",
    "labels": "no group's loss is dominated by a few rows",
    "rows": "there are as many rows as the theorem asks for",
}
CLASS_MEANINGS = {
    "rows": "there are rows enough of the rarest class",
    "classes": "every class has rows",
    "linear": "a linear score fitted to the group alone beats its class shares",
    "separable": "no linear score separates the classes exactly",
    "noise": "rows with equal or similar features have the same class",
}
HEADINGS = {"rows": "Enough rows"}
STATUSES = ("holds", "doubtful", "violated")


def assumption_section(fit: FitView) -> Block:
    """Show advice and verdicts; without a diagnosis, say how to get one."""
    found = fit.record.diagnosis
    classifies = fit.words.classifies
    title = CLASS_TITLE if classifies else TITLE
    theory = "The theory is on neurons with squared errors; it does not cover a classifier. "
    theory = f"{theory}The certificate below needs no assumption." if classifies else ""
    if found is None and classifies:
        return b.section(NAME, title, b.text(theory))
    if found is None:
        remedy = "counterpoise diagnose" if fit.record.command else "counterpoise.diagnose"
        return b.section(NAME, TITLE, b.text(f"Not checked for this fit; {remedy} does it."))
    checked = f"Checked on a sample of {count(found.sampled, 'row')}. Advice, most pressing first:"
    return b.section(
        NAME,
        title,
        b.text(f"{theory} {checked}".strip()),
        b.bullets(advice[:1].upper() + advice[1:] for advice in found.advice),
        b.facts(_tally(found, CLASS_MEANINGS if classifies else MEANINGS)),
        b.fold("Verdicts by group", _table(fit, found)),
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


def _table(fit: FitView, found: AnyDiagnosis) -> Block:
    columns = [("Group", "text"), ("Rows", "count")]
    columns += [(_heading(assumption), "verdict") for assumption in _assumptions(found)]
    columns += [("Noise floor", "number")]
    rows = [
        [
            str(group.label) or "(empty)",
            group.rows,
            *(list(verdict) for verdict in group.verdicts.values()),
            fit.words.shown(group.noise_floor),
        ]
        for group in sorted([*found.groups], key=_trouble)
    ]
    caption = (
        "Verdicts by group, most trouble first; open one to see the evidence. The noise floor is "
        f"the {fit.measure} that the same kind of model would leave if fitted to this group alone."
    )
    return b.table("verdict-table", caption, columns, rows, search=True)


def _trouble(group: GroupDiagnosis | GroupClassDiagnosis) -> tuple[int, int]:
    said = [verdict.status for verdict in group.verdicts.values()]
    return -said.count("violated"), -said.count("doubtful")
