"""Files that are not tables are refused by what they are, before anything is read."""

from __future__ import annotations

import os
import sys

import pytest

from counterpoise.tabular import DataError, open_table
from counterpoise.tabular.foreign import FOREIGN, MAGIC


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.npz"])
def test_pipes_and_devices_are_refused_and_not_read(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(DataError, match=f"{name}' is a pipe.*save the data to a file"):
        open_table(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=f"{name}' is a pipe, a device"):
        open_table(path)


@pytest.mark.parametrize("suffix", FOREIGN)
def test_files_of_other_programs_are_to_be_saved_as_csv(tmp_path, suffix):
    path = tmp_path / f"a{suffix.upper()}"
    path.write_bytes(b"content")
    with pytest.raises(DataError, match=r"save the table as CSV or Parquet") as refused:
        open_table(path)
    assert "ename" not in str(refused.value)


@pytest.mark.parametrize("magic", MAGIC)
def test_content_tells_what_a_name_hides(tmp_path, magic):
    path = tmp_path / "a.csv"
    path.write_bytes(magic + b"\x1b[31m\x00more")
    for options in ({}, {"format": "csv"}):
        with pytest.raises(DataError, match=r"a.csv' is .*, not a CSV file; ") as refused:
            open_table(path, **options)
        assert str(refused.value).isprintable()


def test_names_of_columns_are_no_magic(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("PAR1,BZh9,ARROW1\n1,2,3\n")
    assert open_table(path).names == ["PAR1", "BZh9", "ARROW1"]
