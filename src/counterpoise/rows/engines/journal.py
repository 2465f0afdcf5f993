"""A journal of answers, with which an interrupted fit resumes and ends with the same bits.

A fit is a function of the answers of its engine. The journal stores every answer on disk. The next
fit with the same rows and options reads the stored answers instead of the rows, and continues from
there. The solver does not know about the journal.

The file has a header line and, for every answer, a JSON line (digest of the question, shape,
passes, checksum) followed by the bytes. A checksum covers the line and the bytes, and continues
the checksum before it. An answer that was cut off or damaged is dropped with all that follow.

In journals of version 1, which can still be resumed, a checksum covers only the bytes, and the
digest of the rows does not see every bit of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zlib
from contextlib import suppress
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from counterpoise.activations import Activation
from counterpoise.losses import Loss, NeuronLoss
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.sample import RowSample
from counterpoise.storage.files import open_regular, unwritten, write_bytes

Array = np.ndarray
# Codes of the named activations in journals of version 0.1, which can still be resumed.
CODES = {"Identity": 1, "Piecewise": 2, "Softplus": 3, "ELU": 4}

MAGIC, MAGIC_1 = "counterpoise journal 2", "counterpoise journal 1"
# No line of a journal is longer.
LINE = 4096
# Points that distinguish activations of the same name.
PROBES = np.linspace(-3.0, 3.0, 13)


class Answers(Protocol):
    """A journal, on the disk of this process or of another."""

    @property
    def replaying(self) -> bool:
        """Whether there are answers that were not replayed yet."""
        ...

    def next(self, digest: str) -> tuple[Array, int]:
        """Return the next stored answer and its passes; the question must be the same."""
        ...

    def append(self, digest: str, answer: Array, passes: int) -> None:
        """Store an answer."""
        ...

    def close(self, *, finished: bool) -> None:
        """Close the file, and delete it if the fit is finished."""
        ...


class Journal:
    """Answers on disk, replayed in order and then appended to.

    ``first`` is whether journals of version 1 can be resumed.
    """

    def __init__(
        self, path: str | os.PathLike[str], engine: SumEngine, *, first: bool = True
    ) -> None:
        self.path, self._first = Path(path), first
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(path)!r}: there is no folder {str(self.path.parent)!r}; create "
                "it first"
            )
        self._engine = engine
        self._file = self._open()
        try:
            self._read = self._file.tell()
            self._end = self._check_records()
        except BaseException:
            self._file.close()
            raise

    @cached_property
    def _rows(self) -> str:
        """The digest of the rows, which reads all of them."""
        return digest_rows(self._engine)

    def _open(self) -> io.BufferedReader[io.FileIO]:
        """Open the file; reads are buffered and writes are not."""
        if not self.path.exists() or self._is_empty():
            head = {"format": MAGIC, "rows": self._rows}
            write_bytes(self.path, _sealed(head, b"", 0))
        try:
            file = io.BufferedReader(open_regular(self.path, os.O_RDWR))
        except ValueError as error:
            raise ValueError(f"checkpoint={error}") from None
        except OSError as error:
            raise unwritten(self.path, error) from None
        try:
            self._check_head(file.readline(LINE))
        except BaseException:
            file.close()
            raise
        return file

    def _is_empty(self) -> bool:
        return self.path.is_file() and not self.path.stat().st_size

    def _check_head(self, line: bytes) -> None:
        head = _parsed(line)
        self._old = self._first and head.get("format") == MAGIC_1
        if not self._old and head.get("format") != MAGIC:
            raise self._refused("is not a checkpoint of this version; choose another path")
        self._crc = 0 if self._old else _crc(head, b"", 0)
        if not self._old and head.get("crc") != self._crc:
            raise self._refused("is damaged; delete it to start again, or choose another path")
        if head.get("rows") != (digest_rows_1(self._engine) if self._old else self._rows):
            raise self._refused(
                "was made with other rows; delete it to start again, or choose another path"
            )

    def _check_records(self) -> int:
        """Return the end of the last complete answer, and drop anything after it."""
        size = os.fstat(self._file.fileno()).st_size
        while True:
            here = self._file.tell()
            head = _parsed(self._file.readline(LINE))
            whole = False
            if _is_head(head):
                length = 8 * math.prod(head["shape"])
                if length <= size - self._file.tell():
                    data = self._file.read(length)
                    crc = zlib.crc32(data) if self._old else _crc(head, data, self._crc)
                    whole = crc == head["crc"]
            if not whole:
                self._cut(here)
                return here
            self._crc = crc

    def _cut(self, end: int) -> None:
        try:
            self._file.raw.truncate(end)
        except OSError as error:
            raise unwritten(self.path, error) from None

    @property
    def replaying(self) -> bool:
        return self._read < self._end

    def next(self, digest: str) -> tuple[Array, int]:
        """Return the next stored answer and its passes; the question must be the same."""
        self._file.seek(self._read)
        head = _parsed(self._file.readline(LINE))
        if head["question"] != digest:
            raise self._refused(
                "belongs to a fit with other options; delete it to start again, or choose another "
                "path"
            )
        data = self._file.read(8 * math.prod(head["shape"]))
        self._read = self._file.tell()
        return np.frombuffer(data, dtype="<f8").reshape(head["shape"]).astype(float), head["passes"]

    def append(self, digest: str, answer: Array, passes: int) -> None:
        """Store an answer; after an error, the file ends with the answer before it."""
        data = np.ascontiguousarray(answer, dtype="<f8").tobytes()
        head = {"question": digest, "shape": list(answer.shape), "passes": passes}
        if self._old:
            crc = zlib.crc32(data)
            record = json.dumps({**head, "crc": crc}).encode() + b"\n" + data
        else:
            crc = _crc(head, data, self._crc)
            record = _sealed(head, data, self._crc)
        try:
            self._file.raw.seek(self._end)
            left = memoryview(record)
            while left:
                left = left[self._file.raw.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.raw.truncate(self._end)
            raise unwritten(self.path, error, "the answers before it are kept") from None
        self._crc = crc
        self._read = self._end = self._end + len(record)

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"checkpoint={str(self.path)!r} {why}")

    def close(self, *, finished: bool) -> None:
        """Close the file, and delete it if the fit is finished."""
        self._file.close()
        if finished:
            self.path.unlink(missing_ok=True)


def _sealed(head: dict[str, Any], data: bytes, crc: int) -> bytes:
    """Return a line with a checksum, and the data; ``crc`` is the checksum of all before it."""
    return json.dumps({**head, "crc": _crc(head, data, crc)}).encode() + b"\n" + data


def _crc(head: dict[str, Any], data: bytes, crc: int) -> int:
    covered = {key: value for key, value in head.items() if key != "crc"}
    return zlib.crc32(data, zlib.crc32(json.dumps(covered, sort_keys=True).encode(), crc))


def _parsed(line: bytes) -> dict[str, Any]:
    """Return a line as a mapping, which is empty if the line is anything else."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _is_head(head: dict[str, Any]) -> bool:
    """Whether a line describes an answer; the only check of it in journals of version 1."""
    shape = head.get("shape")
    return (
        set(head) == {"question", "shape", "passes", "crc"}
        and isinstance(head["question"], str)
        and len(head["question"]) == 2 * hashlib.sha256().digest_size
        and isinstance(shape, list)
        and all(type(length) is int and length >= 0 for length in shape)
        and type(head["passes"]) is int
        and head["passes"] in (0, 1)
        and type(head["crc"]) is int
    )


