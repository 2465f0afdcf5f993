"""Headers of GGUF files: every count and length is checked against the size of the file.

Other readers trust them, and a few bytes can ask for arrays of any size.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from counterpoise.lm.model_checks.configs import MOST_LAYERS, REMEDY
from counterpoise.lm.model_checks.held import Held
from counterpoise.storage.files import check_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
# Formats of numbers by the type's code.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}  # fmt: skip
MOST_DIMENSIONS = 8
ALIGNMENT = "general.alignment"
BLOCKS, EXPERTS = ".block_count", ".expert_count"


def check_gguf(path: Path) -> Held:
    """Check the header of a GGUF file; return what its tensors hold."""
    size = check_regular(path, REMEDY)
    if size < 24:
        raise ValueError(f"{str(path)!r} has {size} bytes, too few for a GGUF file; {REMEDY}")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Header(path, data).check()


class _Tensor(NamedTuple):
    name: str
    elements: int
    kind: int
    offset: int


class _Header:
    """A position in a file, and the numbers and texts from there on."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.size, self.at = path, data, len(data), 0

    def check(self) -> Held:
        if self.data[:4] != MAGIC:
            raise ValueError(
                f"{str(self.path)!r} is not a GGUF file: it does not begin with 'GGUF'; {REMEDY}"
            )
        self.at = 4
        version = self.number("I")
        if version not in VERSIONS:
            self.damaged(f"version {version}, and {VERSIONS[0]} and {VERSIONS[1]} are read")
        tensors, keys = self.number("Q"), self.number("Q")
        self.room(tensors, 24, "tensors")
        self.room(keys, 13, "keys")
        counts, alignment = {}, 32
        for _ in range(keys):
            name = self.text()
            value = self.value(self.number("I"))
            if name.endswith((BLOCKS, EXPERTS)) and isinstance(value, int):
                counts[name] = value
            elif name == ALIGNMENT and isinstance(value, int):
                alignment = max(value, 1)
        table = [self.tensor() for _ in range(tensors)]
        self.check_room(table, alignment)
        for name, value in counts.items():
            most = min(max(tensors, 256), MOST_LAYERS) if name.endswith(BLOCKS) else MOST_LAYERS
            if value > most:
                raise ValueError(
                    f"{str(self.path)!r}: {name}={value:,}, but it holds only {tensors:,} tensors; "
                    f"{REMEDY}"
                )
        return Held(tensors, sum(tensor.elements for tensor in table))

    def value(self, kind: int) -> Any:
        """Read a number; pass over texts and arrays."""
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == STRING:
            return self.skip(self.number("Q"), 1, "bytes of text")
        if kind != ARRAY:
            self.damaged(f"a value of the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in NUMBERS:
            return self.skip(count, struct.calcsize(f"<{NUMBERS[inner]}"), "elements")
        if inner != STRING:
            self.damaged(f"an array of the type {inner}")
        self.room(count, 8, "texts")
        for _ in range(count):
            self.skip(self.number("Q"), 1, "bytes of text")
        return None

    def tensor(self) -> _Tensor:
        """Read a tensor's entry."""
        name = self.text()
        dimensions = self.number("I")
        if dimensions > MOST_DIMENSIONS:
            self.damaged(f"tensor {name[:80]!r} has {dimensions:,} dimensions")
        shape = [self.number("Q") for _ in range(dimensions)]
        return _Tensor(name[:80], math.prod(shape), self.number("I"), self.number("Q"))

    def check_room(self, table: list[_Tensor], alignment: int) -> None:
        """Check that the data of all tensors lie within the file, after the header."""
        from gguf.constants import GGML_QUANT_SIZES

        begin = -(-self.at // alignment) * alignment
        for name, elements, kind, offset in table:
            if kind not in GGML_QUANT_SIZES:
                self.damaged(f"tensor {name!r} has the unknown type {kind}")
            block, width = GGML_QUANT_SIZES[kind]  # type: ignore[index]
            if elements % block:
                self.damaged(f"tensor {name!r} has {elements:,} elements in blocks of {block}")
            if begin + offset + elements // block * width > self.size:
                self.damaged(f"tensor {name!r} lies beyond the end of the file")

    def number(self, code: str) -> Any:
        width = struct.calcsize(f"<{code}")
        if self.at + width > self.size:
            self.damaged("the file ends within its header")
        (found,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += width
        return found

    def text(self) -> str:
        length = self.number("Q")
        begin = self.at
        self.skip(length, 1, "bytes of text")
        try:
            return self.data[begin : self.at].decode()
        except UnicodeDecodeError:
            self.damaged("a name that is not UTF-8")

    def skip(self, count: int, width: int, what: str) -> None:
        self.room(count, width, what)
        self.at += count * width

    def room(self, count: int, width: int, what: str) -> None:
        if count * width > self.size - self.at:
            self.damaged(f"{count:,} {what} in the {self.size - self.at:,} bytes that are left")

    def damaged(self, problem: str) -> NoReturn:
        raise ValueError(
            f"{str(self.path)!r}: the GGUF header is damaged at byte {self.at:,} ({problem}); "
            f"{REMEDY}"
        )
