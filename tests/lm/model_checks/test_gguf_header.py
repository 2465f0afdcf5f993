"""Counts and lengths in a GGUF header are checked against the size of the file."""

import struct

import gguf
import numpy as np
import pytest

from counterpoise.lm.model_checks.gguf_header import check_gguf
from counterpoise.lm.model_checks.held import Held


def text(value):
    return struct.pack("<Q", len(value)) + value


def header(tensors=0, keys=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.gguf"


def test_what_a_file_holds(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list(["a", "b", "c"])
    writer.add_token_scores([0.0, 1.0, 2.0])
    writer.add_tensor("x", np.ones((4, 8), np.float32))
    writer.add_tensor("y", np.ones(32, np.float32), raw_dtype=gguf.GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert check_gguf(path) == Held(2, 64)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"m\.gguf'.*; copy or download it again"):
            check_gguf(path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GGUF", "has 4 bytes, too few"),
        (b"PK" * 20, "does not begin with 'GGUF'"),
        (header(version=1), r"at byte 8 \(version 1, and 2 and 3 are read"),
        (header(tensors=1 << 60), r"1,152,921,504,606,846,976 tensors in the 0 bytes"),
        (header(keys=1 << 60), "keys in the 0 bytes"),
        (header(keys=1) + struct.pack("<Q", 1 << 62) + b"x" * 99, "bytes of text in the"),
        (header(keys=1) + text(b"a") + struct.pack("<I", 99) + b"x" * 20, "unknown type 99"),
        (header(keys=1) + text(b"\xff") + struct.pack("<IB", 0, 0), "not UTF-8"),
        (
            header(keys=1) + text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 61),
            "2,305,843,009,213,693,952 elements",
        ),
        (header(keys=1) + text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 40), "1,099,511,627,776 tex"),
        (header(keys=1) + text(b"a") + struct.pack("<IIQ", 9, 9, 1), "an array of the type 9"),
        (
            header(tensors=1) + text(b"a") + struct.pack("<I", 1 << 30) + b"x" * 30,
            "1,073,741,824 dimensions",
        ),
        (
            header(tensors=1) + text(b"a") + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0),
            "lies beyond the end",
        ),
        (
            header(keys=1) + text(b"llama.block_count") + struct.pack("<II", 4, 200_000),
            "llama.block_count=200,000, but it holds only 0 tensors",
        ),
    ],
)
def test_damaged_headers_and_bombs(path, data, problem):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"m\.gguf'.*{problem}.*copy or download it again"):
        check_gguf(path)
