"""Read files that may be small on disk and huge in memory, with an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from counterpoise.common.machine import address_space_left, memory

# The share of the machine's memory that a table may take, and the memory assumed if it cannot be
# determined.
SHARE, SOME_MEMORY = 0.6, 4e9
# Bytes in memory per byte of a file while it is parsed.
PARSED = 3


def budget() -> float:
    """Bytes that a table in memory may take."""
    return SHARE * (memory() or SOME_MEMORY)


class Bounded:
    """A file, decompressed if its name says so, that stops before Arrow has filled the memory.

    Under a limit on the address space, the file and some ``blocks`` in memory must fit before any
    is read: Arrow ends the process if an allocation fails while it parses.
    """

    def __init__(self, file: Path, blocks: int = 0) -> None:
        if address_space_left() < PARSED * file.stat().st_size + blocks:
            raise MemoryError
        self._stream = pa.input_stream(str(file), compression="detect")
        self._budget = pa.total_allocated_bytes() + budget()

    def check(self) -> None:
        """Raise MemoryError if what was made of the file takes too much memory."""
        if pa.total_allocated_bytes() > self._budget:
            raise MemoryError

    def read(self, size: int = -1) -> Any:
        self.check()
        return self._stream.read(None if size < 0 else size)

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Bounded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
