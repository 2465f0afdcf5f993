"""Where the fit comes from: data, options, versions, and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterable

from counterpoise.common.text import figure, size
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView
from counterpoise.report.words import moment, setting


def provenance_section(fit: FitView) -> Block:
    """List what the record knows of the data and the fit."""
    record, data = fit.record, fit.record.data
    command = None
    if record.command:
        command = b.code(record.command, "The command that makes this fit again")
    return b.section(
        "repeat",
        "Data and provenance",
        command,
        b.facts(_facts(fit)),
        b.bullets(data.notes) if data.notes else None,
        b.fold("Features", b.text(", ".join(data.features))) if data.features else None,
        b.fold("Options", b.facts((k, setting(v)) for k, v in sorted(record.options.items())))
        if record.options
        else None,
    )


def _facts(fit: FitView) -> Iterable[tuple[str, str]]:
    """Terms and values; those that are not known are left out."""
    record, data, model = fit.record, fit.record.data, fit.model
    if data.path:
        known = [data.format, size(data.bytes) if data.bytes else None]
        kind = ", ".join(part for part in known if part)
        yield "File", f"{data.path} ({kind})" if kind else data.path
    if data.digest:
        yield "Digest", data.digest
    read = {"memory": ", read into memory", "chunked": ", read in chunks"}.get(data.engine, "")
    yield "Rows", f"{data.rows:,}{read}"
    if data.target:
        yield "Target", data.target
    if data.group:
        how = ", side by side" if data.overlapping else ""
        yield "Group", ", ".join(data.group) + how
    if data.weight:
        yield "Weight column", data.weight
    if data.features:
        yield "Features", f"{len(data.features):,} columns, {data.encoded:,} after encoding"
    elif data.encoded:
        yield "Features", f"{data.encoded:,}"
    if record.made:
        took = f", in {figure(record.seconds)} s" if record.seconds else ""
        yield "Made", f"{moment(record.made)}{took}"
    yield "Passes", f"{model.n_passes_:,} over the data, {model.n_iter_:,} iterations"
    if (nu := getattr(model, "nu_", None)) is not None:
        yield "Robustness nu", f"{figure(float(nu))}, in units of the {fit.words.loss}"
    if record.versions:
        yield "Versions", ", ".join(f"{name} {v}" for name, v in record.versions.items())
