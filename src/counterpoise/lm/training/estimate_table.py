"""An estimate as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterpoise.lm.training.estimate import Estimate

# Rows of memory; those that are zero are left out.
PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "moments": "AdamW's moments",
    "copies": "copies to compute with",
    "reference": "reference model",
    "activations": "activations",
    "logits": "logits and softmax",
    "recomputed": "one block again (not with the logits)",
    "evaluation": "evaluation (not with gradients)",
}
WIDTH = max(map(len, PARTS.values()))
UNITS = {10**12: "TB", 10**9: "GB", 10**6: "MB", 10**3: "kB"}


def table(found: Estimate) -> str:
    """Several lines: model, steps, evaluations, memory, work, time, disk."""
    shape, memory = found.shape, found.memory
    unit = unit_of(memory.total)
    lines = [
        _row("model", f"{shape.parameters:,} parameters, "
             f"{shape.parameters - shape.embeddings:,} without embeddings"),
        _row("steps", f"{found.steps:,} of {found.step_tokens:,} tokens: {found.tokens:,} tokens"),
        _row("batches", f"{_times(found.ranks, 'rank')}, {_times(found.parts, 'part')} of a step "
             f"on each, {_times(found.micro_batch, 'sequence')} in a part"),
        _row("evaluations", _evaluations(found)),
        _row("memory", f"of one rank, in {UNITS[unit]}; {found.device.name}"),
    ]  # fmt: skip
    for name, title in PARTS.items():
        if value := getattr(memory, name):
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


def _times(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _evaluations(found: Estimate) -> str:
    tokens = found.evaluated_tokens
    if tokens is None:
        return f"{found.evaluations:,}; their tokens are known when the corpus is prepared"
    return f"{found.evaluations:,}, of {tokens:,} tokens in all"


def _verdict(found: Estimate) -> str:
    if found.room is None or found.device.memory is None:
        return ""
    share = " for all ranks" if found.device.shared and found.ranks > 1 else ""
    there = f"{shown_bytes(found.device.memory)}{share}, a tenth left free"
    return f"  {'fits' if found.fits else 'DOES NOT FIT'}: there are {there}"


def _time(found: Estimate) -> str:
    hours = found.hours
    if hours is None or found.rate is None:
        return f"not known on {found.device.name!r}; it can be measured (calibrate)"
    shown = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
    if found.measured:
        how = f"{found.rate:.3g} operations a second, measured here"
    else:
        best = found.rate / found.device.utilisation
        how = f"{found.device.utilisation:.0%} of {best / 1e12:g} TFLOP/s, which is assumed"
    without = " (without evaluations)" if found.evaluation_flops is None else ""
    return f"{shown}{without} at {how}"


def _disk(found: Estimate) -> str:
    kept = _times(found.checkpoints, "checkpoint")
    one = shown_bytes(found.checkpoint_bytes)
    return f"{shown_bytes(found.disk_bytes)} for {kept}; one with the optimizer has {one}"


def unit_of(size: float) -> int:
    """The unit that a number of bytes is shown in."""
    return next((unit for unit in UNITS if size >= unit), min(UNITS))


def shown_bytes(size: float) -> str:
    """
    >>> shown_bytes(16_145_080_320), shown_bytes(13_416_960)
    ('16.1 GB', '13.4 MB')
    """
    unit = unit_of(size)
    return f"{size / unit:.1f} {UNITS[unit]}"
