"""Files that carry their kind and version."""

from __future__ import annotations

import pytest

from counterpoise.storage import files
from counterpoise.storage.files import read_json


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "b"}', '{"format": "a", "version": 2}'])
def test_the_remedy_is_the_caller_s(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.json' (is|has) .*write it again, or give another$"):
        read_json(path, "a", 1)
    with pytest.raises(ValueError, match=r"a\.json' (is|has) .*ask for it$"):
        read_json(path, "a", 1, "ask for it")


def test_a_checksum_is_the_crc_of_all_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 4)
    path = tmp_path / "digits"
    path.write_bytes(b"123456789")
    assert files.checksum(path) == "cbf43926"  # the check value of CRC-32
