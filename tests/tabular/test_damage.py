"""Damaged Parquet and Arrow data is refused before it is used, and lazy frames are collected."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from counterpoise import GroupDRONeuron
from counterpoise.tabular import (
    DataError,
    TableSource,
    as_table,
    fit_table,
    fits_in_memory,
    formats,
    learn_layout,
    open_table,
    read_rows,
    sample_rows,
)
from counterpoise.tabular.cells import is_missing, words
from counterpoise.tabular.predict import predictions


def drained(table):
    return sum(batch.num_rows for batch in table.batches())


def test_text_in_parquet_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    raw = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"t": raw, "y": [1, 2]}), path)
    with pytest.raises(DataError, match=r"a.parquet' is truncated or damaged \(.*UTF8"):
        drained(open_table(path))


def test_a_footer_that_claims_more_rows_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(300.0)}), path)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8].replace(b"\x16\xd8\x04", b"\x16\x80\xd0\xac\xf3\x0e")
    ending = len(footer).to_bytes(4, "little") + b"PAR1"
    path.write_bytes(data[: -8 - size] + footer + ending)
    table = open_table(path)
    assert table.n_rows == 2_000_000_000
    with pytest.raises(DataError, match=r"a.parquet' is truncated or damaged"):
        drained(table)


def test_damaged_offsets_of_arrow_text_are_refused(tmp_path):
    """Reading them would read any memory."""
    path = tmp_path / "a.arrow"
    table = pa.table({"t": ["alpha", "beta", "gamma"], "y": [1, 2, 3]})
    feather.write_feather(table, path, compression="uncompressed")
    offsets = np.array([0, 5, 9, 14], np.int32).tobytes()
    data = path.read_bytes()
    assert data.count(offsets) == 1
    wrong = np.array([0, 5, 2**30, 2**30 + 5], np.int32).tobytes()
    path.write_bytes(data.replace(offsets, wrong))
    with pytest.raises(DataError, match=r"a.arrow' cannot be read as an Arrow file"):
        open_table(path)


@pytest.mark.parametrize("stream", [False, True])
def test_compressed_arrow_larger_than_the_memory_is_refused(tmp_path, monkeypatch, stream):
    batch = pa.RecordBatch.from_arrays([pa.array(np.zeros(100_000))], names=["x"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "a.arrow"
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opened(str(path), batch.schema, options=options) as file:
        for _ in range(10):
            file.write_batch(batch)
    assert open_table(path).n_rows == 1_000_000
    monkeypatch.setattr(formats, "budget", lambda: 2e6)
    with pytest.raises(DataError, match=r"a.arrow' does not fit in the memory"):
        open_table(path)


def test_a_batch_of_a_large_dictionary_costs_what_the_batch_has():
    entries = pa.array([*map(str, range(10_000)), None])
    column = pa.DictionaryArray.from_arrays(pa.array([7, None, 9_999, 7, 10_000]), entries)
    codes, values = words(column)
    assert [values[code] if code >= 0 else None for code in codes] == ["7", None, "9999", "7", None]
    assert len(values) == 2
    assert is_missing(column).tolist() == [False, True, False, False, True]


def test_lazy_frames_are_tables_everywhere():
    rng = np.random.default_rng(0)
    n = 80
    x = rng.normal(size=n)
    frame = pl.LazyFrame({"x": x, "g": ["a", "b"] * (n // 2), "y": x + rng.normal(size=n)})
    learned = learn_layout(frame, target="y", group="g")
    layout = learned.layout
    assert len(read_rows(frame, layout)) == len(sample_rows(frame, layout, n)) == n
    assert TableSource(frame, layout).n_rows == n
    assert fits_in_memory(frame, layout)
    record = fit_table(GroupDRONeuron(), frame, learned, bare=True)
    (batch,) = predictions(record.model, frame)
    assert batch.column(0).to_numpy() == pytest.approx(record.model.predict(frame))


def test_a_lazy_frame_that_fails_is_said_to():
    frame = pl.LazyFrame({"x": ["a"]}).select(pl.col("x").cast(pl.Int64))
    with pytest.raises(DataError, match=r"the lazy frame cannot be collected .*collect it first"):
        as_table(frame)