class JournaledEngine(SumEngine):
    """An engine that stores the answers of another one."""

    def __init__(self, engine: SumEngine, journal: Answers) -> None:
        super().__init__(engine.census, engine.loss)
        self.engine, self.journal = engine, journal
        self.counter.count = engine.passes

    def sample(self) -> RowSample:
        return self.engine.sample()

    @property
    def even(self) -> bool:
        return self.engine.even

    def pooled(self) -> SumEngine:
        return JournaledEngine(self.engine.pooled(), self.journal).like(self)

    def group_rows(self, k: int) -> GroupedData | None:
        return self.engine.group_rows(k)

    def effective_sizes(self) -> Array:
        return self.engine.effective_sizes()

    @property
    def rounding(self) -> float:
        return self.engine.rounding

    @property
    def additions(self) -> int:
        return self.engine.additions

    def ask(self, question: Question) -> Array:
        digest = digest_question(question)
        if self.journal.replaying:
            answer, passes = self.journal.next(digest)
        else:
            before = self.engine.passes
            answer = self.engine.ask(question)
            passes = self.engine.passes - before
            self.journal.append(digest, answer, passes)
        self.counter.count += passes
        return answer


def digest_question(question: Question) -> str:
    """Return a digest of the question, equal only for the same question to the bit."""
    parts: list[Any] = [type(question).__name__]
    for field in fields(question):
        value = getattr(question, field.name)
        if isinstance(value, Question):
            value = digest_question(value)
        elif isinstance(value, tuple) and all(isinstance(item, Question) for item in value):
            value = [digest_question(item) for item in value]
        elif sparse.issparse(value):
            value = _digest([value.shape, value.data, value.indices, value.indptr])
        if isinstance(value, NeuronLoss):
            value = value.activation  # as in journals of version 0.1
        if isinstance(value, Loss):
            known = [type(value).__name__, value.name, value.n_scores, *value.parameters]
            ones = np.ones_like(PROBES)
            if value.n_scores == 1:
                known += [value.value(PROBES, ones), value.slope(PROBES, ones)]
            value = _digest(known)
        elif isinstance(value, Activation):
            code = CODES.get(type(value).__name__, 0)
            known = [value.name, code, *value.parameters, value.alpha, value.beta]
            value = _digest([known, value.value(PROBES), value.slope(PROBES)])
        elif f"at {id(value):#x}" in repr(value):  # an address
            value = type(value).__qualname__
        parts.append(value)
    return _digest(parts)


def digest_rows(engine: SumEngine) -> str:
    """Return a digest of the rows, to the bit, and of whether there is an intercept."""
    census = engine.census
    labels = [(type(label).__name__, str(label)) for label in label_list(census.labels)]
    return _digest([labels, census.totals, census.n_rows, census.intercept, engine.fingerprint()])


def digest_rows_1(engine: SumEngine) -> str:
    """Return the digest of journals of version 1, which may miss the last bits of an entry."""
    census = engine.census
    labels = [str(label) for label in label_list(census.labels)]
    return _digest([labels, census.totals, census.n_rows, census.intercept, engine.checksum()])


def _digest(parts: list[Any]) -> str:
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            sha.update(json.dumps([str(part.dtype), part.shape]).encode())
            sha.update(np.ascontiguousarray(part).tobytes())
        else:
            sha.update(repr(part).encode())
        sha.update(b";")
    return sha.hexdigest()
