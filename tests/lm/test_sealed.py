"""Sealed JSON: damage is found, and objects of releases without checksums are told apart."""

import json

import pytest

from counterpoise.lm.sealed import DamagedFile, read_sealed, seal, write_sealed

REMEDY = "write it again"


def put(path, value):
    path.write_text(json.dumps(value))
    return path


def test_what_was_sealed_is_read_and_every_change_is_found(tmp_path):
    path = tmp_path / "a.json"
    value = {"format": "x", "version": 2, "n": [1, 2.5, None]}
    write_sealed(path, value)
    assert read_sealed(path, REMEDY) == value
    assert read_sealed(path, REMEDY, kind="x", versions=(1, 2), since=2) == value
    whole = path.read_text()
    for old, new in (("2.5", "2.4"), ('"n"', '"m"'), ("null", "0")):
        path.write_text(whole.replace(old, new))
        with pytest.raises(DamagedFile, match=r"a\.json' is damaged: .*; write it again"):
            read_sealed(path, REMEDY, kind="x", versions=(1, 2), since=2)
    for text in ("", "[]", "[" * 100_000, whole[:-5]):
        path.write_text(text)
        with pytest.raises(DamagedFile, match=r"a\.json' is damaged: not .*; write it again"):
            read_sealed(path, REMEDY)


def test_other_formats_and_versions(tmp_path):
    path = put(tmp_path / "a.json", seal({"format": "x", "version": 3}))
    with pytest.raises(ValueError, match=r"a\.json' has version 3 .* reads version 1 and 2"):
        read_sealed(path, REMEDY, kind="x", versions=(1, 2), since=2)
    with pytest.raises(ValueError, match=r"a\.json' is not a y; write it again"):
        read_sealed(path, REMEDY, kind="y", versions=(3,))


def test_a_checksum_may_be_missing_only_where_earlier_releases_wrote_none(tmp_path):
    path = tmp_path / "a.json"
    versions = {"kind": "x", "versions": (1, 2), "since": 2}
    old, new = {"format": "x", "version": 1}, {"format": "x", "version": 2}
    assert read_sealed(put(path, old), REMEDY, **versions) == old
    with pytest.raises(DamagedFile):
        read_sealed(put(path, new), REMEDY, **versions)
    assert read_sealed(put(path, {"a": 1}), REMEDY, new_entry="b") == {"a": 1}
    with pytest.raises(DamagedFile):
        read_sealed(put(path, {"a": 1, "b": 2}), REMEDY, new_entry="b")
    assert read_sealed(put(path, {"a": 1, "b": 2}), REMEDY) == {"a": 1, "b": 2}
