"""The machine that this runs on."""

from __future__ import annotations

import os


def memory() -> float | None:
    """Bytes of memory; None where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None
