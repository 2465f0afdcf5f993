"""Progress of long work: one line of a terminal, drawn by tqdm; elsewhere the log.

tqdm draws, limits the redraws, fits the line to the terminal and keeps log lines from tearing it.
What is left here is what tqdm does not do: what to write where there is no terminal, and the
library's log as a status line for the command line.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from counterpoise.common.text import harmless

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger("counterpoise")


# Size of a terminal that does not tell its own; tqdm would draw nothing on it.
WIDTH, HEIGHT = 79, 24


@cache
def _line_type() -> type[tqdm[Any]]:
    """Subclass tqdm without its monitor thread and its lock across processes.

    Forks would inherit these. tqdm is imported here, so that only terminals wait for it.
    """
    from tqdm import tqdm

    class Line(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

    Line.set_lock(threading.RLock())
    return Line


def stage(text: str | None, share: float | None = None) -> None:
    """Announce what is under way, and how much of it is done; None when it has ended.

    Only a :class:`StatusHandler` shows it.
    """
    logger.debug(text or "", extra={"stage": text, "share": share})


class _Bar:
    """One line of a terminal, gone when it is closed; elsewhere nothing is drawn."""

    def __init__(self, stream: TextIO | None = None, every: float = 0.1) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.every = every
        self._line: tqdm[Any] | None = None

    @property
    def live(self) -> bool:
        """Whether the stream is a terminal."""
        return self.stream.isatty()

    def close(self) -> None:
        """Clear the line."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _begin(self, **options: Any) -> None:
        """Start a new line in place of the old one."""
        self.close()
        if self.live:
            self._line = _line_type()(
                file=self.stream,
                mininterval=self.every,
                miniters=0,
                smoothing=0,
                leave=False,
                dynamic_ncols=_has_width(self.stream),
                ncols=WIDTH,
                nrows=HEIGHT,
                **options,
            )

    def _move(self, n: int, *, total: int | None, note: str = "", now: bool = False) -> None:
        """Bring the bar to ``n`` of ``total``; draw it if it is time to, or ``now``."""
        if self._line is not None:
            self._line.total = total
            self._line.set_postfix_str(note, refresh=False)
            self._line.update(n - self._line.n)
            if now:
                self._line.refresh()


def _has_width(stream: TextIO) -> bool:
    try:
        return os.get_terminal_size(stream.fileno()).columns > 0
    except (OSError, ValueError):
        return False


class StatusLine(_Bar):
    """A line of text, with a bar in front if a share of the work is known."""

    _last: float | None = None

    def draw(self, text: str, share: float | None = None) -> None:
        """Show the text, unless there is no terminal or the last one was drawn just now."""
        now = time.monotonic()
        if not self.live or (self._last is not None and now - self._last < self.every):
            return
        self._last = now
        if self._line is None:
            self._begin(total=1.0, bar_format="{desc}")
        if (line := self._line) is not None:
            line.bar_format = "{desc}" if share is None else "{percentage:3.0f}%|{bar:24}| {desc}"
            line.n = min(max(share or 0.0, 0.0), 1.0)
            line.set_description_str(text)

    def close(self) -> None:
        super().close()
        self._last = None


class StatusHandler(logging.Handler):
    """The library's log for people: messages, and below them a status line on a terminal.

    Parameters
    ----------
    stream : text stream, default standard error
    least : int
        Messages of this level and above stay; those below only appear in the status line.
    """

    def __init__(self, stream: TextIO | None = None, least: int = logging.INFO) -> None:
        super().__init__()
        self.line = StatusLine(stream)
        self.least = least
        self._stage, self._share = "", None

    def emit(self, record: logging.LogRecord) -> None:
        message = harmless(record.getMessage())
        staged = hasattr(record, "stage")
        if staged:
            self._stage = harmless(record.stage or "")  # type: ignore[attr-defined]
            self._share = record.share  # type: ignore[attr-defined]
            message = ""
        if staged and not self._stage:
            self.line.close()
        elif record.levelno >= self.least:
            self._write(message)
        else:
            self.line.draw("  ".join(part for part in (self._stage, message) if part), self._share)

    def _write(self, message: str) -> None:
        stream = self.line.stream
        if self.line.live:  # above any bar
            _line_type().write(message, file=stream)
        else:
            stream.write(message + "\n")
        stream.flush()

    def close(self) -> None:
        self.line.close()
        super().close()


class PassBar(_Bar):
    """Rows of every pass; call it with (pass, rows read, rows in all or None).

    Without a terminal, every finished pass is logged.
    """

    _begun: tuple[int, float] | None = None

    def __call__(self, number: int, rows: int, total: int | None) -> None:
        if self._begun is None or self._begun[0] != number:
            self._begun = (number, time.monotonic())
            self._begin(desc=f"pass {number}", total=total, unit=" rows", unit_scale=True)
        done = total is not None and rows >= total
        self._move(rows, total=total, now=done)
        if done and not self.live:
            seconds = time.monotonic() - self._begun[1]
            logger.info("pass %d: %s rows in %.1f s", number, f"{rows:,}", seconds)


class CorpusBar(_Bar):
    """Tokens of every domain; call it with (domain, documents, tokens, share of the texts read).

    Every finished domain is logged; without a terminal, unfinished ones are logged each minute.
    """

    log_every = 60.0
    _domain: str | None = None
    _logged = 0.0

    def __call__(
        self, domain: str, documents: int, tokens: int, share: float | None, *, done: bool = False
    ) -> None:
        now = time.monotonic()
        if self._domain != domain:
            self._domain, self._logged = domain, now
            # Tokens from an earlier run do not count towards the speed of this one.
            self._begin(desc=domain, initial=tokens, unit=" tokens", unit_scale=True)
        total = round(tokens / share) if share else None
        self._move(tokens, total=total, note=f"{documents:,} documents")
        if done or (not self.live and now - self._logged >= self.log_every):
            self._logged = now
            read = "" if share is None or done else f", {share:.0%} read"
            text = f"{documents:,} documents, {tokens:,} tokens{read}"
            logger.info("domain %s: %s", domain, text)


class TrainBar(_Bar):
    """Tokens and loss of a training run; call it with (tokens, loss) after every step.

    Without a terminal, progress is logged each minute.
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
            self._begin(total=self.total, initial=tokens, unit=" tokens", unit_scale=True)
        self._move(tokens, total=self.total, note=f"loss {loss:.3f}")
        if not self.live and now - self._logged >= self.log_every:
            self._logged = now
            logger.info("%s", self._text(tokens, loss, now))

    def _text(self, tokens: int, loss: float, now: float) -> str:
        assert self._first is not None
        before, since = self._first
        text = f"{tokens:,} of {self.total:,} tokens ({tokens / self.total:.0%}), loss {loss:.3f}"
        if now <= since or tokens <= before:
            return text
        speed = (tokens - before) / (now - since)
        left = timedelta(seconds=round((self.total - tokens) / speed))
        return f"{text}, {speed:,.0f} tokens/s, {left} left"
