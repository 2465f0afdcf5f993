"""What got slower: ratios of two times measured together, beside those of a record.

A ratio of ours to a peer's, or to a plain read of the rows, is much the same on a fast and a slow
machine. Nothing here measures anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

# A change of less than this share is never blamed, however quiet the machine was.
LEAST = 0.15
# Changes within this many times the spread of both measurements are noise.
SPREADS = 3.0
# A case that is noisier than this says nothing, so its tolerance grows no further.
MOST = 0.6
# How often a ratio that looks worse is measured again.
AGAIN = 2

WORSE, BETTER, SAME, NEW, GONE = "slower", "faster", "as before", "new", "not measured"


@dataclass(frozen=True)
class Ratio:
    """A ratio of least times, and how far those of half the runs each are from it (a share)."""

    value: float
    spread: float


@dataclass(frozen=True)
class Verdict:
    """One ratio beside its record; ``recorded`` or ``now`` is None if there is none."""

    name: str
    recorded: Ratio | None
    now: Ratio | None
    kind: str

    @property
    def change(self) -> float | None:
        """The relative change, 0.2 if the ratio is a fifth larger than it was."""
        if self.recorded is None or self.now is None:
            return None
        return self.now.value / self.recorded.value - 1.0


def ratio_of(ours: Sequence[float], base: Sequence[float]) -> Ratio:
    """The ratio of the least times of runs that took turns.

    >>> ratio_of([2.0, 2.2], [1.0, 1.1])
    Ratio(value=2.0, spread=0.0)
    """
    value = min(ours) / min(base)
    halves = [min(ours[i::2]) / min(base[i::2]) for i in (0, 1) if len(ours) > 1]
    return Ratio(value, max((abs(half / value - 1.0) for half in halves), default=0.0))


def tolerance(recorded: Ratio, now: Ratio) -> float:
    """The relative change up to which two ratios count as the same.

    >>> tolerance(Ratio(2.0, 0.01), Ratio(2.0, 0.02)), tolerance(Ratio(2.0, 0.1), Ratio(2.0, 0.02))
    (0.15, 0.36)
    """
    return min(MOST, max(LEAST, round(SPREADS * (recorded.spread + now.spread), 12)))


def judged(name: str, recorded: Ratio | None, now: Ratio | None) -> Verdict:
    """Compare a ratio with its record."""
    if now is None or not math.isfinite(now.value):
        return Verdict(name, recorded, None, GONE)
    if recorded is None:
        return Verdict(name, None, now, NEW)
    allowed = 1.0 + tolerance(recorded, now)
    kind = SAME
    if now.value > recorded.value * allowed:
        kind = WORSE
    elif now.value < recorded.value / allowed:
        kind = BETTER
    return Verdict(name, recorded, now, kind)


def checked(
    name: str, recorded: Ratio | None, measure: Callable[[], Ratio | None], again: int = AGAIN
) -> Verdict:
    """Measure a ratio and compare it; repeat one that looks worse before blaming it.

    The least of all repeats counts: other programs only ever make a ratio larger or uncertain.
    """
    found = judged(name, recorded, measure())
    for _ in range(again):
        if found.kind != WORSE:
            break
        assert found.now is not None
        next_one = measure()
        if next_one is not None and next_one.value < found.now.value:
            found = judged(name, recorded, next_one)
    return found


def compare(recorded: Mapping[str, Ratio], now: Mapping[str, Ratio | None]) -> list[Verdict]:
    """Compare all ratios, those of the record first."""
    names = [*recorded, *(name for name in now if name not in recorded)]
    return [judged(name, recorded.get(name), now.get(name)) for name in names]


def headline(verdicts: Sequence[Verdict]) -> str:
    """The answer on one line."""
    worse = [v for v in verdicts if v.kind == WORSE]
    compared = [v for v in verdicts if v.change is not None]
    if worse:
        shown = ", ".join(f"{v.name} ({_percent(v)})" for v in worse)
        return f"{len(worse)} of {len(compared)} ratios got worse: {shown}"
    if not compared:
        return "nothing to compare with: write a record with --record"
    absent = sum(v.kind == GONE for v in verdicts)
    missing = f"; {absent} could not be measured" if absent else ""
    return f"nothing got slower ({len(compared)} ratios{missing})"


def table(verdicts: Sequence[Verdict]) -> str:
    """A line for each ratio."""
    head = ("ratio", "recorded", "now", "change", "spread", "verdict")
    lines = [head] + [
        (v.name, _number(v.recorded), _number(v.now), _percent(v), _spread(v.now), v.kind)
        for v in verdicts
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, 5) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """1 if something got slower."""
    return int(any(v.kind == WORSE for v in verdicts))


def to_record(found: Mapping[str, Ratio | None], about: Mapping[str, object]) -> dict[str, object]:
    """The ratios as JSON, with what they were measured on."""
    ratios = {
        name: {"ratio": float(f"{one.value:.4g}"), "spread": float(f"{one.spread:.3g}")}
        for name, one in found.items()
        if one is not None
    }
    return {"version": 1, **about, "ratios": ratios}


def from_record(content: Mapping[str, object]) -> dict[str, Ratio]:
    """The ratios of a record."""
    if content.get("version") != 1:
        raise ValueError(
            f"the record has version {content.get('version')!r}, and 1 is known; record again"
        )
    ratios = content["ratios"]
    assert isinstance(ratios, Mapping)
    return {name: Ratio(one["ratio"], one["spread"]) for name, one in ratios.items()}


def merged(first: Ratio, second: Ratio) -> Ratio:
    """Two measurements of one ratio: the smaller, with how far they are apart as its spread."""
    low, high = sorted((first, second), key=lambda one: one.value)
    return replace(low, spread=max(low.spread, high.value / low.value - 1.0))


def _number(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.value:.3g}"


def _spread(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.spread:.0%}"


def _percent(verdict: Verdict) -> str:
    return "-" if verdict.change is None else f"{verdict.change:+.0%}"
