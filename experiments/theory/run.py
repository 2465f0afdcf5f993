"""What the paper proves, against what is measured.

    python experiments/theory/run.py                     # everything
    python experiments/theory/run.py --quick --only rates

Writes one JSON file and one picture or two per study, and summary.md, to ``--out``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
STUDIES = ("inequality", "noise", "rates", "extrapolation")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and problems")
    parser.add_argument("--only", choices=STUDIES, help="one study")
    parser.add_argument("--out", type=Path, default=Path("out/theory"))
    args = parser.parse_args(argv)
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    args.out.mkdir(parents=True, exist_ok=True)
    parts = []
    for name in STUDIES:
        if args.only in (None, name):
            begun = time.perf_counter()
            parts.append(import_module(name).main(args.out, quick=args.quick))
            print(f"{name}: {time.perf_counter() - begun:.0f} s\n\n{parts[-1]}", flush=True)
    (args.out / "summary.md").write_text("# Theory and measurement\n\n" + "\n".join(parts))


if __name__ == "__main__":
    main()
