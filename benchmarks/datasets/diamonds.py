"""Price of 53,940 diamonds by clarity: the numeric columns of the well-known table."""

from __future__ import annotations

from datasets.source import Source, codes, member


def load(model, cache):
    import pandas as pd

    table = pd.read_csv(member("plotnine==0.15.8", "data/diamonds.csv", cache))
    X = table[["carat", "depth", "table", "x", "y", "z"]].to_numpy(dtype=float)
    return X, table["price"].to_numpy(dtype=float), codes(table["clarity"])


SOURCES = [Source("diamonds", "diamonds: price by clarity", load)]
