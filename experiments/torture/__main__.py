"""Run the attacks, print a table, and exit with 1 if anything fell."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.torture import harness
from experiments.torture.harness import Attack, Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.torture", description=__doc__)
    parser.add_argument("only", nargs="*", help="targets or words in the names of attacks")
    parser.add_argument("--list", action="store_true", help="list the attacks and stop")
    parser.add_argument("--share", type=float, default=1.0, help="scale the number of tries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/torture/results.json"))
    parser.add_argument("--before", type=Path, help="results of another release, for comparison")
    options = parser.parse_args()
    plan = _chosen(list(harness.load().values()), options.only)
    if not plan:
        parser.error(f"no attack matches {' '.join(options.only)!r}; --list shows them")
    if options.list:
        for one in plan:
            print(f"{one.target:10} {one.tries:5} {one.name}")
        return 0
    outcomes: list[Outcome] = []
    for outcome in harness.run(plan, seed=options.seed, share=options.share):
        outcomes.append(outcome)
        harness.write(options.out, outcomes)
        held = "held" if not outcome.failures else f"{len(outcome.failures)} FELL"
        print(f"{outcome.name}: {outcome.tries} tries, {held}, {outcome.seconds:.0f} s", flush=True)
        for failure in outcome.failures[:3]:
            print(f"    {failure[:300]}", flush=True)
    print("\n" + table(outcomes, harness.read(options.before) if options.before else None))
    fell = sum(bool(outcome.failures) for outcome in outcomes)
    total = sum(outcome.tries for outcome in outcomes)
    print(f"\n{len(outcomes) - fell} of {len(outcomes)} attacks held, {total} tries.")
    return 1 if fell else 0


def _chosen(plan: list[Attack], only: list[str]) -> list[Attack]:
    return [a for a in plan if not only or any(w == a.target or w in a.name for w in only)]


def table(outcomes: list[Outcome], before: dict[str, Outcome] | None) -> str:
    """A Markdown table of attacks, with the failures of another release if given."""
    head = ["target", "attack", "tries", *(["failures before"] if before else []), "failures"]
    rows = [head, ["---"] * len(head)]
    for outcome in outcomes:
        row = [outcome.target, outcome.name, str(outcome.tries)]
        if before:
            old = before.get(outcome.name)
            row.append("not run" if old is None else f"{len(old.failures)} of {old.tries}")
        rows.append([*row, str(len(outcome.failures))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    raise SystemExit(main())
