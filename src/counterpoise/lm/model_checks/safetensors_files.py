"""Safetensors files of a folder: the index that names them, and their headers.

transformers opens whatever an index names: a file that does not end in ``.safetensors`` as a
pickle, and files outside of the folder. So an index is checked before it is followed.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from counterpoise.lm.model_checks.configs import (
    REMEDY,
    WEIGHTS,
    plain_name,
    read_config,
)
from counterpoise.lm.model_checks.held import Held
from counterpoise.storage.files import check_regular

WHOLE, INDEX = WEIGHTS
LARGEST_HEADER = 25_000_000  # bytes; those of the largest models have less than one million
MOST_DIMENSIONS = 64
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
# Files of a distributed checkpoint, which transformers prefers to a model's own.
PARTS = re.compile(r"shard-[0-9]{5}-model-[0-9]{5}-of-[0-9]{5}\.safetensors")


def check_safetensors(folder: Path) -> Held:
    """Check the weights that transformers would load from a folder; return what they hold."""
    for path in folder.glob("shard-*.safetensors"):
        if PARTS.fullmatch(path.name):
            raise ValueError(
                f"{str(path)!r} is a part of a distributed checkpoint, which is not read; save the "
                "model with save_pretrained"
            )
    held = Held(0, 0)
    for name in shards(folder):
        held += read_header(folder / name)
    return held


def shards(folder: Path) -> list[str]:
    """Return the names of a model's weight files, from its index if there is one."""
    if (folder / WHOLE).exists():
        return [WHOLE]
    if not (folder / INDEX).exists():
        raise FileNotFoundError(
            f"{str(folder)!r} has neither {WHOLE} nor {INDEX}; give a folder that save_pretrained "
            "wrote (pytorch_model.bin, a pickle, is not read)"
        )
    return read_index(folder / INDEX)


def read_index(path: Path) -> list[str]:
    """Return the files that an index names, all of them safetensors in its own folder."""
    table = read_config(path)
    names = table.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{str(path)!r} has no table 'weight_map'; {REMEDY}")
    if not isinstance(table.get("metadata"), dict):
        raise ValueError(f"{str(path)!r} has no table 'metadata'; {REMEDY}")
    for tensor, name in names.items():
        if not isinstance(name, str) or not plain_name(name):
            raise ValueError(
                f"{str(path)!r}: weight_map.{tensor}={name!r} is no name of a file in its own "
                f"folder; {REMEDY}"
            )
        if not name.endswith(".safetensors"):
            raise ValueError(
                f"{str(path)!r}: weight_map.{tensor}={name!r} does not end in .safetensors; other "
                "files are pickles, which may run code and are not read"
            )
    return sorted(set(names.values()))


def read_header(path: Path) -> Held:
    """Check the header of a safetensors file against the file's size."""
    if not path.exists() and not path.is_symlink():
        raise FileNotFoundError(f"{str(path)!r} is missing; {REMEDY}")
    size = check_regular(path, REMEDY)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise _damaged(path, f"a header of {length:,} bytes in a file of {size:,}")
        if length > LARGEST_HEADER:
            raise _damaged(path, f"a header of {length:,} bytes, more than {LARGEST_HEADER:,}")
        data = file.read(length)
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        problem = "too many levels" if isinstance(error, RecursionError) else error
        raise _damaged(path, f"its header is not JSON ({problem})") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not an object")
    held = Held(0, 0)
    for name, entry in header.items():
        if name != "__metadata__":
            held += Held(1, _elements(path, name, entry, size - 8 - length))
    return held


def _elements(path: Path, name: str, entry: Any, room: int) -> int:
    """Check a tensor's entry, and count its elements."""
    found: dict[str, Any] = entry if isinstance(entry, dict) else {}
    shape: Any = found.get("shape")
    ends: Any = found.get("data_offsets")
    bits = BITS.get(str(found.get("dtype")))
    if (
        bits is None
        or not _counts(shape, MOST_DIMENSIONS)
        or not _counts(ends, 2)
        or len(ends) != 2
        or ends[0] > ends[1]
    ):
        raise _damaged(path, f"tensor {name[:80]!r} has the entry {str(entry)[:120]}")
    if ends[1] > room:
        raise _damaged(path, f"the file ends {ends[1] - room:,} bytes too early")
    elements = math.prod(shape)
    if elements * bits != 8 * (ends[1] - ends[0]):
        raise _damaged(path, f"tensor {name[:80]!r} of shape {shape} does not fit its bytes {ends}")
    return elements


def _counts(value: Any, most: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(type(n) is int and 0 <= n < 1 << 63 for n in value)
    )


def _damaged(path: Path, problem: str) -> ValueError:
    return ValueError(
        f"{str(path)!r}: the safetensors are damaged ({problem}); copy or download them again"
    )
