"""Tables written to files of every kind."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq

COLUMNS = {
    "size": [1.5, -2.0, 3.25, 4.0, 0.0],
    "rooms": [1, 2, 3, 2, 1],
    "new": [True, False, True, True, False],
    "town": ["A", "B, C", "Ü", "A", "B, C"],
    "price": [10.0, 20.0, 30.0, 40.0, 50.0],
}
KINDS = ["csv", "tsv", "csv.gz", "parquet", "folder", "arrow", "stream.ipc", "feather", "npz"]


def write(kind, folder, columns=COLUMNS):
    """The columns in a file of one kind; the path of it."""
    path, table = folder / f"data.{kind}", pa.table(columns)
    if kind == "folder":
        path.mkdir()
        pq.write_table(table.slice(0, 2), path / "a.parquet")
        pq.write_table(table.slice(2), path / "b.parquet", row_group_size=2)
    elif kind == "parquet":
        pq.write_table(table, path, row_group_size=2)
    elif kind == "feather":
        feather.write_feather(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as sink:
            sink.write_table(table, max_chunksize=2)
    elif kind == "stream.ipc":
        with pa.ipc.new_stream(path, table.schema) as sink:
            sink.write_table(table)
    elif kind == "npz":
        np.savez(path, **{name: np.array(values) for name, values in columns.items()})
    else:
        text = io.BytesIO()
        delimiter = "\t" if kind == "tsv" else ","
        pacsv.write_csv(table, text, pacsv.WriteOptions(delimiter=delimiter))
        data = text.getvalue()
        path.write_bytes(gzip.compress(data) if kind == "csv.gz" else data)
    return path


def csv(folder, text, name="data.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path
