"""Notice ranks that are lost or frozen, tell them from slow ones, and say which they are.

Every rank counts up a heartbeat in the store through which the ranks met, from a thread of its own.
A rank that writes a checkpoint to a slow disk still beats; one that was killed, frozen or cut off
does not. Each rank watches the next one, so the store answers a few requests per rank and beat.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from counterpoise.torch.distributed import first_line

logger = logging.getLogger("counterpoise")

BEAT = 2.0  # seconds
GRACE = 10.0  # seconds for a rank to end by itself after another one has said why it ends
KEPT = "The last checkpoint is kept; run the same command to resume"


class Watch:
    """The heartbeat of this rank, and an eye on the others.

    Parameters
    ----------
    connect : callable
        Makes a connection of its own to the store, since another thread may block one for long. It
        is called again after a connection broke, and raises ConnectionRefusedError if nobody
        listens there any more.
    rank, world : int
    seconds : float
        A rank without a sign of life for this long is given up.
    host : str
        Who keeps the store, for messages.
    hosting : bool
        Whether this process keeps the store, which ends with it.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        rank: int,
        world: int,
        seconds: float,
        host: str,
        hosting: bool = False,
    ) -> None:
        self.connect, self.store = connect, connect()
        self.rank, self.world, self.seconds = rank, world, seconds
        self.host, self.hosting, self.beat = host, hosting, min(BEAT, seconds / 5)
        self.writing = threading.Lock()  # whoever holds it is not ended in the middle
        self._stopped = threading.Event()
        self._next = (rank + 1) % world
        now = time.monotonic()
        self._count, self._heard = -1, now  # of the next rank
        self._answered, self._refused = now, None  # type: float, float | None
        self._told: tuple[float, str] | None = None  # what another rank said, and when
        self._silent: str | None = None
        self._threads = [
            threading.Thread(target=loop, name=f"counterpoise-{loop.__name__}", daemon=True)
            for loop in (self._beat, self._judge)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop watching; call it when the ranks have nothing more to exchange."""
        self._stopped.set()

    def gather(self) -> None:
        """Wait until every rank has a heartbeat; raise TimeoutError that names those without."""
        deadline = time.monotonic() + self.seconds
        while missing := self._missing():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{_ranks(missing)} of {self.world} did not join within {self.seconds:g} s "
                    "(train.timeout); look at the logs of these ranks, check that all machines "
                    f"reach {self.host}, or raise train.timeout"
                )
            time.sleep(min(self.beat, 0.2))

    def report(self, error: BaseException) -> None:
        """Tell the other ranks why this one ends; the first reason given is kept."""
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._post(f"rank {self.rank} of {self.world} ended: {why}")

    def linger(self) -> None:
        """Let the others read why this rank ends, if what was posted would end with it."""
        if self.hosting and self.world > 1:
            time.sleep(1.5 * self.beat)

    def explain(self, error: BaseException) -> str:
        """Say which rank was lost, after an exchange with it failed with this error."""
        with contextlib.suppress(Exception):
            if self._told is not None:  # the store may have ended since
                return self._told[1]
            before = [self._count_of(rank) for rank in range(self.world)]
            deadline = time.monotonic() + 2.5 * self.beat + 0.5
            while time.monotonic() < deadline:
                if (said := self._said()) is not None:
                    return said
                time.sleep(self.beat / 4)
            after = [self._count_of(rank) for rank in range(self.world)]
            silent = [r for r in range(self.world) if before[r] == after[r] and r != self.rank]
            if silent:
                said = (
                    f"{_ranks(silent)} of {self.world} {'is' if len(silent) == 1 else 'are'} gone: "
                    "killed, out of memory, or on a machine that is down; look at the logs of "
                    f"{_ranks(silent)}. {KEPT}"
                )
                self._post(said)
                return said
        if self._told is not None:
            return self._told[1]
        return (
            f"another rank, or {self.host}, is gone; look at the logs of all ranks. {KEPT} "
            f"({first_line(error)})"
        )

    def _beat(self) -> None:
        """Count up this rank's heartbeat and read the next one's; may block, or fail."""
        while not self._stopped.is_set():
            try:
                self._exchange()
            except Exception:
                self._reconnect()
            self._stopped.wait(self.beat)

    def _exchange(self) -> None:
        self.store.add(f"beat/{self.rank}", 1)
        count, now = self._count_of(self._next), time.monotonic()
        if count != self._count:
            self._count, self._heard = count, now
        if self._told is None and (said := self._said()) is not None:
            self._told = now, said
        if self._silent is not None:
            self._post(self._silent)
        self._answered, self._refused = now, None

    def _reconnect(self) -> None:
        """Replace a broken connection, which does not mend by itself.

        Only a host that refuses is gone; one that cannot be reached may come back in time.
        """
        try:
            self.store = self.connect()
            self._exchange()
        except ConnectionRefusedError:
            self._refused = self._refused or time.monotonic()
        except Exception:
            self._refused = None

    def _judge(self) -> None:
        """End this process if another rank is lost; touches nothing that may block."""
        last = time.monotonic()
        while not self._stopped.wait(self.beat / 2):
            now = time.monotonic()
            if (asleep := now - last - self.beat) > self.beat:  # this process itself was frozen
                self._shift(asleep, now)
            last = now
            if (verdict := self._verdict(now)) is not None:
                self._silent = verdict
                self._stopped.wait(2 * self.beat)  # until the others have been told
                self._end(verdict)

    def _shift(self, asleep: float, now: float) -> None:
        """Do not count the time that this process was frozen; what is new already stays new."""
        self._heard = min(self._heard + asleep, now)
        self._answered = min(self._answered + asleep, now)
        if (refused := self._refused) is not None:
            self._refused = min(refused + asleep, now)
        if (told := self._told) is not None:
            self._told = min(told[0] + asleep, now), told[1]

    def _verdict(self, now: float) -> str | None:
        if self._told is not None and now - self._told[0] > GRACE:
            return self._told[1]
        refused = self._refused  # the other thread may clear it
        if refused is not None and now - refused > min(GRACE, self.seconds):
            return f"{self.host}, through which the ranks meet, is gone. {KEPT}"
        silent = f"has shown no sign of life for {self.seconds:g} s (train.timeout)"
        if now - self._answered > self.seconds:
            return (
                f"{self.host}, through which the ranks meet, {silent} and is given up. If it was "
                f"only slow, raise train.timeout. {KEPT}"
            )
        if now - self._heard > self.seconds and self._answered > self._heard:
            return (
                f"rank {self._next} of {self.world} {silent} and is given up: frozen, or on a "
                "machine that is out of reach. Look at its log; if it was only slow, raise "
                f"train.timeout. {KEPT}"
            )
        return None

    def _end(self, verdict: str) -> None:
        """End the process: its main thread may be waiting for the lost rank and cannot be woken."""
        with self.writing:
            if self._stopped.is_set():
                return
            logger.critical("error: %s", verdict)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(1)

    def _missing(self) -> list[int]:
        """Ranks without a heartbeat; this one, if the connection is broken."""
        try:
            return [rank for rank in range(self.world) if not self._count_of(rank)]
        except Exception:  # the other thread connects again, or gives up
            return [self.rank]

    def _count_of(self, rank: int) -> int:
        return int(self.store.add(f"beat/{rank}", 0))

    def _said(self) -> str | None:
        """What a rank that ended said, or said of another."""
        if not self.store.check(["fallen"]):
            return None
        return str(json.loads(self.store.get("fallen")))

    def _post(self, said: str) -> None:
        with contextlib.suppress(Exception):
            if self.store.add("fallen-by", 1) == 1:
                self.store.set("fallen", json.dumps(said))


def _ranks(which: list[int]) -> str:
    """Name ranks.

    >>> _ranks([3]), _ranks([0, 2])
    ('rank 3', 'ranks 0, 2')
    """
    return f"rank{'s' if len(which) > 1 else ''} {', '.join(map(str, which[:8]))}" + (
        " ..." if len(which) > 8 else ""
    )
