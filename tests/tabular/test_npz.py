"""Archives of arrays: what the headers claim is checked before an array is read."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from counterpoise.tabular import DataError, npz, open_table

MB = 1 << 20


def npy(shape, dtype="<f8", data=b""):
    head = io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue() + data


def refused(path, told):
    """The refusal must be told, and cost little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=told):
            open_table(path)
        assert tracemalloc.get_traced_memory()[1] < 10 * MB
    finally:
        tracemalloc.stop()


def test_lengths_are_compared_before_arrays_are_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(10 * MB), y=np.zeros(3))
    refused(tmp_path / "a.npz", "different lengths: 'x' 10,485,760, 'y' 3;")


def test_shapes_beyond_the_bytes_are_refused(tmp_path):
    for shape in ((10**12,), (10**6, 10**6), (0, 10**12), (-1,)):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            file.writestr("X.npy", npy(shape, data=bytes(64)))
        refused(tmp_path / "a.npz", r"a.npz'.*(claims shape|has shape|cannot be read)")


def test_one_member_does_not_serve_under_many_names(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", npy((10 * MB,), data=bytes(80 * MB)))
        for name in ("b.npy", "c.npy"):
            again = zipfile.ZipInfo(name)
            for what in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(again, what, getattr(file.filelist[0], what))
            file.filelist.append(again)
    refused(tmp_path / "a.npz", r"a.npz' (is truncated or damaged|cannot be read)")


def test_headers_of_any_length_are_not_read(tmp_path):
    start = b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", start + b" " * (50 * MB))
    refused(tmp_path / "a.npz", r"a.npz'")


def test_deep_headers_are_refused(tmp_path):
    text = b"{'descr': " + b"[" * 4000 + b"]" * 4000 + b"}"
    start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", start + text)
    refused(tmp_path / "a.npz", r"a.npz'")


def test_arrays_that_fill_the_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "budget", lambda: 5 * MB)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(MB), y=np.zeros(MB))
    refused(tmp_path / "a.npz", r"does not fit in the memory")


def test_other_compressions_and_doubled_names_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("a.npy", npy((MB,), data=bytes(8 * MB)))
    refused(tmp_path / "a.npz", r"compressed in a way")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as file:
        file.writestr("a.npy", npy((1,), data=bytes(8)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("a.npy", npy((1,), data=bytes(8)))
    refused(tmp_path / "b.npz", r"same name")
