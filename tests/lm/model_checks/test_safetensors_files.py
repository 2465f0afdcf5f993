"""Weights come from safetensors in the folder itself, whose headers fit the files."""

import json
import math
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from counterpoise.lm.model_checks.held import Held
from counterpoise.lm.model_checks.safetensors_files import check_safetensors

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def save_index(folder, **files):
    table = {"metadata": {"total_size": 1}, "weight_map": files}
    (folder / INDEX).write_text(json.dumps(table))


def save_header(folder, header, data=b"\0" * 24, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    (folder / WHOLE).write_bytes(size.to_bytes(8, "little") + text + data)


def test_what_files_hold(tmp_path):
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float16)}, tmp_path / WHOLE)
    assert check_safetensors(tmp_path) == Held(2, 10)


def test_files_of_an_index(tmp_path):
    for name, size in (("x", 3), ("y", 5)):
        save_file({name: np.ones(size)}, tmp_path / f"{name}.safetensors")
    save_index(tmp_path, x="x.safetensors", y="y.safetensors")
    assert check_safetensors(tmp_path) == Held(2, 8)
    (tmp_path / "y.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"y\.safetensors' is missing"):
        check_safetensors(tmp_path)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pytorch_model.bin", "does not end in .safetensors; other files are pickles"),
        ("model.safetensors.bin", "does not end in .safetensors"),
        ("../other/model.safetensors", "is no name of a file in its own folder"),
        ("/tmp/model.safetensors", "is no name of a file in its own folder"),
        ("..\\model.safetensors", "is no name of a file in its own folder"),
        ("..", "is no name of a file in its own folder"),
        (None, "is no name of a file in its own folder"),
        (7, "is no name of a file in its own folder"),
    ],
)
def test_an_index_that_names_other_files(tmp_path, name, problem):
    save_index(tmp_path, **{"a.weight": name})
    with pytest.raises(ValueError, match=rf"index.json': weight_map.a.weight=.* {problem}"):
        check_safetensors(tmp_path)


@pytest.mark.parametrize("table", [{}, {"weight_map": {}}, {"weight_map": [1]}, {"weight_map": 1}])
def test_an_index_without_its_table(tmp_path, table):
    (tmp_path / INDEX).write_text(json.dumps(table))
    with pytest.raises(ValueError, match=r"index.json' has no table 'weight_map'"):
        check_safetensors(tmp_path)


def test_an_index_that_names_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "x.safetensors")
    save_index(tmp_path, x="x.safetensors")
    with pytest.raises(ValueError, match=r"x\.safetensors' is a named pipe, not a file"):
        check_safetensors(tmp_path)


def test_parts_of_a_distributed_checkpoint(tmp_path):
    save_file({"a": np.ones(2)}, tmp_path / WHOLE)
    (tmp_path / "shard-00000-model-00001-of-00002.safetensors").touch()
    with pytest.raises(ValueError, match="is a part of a distributed checkpoint"):
        check_safetensors(tmp_path)


def test_pickles_alone(tmp_path):
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(FileNotFoundError, match="a pickle, is not read"):
        check_safetensors(tmp_path)


@pytest.mark.parametrize(
    ("header", "length", "problem"),
    [
        (b"", 1 << 62, r"a header of 4,611,686,018,427,387,904 bytes in a file of 32"),
        (b"x" * 30, None, "its header is not JSON"),
        (b"[1]", None, "its header is not an object"),
        (b'{"a":' * 50_000, None, "its header is not JSON"),
        ({"a": 1}, None, "tensor 'a' has the entry 1"),
        ({"a": ENTRY | {"dtype": "F99"}}, None, "tensor 'a' has the entry"),
        ({"a": ENTRY | {"shape": [-2, -3]}}, None, "tensor 'a' has the entry"),
        ({"a": ENTRY | {"shape": [1 << 62, 1 << 62]}}, None, "does not fit its bytes"),
        ({"a": ENTRY | {"shape": [1] * 1000}}, None, "tensor 'a' has the entry"),
        ({"a": ENTRY | {"shape": [True, 6]}}, None, "tensor 'a' has the entry"),
        ({"a": ENTRY | {"data_offsets": [24, 0]}}, None, "tensor 'a' has the entry"),
        ({"a": ENTRY | {"data_offsets": [0, 12]}}, None, "does not fit its bytes"),
        ({"a": ENTRY | {"shape": [4, 3], "data_offsets": [0, 48]}}, None, "ends 24 bytes too"),
    ],
)
def test_damaged_headers(tmp_path, header, length, problem):
    save_header(tmp_path, header, length=length)
    with pytest.raises(
        ValueError, match=rf"model.safetensors': the safetensors are damaged \(.*{problem}"
    ) as found:
        check_safetensors(tmp_path)
    assert len(str(found.value)) < 600


def test_a_header_that_would_fill_the_memory(tmp_path):
    with (tmp_path / WHOLE).open("wb") as file:
        file.write((1 << 36).to_bytes(8, "little"))
        file.truncate(1 << 37)
    with pytest.raises(ValueError, match=r"a header of 68,719,476,736 bytes, more than 25,000,000"):
        check_safetensors(tmp_path)


def test_every_type_of_the_package_is_known(tmp_path):
    for kind in (np.bool_, np.int8, np.uint16, np.float16, np.float32, np.float64, np.int64):
        save_file({"a": np.ones((3, 5), kind)}, tmp_path / WHOLE)
        assert check_safetensors(tmp_path) == Held(1, math.prod((3, 5)))
