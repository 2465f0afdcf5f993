"""Delay of three million flights, one group for each of the fifty busiest airports."""

from __future__ import annotations

import numpy as np

from datasets.source import Source, codes, member


def load(model, cache):
    import pandas as pd

    table = pd.read_parquet(member("npm:vega-datasets@3.2.1", "data/flights-3m.parquet", cache))
    busy = table["origin"].value_counts().index[:50]
    table = table[table["origin"].isin(busy)]
    when = table["date"].dt
    parts = [np.sqrt(table["distance"]), table["distance"] / 1000]
    parts += [when.hour == hour for hour in range(1, 24)]
    parts += [when.dayofweek == day for day in range(1, 7)]
    parts += [when.month == month for month in range(2, 7)]
    X = np.empty((len(table), len(parts)))
    for column, part in enumerate(parts):
        X[:, column] = part
    return X, table["delay"].to_numpy(dtype=float), codes(table["origin"].astype(str))


SOURCES = [Source("flights-3m", "three million flights: delay by origin", load, ("identity",))]
