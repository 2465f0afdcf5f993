"""Logs of the domains of a run: JSON lines, TensorBoard, Weights & Biases.

A record is ``{"update": ..., "step": ..., "domains": {name: {quantity: number}}}``. Updates are
numbered 1, 2, ...; steps are training steps. Quantities are ``loss``, ``reference``, ``excess`` and
``weight``, with a mixture also ``share``, ``target``, ``samples``, ``tokens`` and ``epochs``, and
with standard errors ``error``. If samples are not drawn by the weights, ``drawn_by`` is the share
that they are drawn by, and ``sampling`` holds the ``effective_sample_size``, as a share of the
samples, and the ``largest_ratio`` by which a loss is weighed. If tags are weighed, ``patterns``
holds what was drawn of each pattern of tags. ``certificate`` holds the regret of the weights so
far, its bound, and sentences about them; see `counterpoise.reweight.certificate`.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from counterpoise.common.jsonable import plain
from counterpoise.common.packages import not_installed
from counterpoise.lm.sealed import DamagedFile, open_line, seal_line
from counterpoise.storage.files import write_text

Record = Mapping[str, Any]

logger = logging.getLogger("counterpoise")


class Log:
    """A destination of records; a subclass only needs `write`."""

    def write(self, record: Record) -> None:
        raise NotImplementedError(type(self).__name__)

    def rewind(self, update: int, step: int) -> None:
        """Drop what was written after an update, because a run resumes from there."""


class JsonLines:
    """A file of records, one line of JSON each.

    Numbers that are not finite become null. Every record has the integers ``keys``. Lines end with
    their checksum, ``crc32``, which records that are read do not have.
    """

    def __init__(self, path: str | os.PathLike[str], keys: tuple[str, ...] = ("step",)) -> None:
        self.path, self.keys = Path(path), keys

    def append(self, record: Record) -> None:
        """Add a record; if the disk is full, none of it stays."""
        line = _line(record).encode()
        try:
            with self.path.open("ab", buffering=0) as file:
                before = file.seek(0, os.SEEK_END)
                try:
                    if (written := file.write(line)) != len(line):
                        raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes fit")
                except BaseException:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise OSError(
                f"{str(self.path)!r} could not be written ({error}); make room or repair the disk, "
                "and resume"
            ) from error

    def read(self) -> list[dict[str, Any]]:
        """Read all complete records; a line cut off by a kill is not one."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")[:-1]  # the last has no end yet
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            if line:
                try:
                    record = open_line(line.decode())
                    _ = [record[key] + 0 for key in self.keys]
                except (ValueError, TypeError, KeyError, RecursionError) as error:
                    raise self._unreadable(number, error, bool(records)) from None
                records.append(record)
        return records

    def _unreadable(self, number: int, error: Exception, begun: bool) -> ValueError:
        if not begun and not isinstance(error, DamagedFile):
            return ValueError(
                f"{str(self.path)!r} is not a log of Counterpoise (line {number}); choose another "
                "path"
            )
        return DamagedFile(
            f"{str(self.path)!r}, line {number}, is damaged ({error}); restore the file from a "
            "copy, or remove the line"
        )

    def keep(self, records: list[dict[str, Any]]) -> None:
        """Keep only these of its records, if the file exists."""
        if self.path.exists():
            self.write(records)

    def write(self, records: Iterable[Record]) -> None:
        """Replace the contents by these records."""
        text = "".join(map(_line, records))
        if not self.path.exists() or self.path.read_bytes() != text.encode():
            write_text(self.path, text)


def _line(record: Record) -> str:
    return seal_line(json.dumps(plain(record), allow_nan=False)) + "\n"


class JsonlLog(Log):
    """A log in a file of `JsonLines`.

    Opening the file again drops a line that was cut off by a kill, and resuming from an earlier
    update drops the later lines. If another run starts over, its predecessor's file is kept as
    ``<name>.1.jsonl`` and so on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lines = JsonLines(path, ("update", "step"))
        self.path = self._lines.path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.read()  # refuse a foreign file now, not after the weights have moved
        self._opened = False

    def write(self, record: Record) -> None:
        if not self._opened:
            records = self.read()
            if records and records[-1]["update"] >= record["update"]:
                self._put_aside()
            else:
                self._lines.keep(records)
            self._opened = True
        self._lines.append(record)

    def rewind(self, update: int, step: int) -> None:
        self._lines.keep([r for r in self.read() if r["update"] <= update])

    def read(self) -> list[dict[str, Any]]:
        """Read all complete records."""
        return self._lines.read()

    def _put_aside(self) -> None:
        number = 1
        while (other := self.path.with_suffix(f".{number}{self.path.suffix}")).exists():
            number += 1
        self.path.rename(other)
        logger.info("%s belongs to another run and is kept as %s", self.path, other)

    def __repr__(self) -> str:
        return f"JsonlLog({str(self.path)!r})"


class TensorBoardLog(Log):
    """Scalars ``<domain>/<quantity>`` for TensorBoard (package ``tensorboard``).

    If a run resumes from an earlier step, TensorBoard hides what came after it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._writer: Any = None
        self._purge: int | None = None

    def rewind(self, update: int, step: int) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._purge = step + 1

    def write(self, record: Record) -> None:
        if self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise not_installed("TensorBoardLog needs", "tensorboard") from error
            self._writer = SummaryWriter(self.folder, purge_step=self._purge)
        from tensorboard.compat.proto.summary_pb2 import Summary

        # One event for all scalars: one for each takes long where there are many domains.
        values = [Summary.Value(tag=tag, simple_value=v) for tag, v in flat(record).items()]
        self._writer.file_writer.add_summary(Summary(value=values), record["step"])
        self._writer.flush()


class WandbLog(Log):
    """Metrics ``<domain>/<quantity>`` of a Weights & Biases run (package ``wandb``).

    The run is the one given, or the active one.
    """

    def __init__(self, run: Any = None) -> None:
        self.run = run

    def write(self, record: Record) -> None:
        run = self.run
        if run is None:
            try:
                import wandb
            except ImportError as error:
                raise not_installed("WandbLog needs", "wandb") from error
            run = wandb.run
            if run is None:
                raise RuntimeError("no W&B run is active; call wandb.init(), or pass run=")
        run.log({**flat(record), "counterpoise/step": record["step"]})


def get_logs(logs: Any) -> list[Log]:
    """Make logs: a path ending in .jsonl becomes a `JsonlLog`, another a `TensorBoardLog`."""
    if isinstance(logs, (str, os.PathLike, Log)):
        logs = [logs]
    found: list[Log] = []
    for log in logs if isinstance(logs, Iterable) else [logs]:
        if isinstance(log, Log):
            found.append(log)
        elif isinstance(log, (str, os.PathLike)):
            jsonl = os.fspath(log).endswith(".jsonl")
            found.append(JsonlLog(log) if jsonl else TensorBoardLog(log))
        else:
            raise ValueError(f"logs must be paths or counterpoise.lm.Log objects; got {log!r}")
    return found


def flat(record: Record) -> dict[str, float]:
    """Flatten a record to finite numbers by ``<domain>/<quantity>``.

    Those of the certificate are under ``certificate``, those of sampling under ``sampling``.
    """
    others = {name: record.get(name, {}) for name in ("certificate", "sampling")}
    tables = {**record["domains"], **others}
    return {
        f"{name}/{key}": value
        for name, values in tables.items()
        for key, value in values.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }
