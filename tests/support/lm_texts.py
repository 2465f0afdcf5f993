"""Texts to prepare, and what became of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from counterpoise.lm import prepare
from counterpoise.lm.corpus.encoding import DocumentEncoder


def write(path, texts):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def documents(n=200, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array(["a", "bee", "çé", "猫", "\n"])
    return [f"{i} " + " ".join(rng.choice(words, rng.integers(1, 30))) for i in range(n)]


def contents(folder):
    """Every file below a folder, by its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Stop(Exception):
    pass


def crash(after, sources, out, **options):
    """A preparation that fails at one of its batches, as a crash would."""
    real = DocumentEncoder.encode
    left = [after]

    def encode(self, texts):
        left[0] -= 1
        if left[0] < 0:
            raise Stop
        return real(self, texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentEncoder, "encode", encode)
        with pytest.raises(Stop):
            prepare(sources, out, **options)
