"""Write the sample tables that ship with the package (`counterpoise sample`).

    python benchmarks/sample_tables.py

Rows are drawn at random with a fixed seed, the same share of every group, and keep their order.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from datasets.source import member
from datasets.tables import one_hot, read

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src" / "counterpoise" / "tabular" / "sample_data"
ROWS = 12_000
# What the census recorded of a person. Left out: fnlwgt, the census's own weight of a person, and
# education, which says the same as education-num.
ADULT = (
    "age", "workclass", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip


def diamonds(cache):
    import pandas as pd

    return pd.read_csv(member("plotnine==0.15.8", "data/diamonds.csv", cache))


def adult(cache):
    import pandas as pd

    table = read("adult.csv.zip", cache, compression="zip")
    columns = {
        name: table[name] if name in table.columns else one_hot(table, f"{name}_") for name in ADULT
    }
    return pd.DataFrame({**columns, "income": one_hot(table, "salary_")})


def drawn(table, by):
    """A share of every group's rows, in their order."""
    found = table.groupby(by).sample(frac=ROWS / len(table), random_state=0)
    return found.sort_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=ROOT / "out" / "bench" / "packages")
    cache = parser.parse_args().cache
    tables = {
        "diamonds": drawn(diamonds(cache), ["clarity"]),
        "adult": drawn(adult(cache), ["sex", "income"]),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, table in tables.items():
        text = table.to_csv(index=False, lineterminator="\n").encode()
        data = gzip.compress(text, mtime=0)
        (FOLDER / f"{name}.csv.gz").write_bytes(data)
        print(f"{name}: {len(table):,} rows, {len(data):,} bytes")


if __name__ == "__main__":
    main()
