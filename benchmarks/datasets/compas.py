"""Two-year recidivism (0 or 1), one group per race and sex with enough rows."""

from __future__ import annotations

import numpy as np

from datasets.source import Source, codes, member

SMALLEST = 50


def load(model, cache):
    import pandas as pd

    table = pd.read_csv(member("fairness==0.1.8", "raw/propublica-recidivism.csv", cache))
    known = table["days_b_screening_arrest"].abs() <= 30
    table = table[known & (table["is_recid"] != -1) & (table["c_charge_degree"] != "O")]
    group = (table["race"] + " " + table["sex"]).astype(str)
    table = table[group.map(group.value_counts()) >= SMALLEST]
    numeric = ["age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    young, felony = table["age"] < 25, table["c_charge_degree"] == "F"
    X = np.column_stack([table[numeric], young, felony]).astype(float)
    return X, table["two_year_recid"].to_numpy(float), codes(group[table.index])


SOURCES = [Source("compas", "COMPAS: recidivism by race and sex", load)]
