"""Bicycles rented in an hour, one group per hour of the day."""

from __future__ import annotations

import numpy as np

from datasets.source import Source, codes, member


def load(model, cache):
    import pandas as pd

    table = pd.read_csv(member("islp==0.6.0", "data/Bikeshare.csv", cache))
    numeric = table[["holiday", "workingday", "temp", "atemp", "hum", "windspeed", "day"]]
    dummies = pd.get_dummies(table[["mnth", "weathersit"]], drop_first=True)
    # A weather seen in a handful of rows would be a column of zeros in nearly every group.
    dummies = dummies.loc[:, dummies.sum() >= 20]
    X = np.column_stack([numeric, dummies]).astype(float)
    return X, table["bikers"].to_numpy(dtype=float), codes(table["hr"])


SOURCES = [Source("bikeshare", "Bikeshare: bikers by hour", load)]
