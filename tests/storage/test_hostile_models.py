"""Stored models that somebody made to do harm are refused with one line, and cheaply."""

import hashlib
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from problems import neuron_data

from counterpoise import GroupDRONeuron, load
from counterpoise.storage.models import ModelFileError, _digest


@pytest.fixture(scope="module")
def rows():
    X, y, g = neuron_data(K=3, n=80, d=3)
    return X, y, np.array(["a", "b & <c>", "ü"])[g]


@pytest.fixture(scope="module")
def model(rows):
    X, y, groups = rows
    return GroupDRONeuron(nu=0.1).fit(X, y, groups=groups)


def with_arrays(folder, data, members=None, version=None):
    """Put another file of arrays in place of the model's, with all checksums right."""
    whole = json.loads((folder / "model.json").read_text())
    file = folder / whole["arrays"]["file"]
    file.write_bytes(data)
    whole["arrays"].update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    whole["arrays"]["members"] = members or whole["arrays"]["members"]
    whole["version"] = version or whole["version"]
    whole["sha256"] = _digest(whole["content"], whole["arrays"])
    (folder / "model.json").write_text(json.dumps(whole))


def zipped(compression=zipfile.ZIP_DEFLATED, **members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def head_of(shape, dtype="<f8"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return out.getvalue()


def refused(folder, match):
    """Refused with one line, and without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=match) as told:
            load(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 700
    assert peak < 50e6


@pytest.mark.parametrize("version", [2, 3])
def test_bombs_are_refused_before_they_are_read(model, tmp_path, version):
    folder = model.save(tmp_path)
    big = zipped(a0=npy(np.zeros(1 << 25)))  # 256 MB in 260 kB
    assert len(big) < 300_000
    with_arrays(folder, big, {"model.coef_": "a0"}, version)
    refused(folder, r"has 2\d\d,\d{3} bytes, and its arrays would take 268,")
    many = zipped(a0=npy(np.zeros(1 << 20)))
    with_arrays(folder, many, {f"x{i}": "a0" for i in range(500)}, version)
    refused(folder, "lists an array twice")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (head_of((1 << 40,)), "declares 8,796,093,022,208 bytes and has 0"),
        (head_of((10**30, 10**30)), "declares"),
        (head_of((-1, -8)) + bytes(64), "declares"),
        (head_of((0, 10**30)), "npz' is damaged"),
        (head_of((3,), "|O") + bytes(24), "object|Object|holds"),
        (head_of((3,), [("a", "<f8")]) + bytes(24), "not numbers"),
        (head_of((3,), "<U0"), "not numbers"),
        (b"\x93NUMPY\x03\x00" + bytes(20), "unknown version"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "npz' is damaged"),
        (b"", "npz' is damaged"),
    ],
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_LZMA])
def test_strange_arrays_are_refused(model, tmp_path, data, match, compression):
    folder = model.save(tmp_path)
    with_arrays(folder, zipped(compression, a0=data), {"model.coef_": "a0"})
    refused(folder, match if compression == zipfile.ZIP_STORED else "is compressed|take")
    with_arrays(folder, zipped(compression, a0=data), {"model.coef_": "a1"})
    refused(folder, "npz' is damaged")


def test_a_file_that_is_larger_than_declared_is_not_read(model, tmp_path):
    folder = model.save(tmp_path)
    with open(next(folder.glob("*.npz")), "r+b") as file:
        file.truncate(1 << 40)  # most of it a hole
    refused(folder, r"npz' has 1,099,511,627,776 bytes, more than the \d")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_special_files_are_refused_at_once(model, tmp_path, kind):
    for victim in ("model.json", "model-*.npz"):
        folder = tmp_path / victim[:7]
        (path,) = model.save(folder).glob(victim)
        path.unlink()
        make = {
            "pipe": lambda path=path: os.mkfifo(path),
            "device": lambda path=path: path.symlink_to("/dev/zero"),
            "folder": lambda path=path: path.mkdir(),
        }
        make[kind]()
        refused(folder, f"is a (named )?{kind}, not a file")
        if victim == "model.json":
            with pytest.raises(FileExistsError, match="not a counterpoise model"):
                model.save(folder)


def test_links_to_files_are_followed(model, tmp_path):
    folder = model.save(tmp_path / "real")
    (tmp_path / "linked").mkdir()
    for path in folder.iterdir():
        (tmp_path / "linked" / path.name).symlink_to(path)
    np.testing.assert_array_equal(load(tmp_path / "linked").coef_, model.coef_)


STRANGE = [
    None, 0, -1, 1.5, "x", [], {}, [1, 2], True, float("nan"), 10**400, [[[]]], "\n" * 50, {"!": 1},
    {"!": "float", "is": "x"}, {"!": "tuple", "items": []}, {"!": "objects", "items": 5},
    {"!": "Period", "is": "x", "freq": "q"}, {"!": "Timestamp", "is": 1, "unit": "O", "zone": 1},
    {"!": "UUID", "is": "x"}, {"!": "Activation", "piecewise": ["relu", "x", {}, []]},
    {"!": "range", "ends": [1], "closed": "x"}, {"!": "array", "name": "model.coef_"},
]  # fmt: skip


def places(tree, at=()):
    """Every place in a tree."""
    yield at
    items = enumerate(tree) if isinstance(tree, list) else getattr(tree, "items", tuple)()
    for key, item in items:
        yield from places(item, (*at, key))


def test_strange_values_in_any_field_are_refused_or_predict(model, rows, tmp_path):
    """By somebody who knows how checksums are made."""
    folder = model.save(tmp_path)
    whole = json.loads((folder / "model.json").read_text())
    rng, held = np.random.default_rng(0), 0
    spots = [at for at in places(whole) if at and at[0] in ("content", "arrays")]
    for _ in range(300):
        forged = json.loads(json.dumps(whole))
        *inner, last = spots[rng.integers(len(spots))]
        target = forged
        for key in inner:
            target = target[key]
        target[last] = STRANGE[rng.integers(len(STRANGE))]
        forged["sha256"] = _digest(forged["content"], forged["arrays"])
        (folder / "model.json").write_text(json.dumps(forged))
        try:
            again = load(folder)
        except ModelFileError as error:
            held += "\n" not in str(error) and len(str(error)) < 700
        else:
            held += again.predict(rows[0]).shape == (len(rows[0]),)
    assert held == 300
