"""A journal of answers, with which an interrupted fit resumes and ends with the same bits.

A fit is a function of the answers of its engine. The journal stores every answer on disk. The next
fit with the same rows and options reads the stored answers instead of the rows, and continues from
there. The solver does not know about the journal.

The file has a header line and, for every answer, a JSON line (digest of the question, shape,
passes, checksum) followed by the bytes. An answer cut off by a crash is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from counterpoise.activations import Activation
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.groups import label_list
from counterpoise.rows.sample import RowSample

Array = np.ndarray
# Codes of the named activations in journals of version 0.1, which can still be resumed.
CODES = {"Identity": 1, "Piecewise": 2, "Softplus": 3, "ELU": 4}

MAGIC = "counterpoise journal 1"
# Points that distinguish activations of the same name.
PROBES = np.linspace(-3.0, 3.0, 13)


class Journal:
    """Answers on disk, replayed in order and then appended to."""

    def __init__(self, path: str | os.PathLike[str], engine: SumEngine) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(path)!r}: there is no folder {str(self.path.parent)!r}; create "
                "it first"
            )
        self._rows = digest_rows(engine)
        self._file = self._open()
        self._read = self._file.tell()
        self._end = self._check_records()

    def _open(self) -> BinaryIO:
        head = json.dumps({"format": MAGIC, "rows": self._rows}) + "\n"
        fresh = not self.path.exists() or not self.path.stat().st_size
        if fresh:
            draft = self.path.with_name(self.path.name + ".new")
            draft.write_text(head, encoding="utf-8")
            os.replace(draft, self.path)
        file = open(self.path, "r+b")  # noqa: SIM115
        try:
            found = json.loads(file.readline())
            known = isinstance(found, dict) and found.get("format") == MAGIC
        except ValueError:
            known = False
        if not known:
            file.close()
            raise ValueError(
                f"checkpoint={str(self.path)!r} is not a checkpoint of this version; "
                "choose another path"
            )
        if found["rows"] != self._rows:
            file.close()
            raise ValueError(
                f"checkpoint={str(self.path)!r} was made with other rows; delete it to start "
                "again, or choose another path"
            )
        return file

    def _check_records(self) -> int:
        """Return the end of the last complete answer, and drop anything after it."""
        while True:
            here = self._file.tell()
            try:
                head = json.loads(self._file.readline())
                data = self._file.read(8 * int(np.prod(head["shape"], dtype=int)))
                whole = zlib.crc32(data) == head["crc"]
            except (ValueError, KeyError, TypeError):
                whole = False
            if not whole:
                self._file.truncate(here)
                return here

    @property
    def replaying(self) -> bool:
        return self._read < self._end

    def next(self, digest: str) -> tuple[Array, int]:
        """Return the next stored answer and its passes; the question must be the same."""
        self._file.seek(self._read)
        head = json.loads(self._file.readline())
        if head["question"] != digest:
            raise ValueError(
                f"checkpoint={str(self.path)!r} belongs to a fit with other options; delete it to "
                "start again, or choose another path"
            )
        count = int(np.prod(head["shape"], dtype=int))
        answer = np.frombuffer(self._file.read(8 * count), dtype="<f8").reshape(head["shape"])
        self._read = self._file.tell()
        return answer.astype(float), int(head["passes"])

    def append(self, digest: str, answer: Array, passes: int) -> None:
        data = np.ascontiguousarray(answer, dtype="<f8").tobytes()
        head = {
            "question": digest, "shape": answer.shape, "passes": passes, "crc": zlib.crc32(data)
        }  # fmt: skip
        self._file.seek(self._end)
        self._file.write(json.dumps(head).encode() + b"\n" + data)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._read = self._end = self._file.tell()

    def close(self, *, finished: bool) -> None:
        """Close the file, and delete it if the fit is finished."""
        self._file.close()
        if finished:
            self.path.unlink(missing_ok=True)


class JournaledEngine(SumEngine):
    """An engine that stores the answers of another one."""

    def __init__(self, engine: SumEngine, journal: Journal) -> None:
        super().__init__(engine.census, engine.activation)
        self.engine, self.journal = engine, journal
        self.counter.count = engine.passes

    def sample(self) -> RowSample:
        return self.engine.sample()

    @property
    def rounding(self) -> float:
        return self.engine.rounding

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
        if isinstance(value, Activation):
            code = CODES.get(type(value).__name__, 0)
            known = [value.name, code, *value.parameters, value.alpha, value.beta]
            value = _digest([known, value.value(PROBES), value.slope(PROBES)])
        parts.append(value)
    return _digest(parts)


def digest_rows(engine: SumEngine) -> str:
    """Return a digest of the rows and of whether there is an intercept."""
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
