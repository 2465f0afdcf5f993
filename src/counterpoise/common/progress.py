"""Bars for work that takes long enough to wait for: passes over rows, preparation of texts."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

logger = logging.getLogger("counterpoise")

WIDTH = 24


def stage(text: str | None, share: float | None = None) -> None:
    """Say what is under way, and how much of it is done; None when it has ended.

    Only a :class:`StatusHandler` shows it, in front of what iterations tell.
    """
    logger.debug(text or "", extra={"stage": text, "share": share})


class StatusHandler(logging.Handler):
    """The library's log for people: messages one under the other and, on a terminal, one line that
    is redrawn, of what is under way.

    Parameters
    ----------
    stream : text stream, default standard error
    least : int
        The level from which on messages stay; those below show only in the line.
    """

    def __init__(self, stream: TextIO | None = None, least: int = logging.INFO) -> None:
        super().__init__()
        self.line = StatusLine(stream)
        self.least = least
        self._stage, self._share = "", None

    def emit(self, record: logging.LogRecord) -> None:
        staged = hasattr(record, "stage")
        if staged:
            self._stage, self._share = record.stage or "", record.share  # type: ignore[attr-defined]
        if record.levelno >= self.least:
            self.line.close()
            self.line.stream.write(record.getMessage() + "\n")
            self.line.stream.flush()
        elif not self.line.live or (staged and not self._stage):
            self.line.close()
        elif self.line.due():
            self.line.draw(self.text("" if staged else record.getMessage()))

    def text(self, message: str) -> str:
        """What the line shows."""
        shown = [self._stage, message]
        if self._share is not None:
            shown.insert(0, bar(self._share))
        return "  ".join(part for part in shown if part)

    def close(self) -> None:
        self.line.close()
        super().close()


class StatusLine:
    """One line of a terminal, redrawn; elsewhere nothing is written."""

    def __init__(self, stream: TextIO | None = None, every: float = 0.1) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.every = every
        self._last: float | None = None

    @property
    def live(self) -> bool:
        return self.stream.isatty()

    def due(self) -> bool:
        """Whether it is time to draw again."""
        return self._last is None or time.monotonic() - self._last >= self.every

    def draw(self, text: str) -> None:
        self._last = time.monotonic()
        self.stream.write("\r" + text + "\x1b[K")
        self.stream.flush()

    def close(self) -> None:
        """Leave the terminal with a clean line."""
        if self._last is not None:
            self.draw("")
            self._last = None


def bar(share: float) -> str:
    """A share of the work as a bar and as a number.

    >>> bar(0.5)
    '[############............]  50 %'
    """
    share = min(max(share, 0.0), 1.0)
    filled = round(WIDTH * share)
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:3.0f} %"


class PassBar(StatusLine):
    """Called with (pass, rows read, rows in all) as a pass goes on.

    On a terminal one line is redrawn; elsewhere every finished pass is logged.
    """

    _begun: tuple[int, float] | None = None

    def __call__(self, number: int, rows: int, total: int | None) -> None:
        now = time.monotonic()
        if self._begun is None or self._begun[0] != number:
            self._begun = (number, now)
        seconds = now - self._begun[1]
        done = total is not None and rows >= total
        if not self.live:
            if done:
                logger.info("pass %d: %s rows in %.1f s", number, f"{rows:,}", seconds)
        elif done or self.due():
            self.draw(self.line(number, rows, total, seconds))

    @staticmethod
    def line(number: int, rows: int, total: int | None, seconds: float) -> str:
        """The bar as text.

        >>> PassBar.line(3, 500, 1000, 2.0)
        'pass 3 [############............]  50 %  500 rows, 250 rows/s'
        """
        speed = f", {rows / seconds:,.0f} rows/s" if seconds > 0 else ""
        shown = f" {bar(rows / total)}" if total else ""
        return f"pass {number}{shown}  {rows:,} rows{speed}"


class CorpusBar(StatusLine):
    """Called with (domain, documents, tokens, share read) as texts become tokens.

    On a terminal one line is redrawn; elsewhere a domain is logged every minute, and at its end.
    """

    log_every = 60.0
    _begun: tuple[str, int, float] | None = None
    _logged = 0.0

    def __call__(
        self, domain: str, documents: int, tokens: int, share: float | None, *, done: bool = False
    ) -> None:
        now = time.monotonic()
        if self._begun is None or self._begun[0] != domain:
            # tokens that an earlier run had made say nothing about the speed of this one
            self._begun, self._logged = (domain, tokens, now), now
        _, before, since = self._begun
        speed = (tokens - before) / (now - since) if now > since else 0.0
        if self.live and (done or self.due()):
            self.draw(self.line(domain, documents, tokens, share, speed))
        if done or (not self.live and now - self._logged >= self.log_every):
            self._logged = now
            read = "" if share is None or done else f", {share:.0%} read"
            text = f"{documents:,} documents, {tokens:,} tokens{read}"
            logger.info("domain %s: %s", domain, text)

    @staticmethod
    def line(
        domain: str, documents: int, tokens: int, share: float | None, speed: float = 0.0
    ) -> str:
        """The bar as text.

        >>> CorpusBar.line("web", 12, 3456, 0.25, 1000.0)
        'web [######..................]  25 %  12 documents, 3,456 tokens, 1,000 tokens/s'
        """
        shown = "" if share is None else f" {bar(share)}"
        end = f", {speed:,.0f} tokens/s" if speed > 0 else ""
        return f"{domain}{shown}  {documents:,} documents, {tokens:,} tokens{end}"


class TrainBar(StatusLine):
    """Called with (tokens, loss) after every training step.

    On a terminal one line is redrawn; elsewhere progress is logged every minute.
    """

    log_every = 60.0

    def __init__(self, total: int, stream: TextIO | None = None, every: float = 0.2) -> None:
        super().__init__(stream, every)
        self.total = total
        self._first: tuple[int, float] | None = None
        self._logged = time.monotonic()

    def __call__(self, tokens: int, loss: float) -> None:
        now = time.monotonic()
        if self._first is None:  # the first step compiles and fills caches
            self._first = (tokens, now)
        before, since = self._first
        speed = (tokens - before) / (now - since) if now > since else 0.0
        if self.live:
            if self.due():
                self.draw(self.line(tokens, self.total, loss, speed))
        elif now - self._logged >= self.log_every:
            self._logged = now
            logger.info("%s", self.line(tokens, self.total, loss, speed))

    @staticmethod
    def line(tokens: int, total: int, loss: float, speed: float) -> str:
        """The bar as text.

        >>> TrainBar.line(500_000, 1_000_000, 4.321, 10_000.0)
        '[############............]  50 %  500,000 tokens, loss 4.321, 10,000 tokens/s, 0:50 left'
        """
        end = f", {speed:,.0f} tokens/s, {clock((total - tokens) / speed)} left" if speed else ""
        return f"{bar(tokens / total)}  {tokens:,} tokens, loss {loss:.3f}{end}"


def clock(seconds: float) -> str:
    """A length of time as a clock shows it.

    >>> clock(50), clock(3661)
    ('0:50', '1:01:01')
    """
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
