"""The machine that this runs on."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import resource

# Where Linux tells how much of the memory a container may take, in its second and first version.
LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# What a container has taken, for each of the limits; and what the whole machine has left.
TAKEN = (
    Path("/sys/fs/cgroup/memory.current"),
    Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
MEMORY = Path("/proc/meminfo")


def memory() -> float | None:
    """Return the usable memory in bytes: all of it, or the limit of a container or a shell.

    None if the system does not report it.
    """
    found = [physical(), addressable(), *map(_limit, LIMITS)]
    return min((size for size in found if size is not None), default=None)


def physical() -> float | None:
    """Return the installed memory in bytes."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None


def addressable() -> float | None:
    """Return the limit on the memory of this process that ``ulimit -v`` set."""
    if sys.platform == "win32":
        return None
    found = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if found == resource.RLIM_INFINITY else float(found)


def address_space_left() -> float:
    """Return how many bytes this process may still map; infinite without ``ulimit -v``."""
    limit = addressable()
    if limit is None:
        return math.inf
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):  # a system that does not report it
        return limit
    return limit - pages * os.sysconf("SC_PAGE_SIZE")


def memory_left() -> float:
    """Return how many bytes this process may still take; infinite if the system does not tell.

    Memory that caches of files take counts as free, because the system gives it back.
    """
    found = [address_space_left()]
    for file, limit in zip(TAKEN, map(_limit, LIMITS), strict=True):
        taken = _limit(file)
        if limit is not None and taken is not None:
            known = _fields(file.with_name("memory.stat"))
            cached = known.get("inactive_file", known.get("total_inactive_file", 0.0))
            found.append(limit - taken + cached)
    available = _fields(MEMORY).get("MemAvailable:")
    return max(0.0, min([*found, *([] if available is None else [1024.0 * available])]))


def _fields(file: Path) -> dict[str, float]:
    """Return the numbers of a file of the system by their names; none if it cannot be read."""
    try:
        pairs = [line.split()[:2] for line in file.read_text().splitlines()]
        return {name: float(number) for name, number in pairs}
    except (OSError, ValueError):
        return {}


def _limit(file: Path) -> float | None:
    try:
        found = float(file.read_text())
    except (OSError, ValueError):  # "max" is no limit
        return None
    return found if found > 0 else None
