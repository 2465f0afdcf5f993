"""Tables of a study in markdown, with as many digits as the seeds allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

from counterpoise.lm.compare.summary import Difference, Speedup, Spread

NONE = "-"


def markdown_table(rows: Sequence[Difference] | Sequence[Speedup] | Sequence[Spread]) -> str:
    """Tabulate differences or speedups, a line per run, or spreads, a column per domain.

    Examples
    --------
    >>> from counterpoise.lm.compare.summary import Speedup
    >>> print(markdown_table([Speedup("dro", "static", "worst", 1.31, 1.2, 1.43, 5, 0, 0, ())]))
    | run | worst: tokens of static / run | seeds |
    |:----|------------------------------:|------:|
    | dro |             1.31 [1.20, 1.43] |     5 |
    <BLANKLINE>
    """
    if not rows:
        raise ValueError("rows must hold at least one difference, speedup or spread")
    differences = [row for row in rows if isinstance(row, Difference)]
    speedups = [row for row in rows if isinstance(row, Speedup)]
    spreads = [row for row in rows if isinstance(row, Spread)]
    if len(differences) == len(rows):
        return _differences(differences)
    if len(speedups) == len(rows):
        digits = min(shared_decimals(speedups), 3)
        cells = [[row.run, ratio(row, digits), str(row.n)] for row in speedups]
        return aligned(*_with_what(speedups, ["run", "tokens of {} / run", "seeds"], cells))
    if len(spreads) == len(rows):
        return _spreads(spreads)
    raise TypeError(f"rows must be differences, speedups or spreads, all alike; got {rows[:2]!r}")


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a markdown table; the first column is aligned left, the others right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(padded)} |")
    rules = [f"{'-' * (w + 1)}:" if i else f":{'-' * (w + 1)}" for i, w in enumerate(widths)]
    lines.insert(1, f"|{'|'.join(rules)}|")
    return "\n".join(lines) + "\n"


def interval(mean: float, low: float, high: float, digits: int | None = None) -> str:
    """Write a mean with its interval; by default the half width has two digits.

    >>> interval(-0.031, -0.0452, -0.0168), interval(-0.031, float("nan"), float("nan"))
    ('-0.031 [-0.045, -0.017]', '-0.0310')
    """
    if digits is None:
        digits = decimals(0.5 * (high - low), mean)
    if math.isnan(low) and math.isnan(high):  # one seed
        return fixed(mean, digits)
    return f"{fixed(mean, digits)} [{fixed(low, digits)}, {fixed(high, digits)}]"


def ratio(speedup: Speedup, digits: int | None = None) -> str:
    """Write a speedup with its interval; for a bound, say how many seeds have more than one.

    >>> ratio(Speedup("dro", "static", "worst", 9.7, float("nan"), float("nan"), 5, 0, 4, ()), 1)
    '>= 9.7, exact in 1 of 5'
    """
    if not speedup.censored:
        return interval(speedup.ratio, speedup.low, speedup.high, digits)
    known = f", exact in {speedup.n - speedup.censored} of {speedup.n}" if speedup.n > 1 else ""
    if speedup.at_most and speedup.at_least:
        return f"bounds both ways{known}"
    mark = "<=" if speedup.at_most else ">="
    return f"{mark} {interval(speedup.ratio, math.nan, math.nan, digits)}{known}"


def decimals(error: float, value: float) -> int:
    """Count the decimals that show two digits of an error, or three of a value without one."""
    known = math.isfinite(error) and error > 0
    scale = abs(error if known else value)
    if not math.isfinite(scale) or scale == 0:
        return 2
    # 0.0996 is shown as 0.10, so its digits start where those of 0.1 do
    power = int(f"{scale:.{1 if known else 2}e}".split("e")[1])
    return min(max((1 if known else 2) - power, 0), 6)


def shared_decimals(rows: Sequence[Difference] | Sequence[Speedup]) -> int:
    """Count the decimals that suit the typical interval of a column."""
    known = [row for row in rows if not math.isnan(row.high - row.low)]
    found = sorted(
        decimals(0.5 * (row.high - row.low), row.ratio if isinstance(row, Speedup) else row.mean)
        for row in known or rows
    )
    return found[len(found) // 2]


def fixed(value: float, digits: int) -> str:
    """Write a number with so many decimals; zero has no sign and NaN is a dash."""
    if math.isnan(value):
        return NONE
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def p_value_text(p: float) -> str:
    if math.isnan(p):
        return NONE
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _differences(rows: Sequence[Difference]) -> str:
    digits = shared_decimals(rows)
    cells = [
        [
            d.run,
            interval(d.mean, d.low, d.high, digits),
            f"{d.below} of {d.n}",
            p_value_text(d.p_holm),
            fixed(d.error, digits),
            fixed(d.unpaired_error, digits),
        ]
        for d in rows
    ]
    head = ["run", "minus {}", "below", "p (Holm)", "s.e.", "s.e. unpaired"]
    if all(d.n < 2 for d in rows):  # one seed has no interval, test or error
        head, cells = head[:3], [line[:3] for line in cells]
    return aligned(*_with_what(rows, head, cells))


def _with_what(
    rows: Sequence[Difference] | Sequence[Speedup], head: list[str], cells: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    """Name the baseline, and the metric, in the head, or in a column if there are several."""
    baselines, metrics = [row.baseline for row in rows], [row.metric for row in rows]
    one = len(set(baselines)) == 1
    head = [name.format(baselines[0] if one else "baseline") for name in head]
    if len(set(metrics)) == 1:
        head[1] = f"{metrics[0]}: {head[1]}"
    else:
        head.insert(1, "metric")
        cells = [[c[0], metric, *c[1:]] for c, metric in zip(cells, metrics, strict=True)]
    if not one:
        head.insert(1, "baseline")
        cells = [[c[0], baseline, *c[1:]] for c, baseline in zip(cells, baselines, strict=True)]
    return head, cells


def _spreads(rows: Sequence[Spread]) -> str:
    """Lay out runs by domains, with the decimals that suit the typical spread."""
    runs = list(dict.fromkeys(row.run for row in rows))
    domains = list(dict.fromkeys(row.domain for row in rows))
    cells: dict[tuple[str, str], str] = {}
    digits = sorted(decimals(row.sd, row.mean) for row in rows)[len(rows) // 2]
    for row in rows:
        spread = "" if math.isnan(row.sd) else f" ± {fixed(row.sd, digits)}"
        cells[row.run, row.domain] = fixed(row.mean, digits) + spread
    body = [[run, *(cells.get((run, domain), NONE) for domain in domains)] for run in runs]
    return aligned(["run", *domains], body)
