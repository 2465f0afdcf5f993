"""What the page about a fit says in words and tables: assumptions, certificate, how to repeat."""

from __future__ import annotations

import math
from typing import Any

from counterpoise.assessment.diagnosis.diagnose import ASSUMPTIONS, GroupDiagnosis
from counterpoise.assessment.diagnosis.verdicts import DOUBTFUL, HOLDS, VIOLATED
from counterpoise.assessment.record import FitRecord
from counterpoise.common.text import count, figure, size
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.words import setting

MEANINGS = {
    "tails": "no feature has rows that lie farther out than an exponential tail would have them",
    "margin": "rows where the neuron is active still vary in every direction",
    "sharpness": "what the neuron says tells good coefficients from bad ones",
    "labels": "no few rows decide a group's loss",
    "rows": "there are as many rows as the theorem asks for",
}
HEADINGS = {name: name.capitalize() for name in ASSUMPTIONS} | {"rows": "Enough rows"}


def verdict_section(record: FitRecord) -> Block:
    """Whether the theory speaks about these rows, group by group."""
    title, name = "Assumptions", "assumptions"
    found = record.diagnosis
    if found is None:
        words = "No diagnosis was kept with this fit; counterpoise diagnose makes one."
        return b.section(name, title, b.text(words))

    def trouble(group: GroupDiagnosis) -> tuple[int, int]:
        said = [verdict.status for verdict in group.verdicts.values()]
        return -said.count(VIOLATED), -said.count(DOUBTFUL)

    groups = sorted(found.groups, key=trouble)
    columns = [("Group", "text"), ("Rows", "count")]
    columns += [(HEADINGS[assumption], "verdict") for assumption in ASSUMPTIONS]
    columns += [("Noise floor", "number")]
    rows = [
        [
            str(group.label) or "(empty)",
            group.rows,
            *(list(group.verdicts[assumption]) for assumption in ASSUMPTIONS),
            group.noise_floor,
        ]
        for group in groups
    ]
    tally = []
    for assumption in ASSUMPTIONS:
        said = [group.verdicts[assumption].status for group in groups]
        parts = [f"{said.count(s):,} {s}" for s in (HOLDS, DOUBTFUL, VIOLATED) if s in said]
        tally.append((HEADINGS[assumption], f"{MEANINGS[assumption]}: {', '.join(parts)}"))
    return b.section(
        name,
        title,
        b.text(
            "What the theory takes for granted, checked on a sample of "
            f"{count(found.sampled, 'row')}. What to do, most pressing first:"
        ),
        b.bullets(advice[:1].upper() + advice[1:] for advice in found.advice),
        b.facts(tally),
        b.table(
            "verdict-table",
            "Verdicts by group, most trouble first; open one for its evidence. The noise floor is "
            "what a neuron of the group's own would leave of its risk.",
            columns,
            rows,
            search=True,
        ),
    )


def certificate_section(model: Any) -> Block:
    """What was proved about the fit, in words."""
    found = model.certificate_
    items = [("Risk at the returned coefficients", figure(found.risk))]
    if found.duality_gap is None:
        items.append(
            (
                "Duality gap",
                "none: with this activation the problem is not convex, and no bound on the "
                "distance to the least risk can be computed",
            )
        )
    else:
        items.append(
            (
                "Duality gap",
                f"{figure(found.duality_gap)}: no coefficients have a risk that is lower by more; "
                "this is proved, whatever the data",
            )
        )
    slack = (
        "not above 0, the steps paid for their errors, so that the theorem's inequality holds if "
        f"the sharpness is at least {figure(found.c1_assumed)}"
    )
    if found.running_slack > 0:
        slack = "above 0, the steps did not pay for all their errors; bounds include the excess"
    items += [
        (
            "Running slack",
            f"{figure(found.running_slack)}: what the steps of Algorithm 1 have lost beyond what "
            f"the theorem allows, added up. {slack[:1].upper()}{slack[1:]}",
        ),
        (
            "Sharpness c1",
            f"{figure(found.c1)} ({found.c1_source}): how much the outputs change when the "
            "coefficients do. The bounds below are given for this value",
        ),
        (
            "Distance to a minimiser, returned coefficients",
            f"at most {figure(found.returned_bound)}"
            if math.isfinite(found.returned_bound)
            else "no bound can be given",
        ),
        (
            "Distance to a minimiser, last iterate of Algorithm 1",
            f"at most {figure(found.theorem_bound)}"
            if math.isfinite(found.theorem_bound)
            else "no bound can be given",
        ),
        (
            "Spread of the labels, to compare with",
            f"{figure(math.sqrt(found.label_scale))}; distances are measured {found.metric}",
        ),
    ]
    return b.section("certificate", "Certificate", b.text(str(found)), b.facts(items))


def repeat_section(model: Any, record: FitRecord) -> Block:
    """The data, the options, and the command that makes the fit again."""
    data = record.data
    weight = [("Column of weights", data.weight)] if data.weight else []
    items = [
        ("File", f"{data.path} ({data.format}, {size(data.bytes)})"),
        ("Digest", data.digest),
        ("Rows", f"{data.rows:,}, read by the {data.engine} engine"),
        ("Target", data.target),
        ("Group", ", ".join(data.group) or "none"),
        *weight,
        ("Features", f"{len(data.features):,} columns, {data.encoded:,} after encoding"),
        ("Made", f"{record.made}, in {figure(record.seconds)} s"),
        ("Passes", f"{model.n_passes_:,} reads of the rows, {model.n_iter_:,} iterations"),
        ("nu", f"{figure(float(model.nu_))}, in units of the risk"),
        ("Versions", ", ".join(f"{name} {v}" for name, v in record.versions.items())),
    ]
    parts = [
        b.code(record.command, "The command that makes this fit again"),
        b.facts(items),
        b.bullets(data.notes) if data.notes else None,
        b.fold("Features", b.text(", ".join(data.features) or "none")),
        b.fold("Options", b.facts((k, setting(v)) for k, v in sorted(record.options.items()))),
    ]
    return b.section("repeat", "The data, and how to repeat it", *parts)
