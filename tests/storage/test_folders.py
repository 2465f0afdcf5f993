"""Folders that are made before the work begins."""

from __future__ import annotations

from contextlib import suppress

from counterpoise.storage.folders import removed_if_empty


class Failed(Exception):
    """The work went wrong."""


def test_all_that_was_made_goes_if_the_work_fails(tmp_path):
    (tmp_path / "a").mkdir()
    with suppress(Failed), removed_if_empty(tmp_path / "a" / "b" / "c"):
        assert (tmp_path / "a" / "b" / "c").is_dir()
        raise Failed
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]  # which was there before


def test_a_folder_that_is_not_empty_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with suppress(Failed), removed_if_empty("a/b"):
        (tmp_path / "a" / "kept.txt").touch()
        raise Failed
    assert {*tmp_path.rglob("*")} == {tmp_path / "a", tmp_path / "a" / "kept.txt"}
    with removed_if_empty("a"):
        pass
    assert (tmp_path / "a" / "kept.txt").exists()
