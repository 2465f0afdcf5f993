"""A bar for passes that take long enough to wait for."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

logger = logging.getLogger("counterpoise")

WIDTH = 24


class PassBar:
    """Called with (pass, rows read, rows in all) as a pass goes on.

    On a terminal one line is redrawn; elsewhere every finished pass is logged.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 0.1) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.every = every
        self._begun: tuple[int, float] | None = None
        self._drawn = 0.0

    def __call__(self, number: int, rows: int, total: int | None) -> None:
        now = time.monotonic()
        if self._begun is None or self._begun[0] != number:
            self._begun = (number, now)
        seconds = now - self._begun[1]
        done = total is not None and rows >= total
        if not self.stream.isatty():
            if done:
                logger.info("pass %d: %s rows in %.1f s", number, f"{rows:,}", seconds)
            return
        if not done and now - self._drawn < self.every:
            return
        self._drawn = now
        self.stream.write("\r" + self.line(number, rows, total, seconds) + "\x1b[K")
        self.stream.flush()

    @staticmethod
    def line(number: int, rows: int, total: int | None, seconds: float) -> str:
        """The bar as text.

        >>> PassBar.line(3, 500, 1000, 2.0)
        'pass 3 [############............]  50 %  500 rows, 250 rows/s'
        """
        speed = f", {rows / seconds:,.0f} rows/s" if seconds > 0 else ""
        if not total:
            return f"pass {number}  {rows:,} rows{speed}"
        share = min(rows / total, 1.0)
        filled = round(WIDTH * share)
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"pass {number} [{bar}] {share:4.0%}".replace("%", " %") + f"  {rows:,} rows{speed}"

    def close(self) -> None:
        """Leave the terminal with a clean line."""
        if self._begun is not None and self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()
