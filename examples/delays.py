"""When not to: delays on arrival of the same flights, from the timetable alone, by carrier.

Delays have heavy tails, and a worst-group fit follows the worst of them. The diagnosis says so
beforehand; the cross-validated fit stays near least squares.

    python examples/delays.py

needs ``pip install ".[demo]"`` in a checkout.
"""

from __future__ import annotations

import math

import numpy as np
from flights import carrier_names, table

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, diagnose

SMALLEST = 100  # flights a carrier needs to be a group


def load():
    """What the timetable tells of every flight that arrived, its delay in minutes, its carrier."""
    import pandas as pd

    rows = table("flights").dropna(subset=["air_time", "arr_delay"])
    rows = rows[rows["carrier"].map(rows["carrier"].value_counts()) >= SMALLEST]
    season = 2 * np.pi * (rows["month"] - 1 + rows["day"] / 31) / 12
    weekday = pd.to_datetime(rows[["year", "month", "day"]]).dt.day_of_week
    X = pd.DataFrame(
        {
            "distance": rows["distance"],
            "hour": rows["hour"],
            "hour squared": rows["hour"] ** 2,
            "minute": rows["minute"],
            "winter": np.cos(season),
            "spring": np.sin(season),
            "JFK": rows["origin"] == "JFK",
            "LGA": rows["origin"] == "LGA",
            "weekend": weekday >= 5,
        }
    ).astype(float)
    return X, rows["arr_delay"].to_numpy(dtype=float), carrier_names(rows["carrier"])


def main() -> None:
    X, y, groups = load()
    print(diagnose(X, y, groups, activation="identity"))
    held = np.random.default_rng(0).random(len(y)) < 0.3
    fits = {
        "least squares": GroupDRONeuron("identity", nu=math.inf, prior="rows"),
        "worst group (nu = 0)": GroupDRONeuron("identity", nu=0.0),
        "chosen": GroupDRONeuronCV("identity"),
    }
    print("\nHeld-out error of the worst carrier: root mean square, in minutes\n")
    for name, model in fits.items():
        model.fit(X[~held], y[~held], groups=groups[~held])
        print(f"{name:<22}{model.worst_group_risk(X[held], y[held], groups[held]) ** 0.5:>6.1f}")
    print(f"\n{fits['chosen'].verdict_}")


if __name__ == "__main__":
    main()
