"""Versions that are installed here: write them down, or compare them with what was written.

    python requirements/freeze.py                    # print constraints for pip
    python requirements/freeze.py --compare          # print what differs from constraints.txt

Only packages that the project or one of its extras needs, directly or not, are listed. PyTorch is
not: the Makefile names its version, because the build to take depends on the machine.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
LEFT_OUT = {"counterpoise", "pip", "torch"}
HEADER = """\
# Versions that the tests were run with. pip reads this file in every command of the Makefile.
# Made by `make constraints`; `make newest` tries the newest versions instead.
"""


def names(requirement: Requirement) -> list[tuple[str, str]]:
    """The package of a requirement, without extras and with each of them."""
    name = canonicalize_name(requirement.name)
    return [(name, extra) for extra in ("", *requirement.extras)]


def needed() -> dict[str, str]:
    """Names and versions of the project's dependencies, through all its extras, by name."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    project = tomllib.loads((CONSTRAINTS.parents[1] / "pyproject.toml").read_text())["project"]
    todo: list[tuple[str, str]] = []
    for lines in (project["dependencies"], *project["optional-dependencies"].values()):
        todo += [wanted for line in lines for wanted in names(Requirement(line))]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # not installed here
        found[name] = Version(distribution.version).public
        for line in distribution.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo += names(requirement)
    return {name: found[name] for name in sorted(found) if name not in LEFT_OUT}


def written() -> dict[str, str]:
    """Names and versions in the constraints file."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", CONSTRAINTS.read_text(), re.M))


def main() -> None:
    """Print constraints or, on request, how this environment differs from them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compare", action="store_true", help="print what differs")
    now = needed()
    if not parser.parse_args().compare:
        sys.stdout.write(HEADER + "".join(f"{name}=={now[name]}\n" for name in now))
        return
    then = written()
    found = [name for name in sorted(now.keys() | then.keys()) if now.get(name) != then.get(name)]
    for name in found:
        old, new = then.get(name, "not listed"), now.get(name, "not installed")
        sys.stdout.write(f"{name}: {old} -> {new}\n")
    if not found:
        sys.stdout.write("none\n")


if __name__ == "__main__":
    main()
