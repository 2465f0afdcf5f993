"""An estimate as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.text import BYTE_UNITS, size

if TYPE_CHECKING:
    from counterpoise.lm.training.estimate import Estimate

# Rows of memory; rows of zero bytes are left out.
ROWS = {
    "weights": "weights",
    "gradients": "gradients",
    "moments": "AdamW's moments",
    "copies": "working copies",
    "reference": "reference model",
    "activations": "activations",
    "logits": "logits and softmax",
    "recomputed": "one block, recomputed (not with the logits)",
    "evaluation": "evaluation (not with gradients)",
}
WIDTH = max(map(len, ROWS.values()))


def table(found: Estimate) -> str:
    """Lay out model, steps, evaluations, memory, work, time and disk."""
    shape, memory = found.shape, found.memory
    unit, name = unit_of(memory.total)
    lines = [
        _row("model", f"{shape.parameters:,} parameters, "
             f"{shape.parameters - shape.embeddings:,} without embeddings"),
        _row("steps", f"{found.steps:,} of {found.step_tokens:,} tokens: {found.tokens:,} tokens"),
        _row("batches", f"{_times(found.ranks, 'rank')}, each with "
             f"{_times(found.micro_batches, 'micro-batch', 'es')} of "
             f"{_times(found.micro_batch, 'sequence')} a step"),
        _row("evaluations", _evaluations(found)),
        _row("memory", f"of one rank, in {name}; {found.device.name}"),
    ]  # fmt: skip
    for row, title in ROWS.items():
        if value := getattr(memory, row):
            lines.append(f"  {title:{WIDTH}} {value / unit:9.2f}")
    lines.append(f"  {'at most':{WIDTH}} {memory.total / unit:9.2f}{_verdict(found)}")
    lines += [f"  {advice}" for advice in found.advice]
    work = f"{found.flops:.3g} operations"
    if found.evaluation_flops is not None:
        work += f", evaluations {found.evaluation_flops:.3g}"
    lines += [_row("work", work), _row("time", _time(found)), _row("disk", _disk(found))]
    return "\n".join(lines)


def _row(name: str, text: str) -> str:
    return f"{name:12} {text}"


def _times(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _evaluations(found: Estimate) -> str:
    tokens = found.evaluated_tokens
    if tokens is None:
        return f"{found.evaluations:,}; their tokens are unknown until the corpus is prepared"
    return f"{found.evaluations:,}, {tokens:,} tokens in all"


def _verdict(found: Estimate) -> str:
    if found.room is None or found.device.memory is None:
        return ""
    share = " for all ranks" if found.device.shared and found.ranks > 1 else ""
    there = f"{size(found.device.memory)}{share}, 10% kept free"
    return f"  {'fits' if found.fits else 'DOES NOT FIT'}: the device has {there}"


def _time(found: Estimate) -> str:
    hours = found.hours
    if hours is None or found.rate is None:
        return f"unknown on {found.device.name!r}; measure it with calibrate"
    shown = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
    if found.measured:
        how = f"{found.rate:.3g} operations a second, measured here"
    else:
        best = found.rate / found.device.utilisation
        how = f"{found.device.utilisation:.0%} of {best / 1e12:g} TFLOP/s (assumed)"
    without = " (without evaluations)" if found.evaluation_flops is None else ""
    return f"{shown}{without} at {how}"


def _disk(found: Estimate) -> str:
    kept = _times(found.checkpoints, "checkpoint")
    one = size(found.checkpoint_bytes)
    return f"{size(found.disk_bytes)} for {kept}; {one} for one with its optimizer"


def unit_of(number: float) -> tuple[int, str]:
    """Choose the unit for a column of bytes."""
    return next((unit for unit in BYTE_UNITS if number >= unit[0]), BYTE_UNITS[-1])
