"""Cells of a stranger's table that would be obeyed by a terminal or run by a spreadsheet."""

from __future__ import annotations

import pyarrow as pa
import pytest

from counterpoise.tabular.safe_text import protected, shown

CELLS = [
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\tx",
    "\rx",
    "\x1b[31m",
    "a\x9b2J",
    "\u202ex",
    " =1",
    "a=1",
    None,
]


def batch(kind):
    text = pa.array(CELLS)
    text = text.dictionary_encode() if kind == "dictionary" else text.cast(kind)
    numbers = pa.array([-1.5] * len(CELLS))
    return pa.RecordBatch.from_arrays([text, numbers], names=["=name\x1b", "n"])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), "dictionary"])
def test_formulas_become_text_and_numbers_stay(kind):
    found = protected(batch(kind))
    assert found.schema.names == ["'=name\\x1b", "n"]
    assert found.column(0).to_pylist() == [
        "'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\\x0dx", "\\x1b[31m", "a\\x9b2J", "\\u202ex",
        "' =1", "a=1", None,
    ]  # fmt: skip
    assert found.column(1).equals(batch(kind).column(1))


def test_a_terminal_sees_escapes_and_no_apostrophes():
    found = shown(batch(pa.string())).column(0).to_pylist()
    assert found[:2] == ["=1+1", "+1"]
    assert found[5:8] == ["\\x0dx", "\\x1b[31m", "a\\x9b2J"]
    assert found[-1] is None
