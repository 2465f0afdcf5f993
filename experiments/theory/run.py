"""What the paper proves, against what is measured.

    python experiments/theory/run.py                     # everything
    python experiments/theory/run.py --quick --only rates

Writes to ``--out``: for every study a JSON file, a table and one picture or two; summary.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
STUDIES = ("inequality", "noise", "rates", "extrapolation", "certified")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and problems")
    parser.add_argument("--only", choices=STUDIES, help="one study")
    parser.add_argument("--out", type=Path, default=Path("out/theory"))
    args = parser.parse_args(argv)
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    args.out.mkdir(parents=True, exist_ok=True)
    for name in STUDIES:
        if args.only in (None, name):
            begun = time.perf_counter()
            text = import_module(name).main(args.out, quick=args.quick)
            (args.out / f"{name}.md").write_text(text)
            print(f"{name}: {time.perf_counter() - begun:.0f} s\n\n{text}", flush=True)
    # A study run alone joins what the others left.
    parts = [args.out / f"{name}.md" for name in STUDIES]
    text = "\n".join(part.read_text() for part in parts if part.exists())
    (args.out / "summary.md").write_text("# Theory and measurement\n\n" + text)


if __name__ == "__main__":
    main()
