"""Row numbers are left out with a note, unless they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoise.tabular import DataError, TableEncoder, learn_layout, table
from counterpoise.tabular.row_numbers import is_named_so

N = 60


def columns(**more):
    rng = np.random.default_rng(0)
    return {**more, "x": rng.normal(size=N), "y": rng.normal(size=N)}


def learned(target="y", **more):
    options = {name: more.pop(name) for name in ("features", "drop") if name in more}
    return learn_layout(columns(**more), target=target, **options)


@pytest.mark.parametrize(
    "name", ["rownames", "id", "ID", "Unnamed: 0", "index", "row_id", "customer_id", "userId"]
)
@pytest.mark.parametrize(
    "values", [range(N), range(N, 0, -1), range(1000, 1000 + 7 * N, 7), np.arange(N) * 1.0]
)
def test_numbers_in_order_under_such_a_name_are_left_out(name, values, monkeypatch):
    monkeypatch.setattr(table, "ROWS", 7)
    found = learned(**{name: list(values)})
    assert found.layout.inputs == ("x",)
    assert found.notes == (
        f"column {name!r} numbers the rows and is left out; if it means more than that, name it "
        "among the features",
    )


def test_whoever_asks_for_them_has_them():
    found = learned(id=list(range(N)), features=["id", "x"])
    assert found.layout.inputs == ("id", "x")
    assert not found.notes
    assert learned(id=list(range(N)), drop=["id"]).notes == ()
    encoder = TableEncoder().fit({"id": list(range(N)), "x": list(range(N))})
    assert encoder.layout_.inputs == ("id", "x"), "features alone are taken as they are"


def test_other_numbers_in_order_stay_with_a_note():
    found = learned(year=list(range(1950, 1950 + N)))
    assert found.layout.inputs == ("year", "x")
    (note,) = found.notes
    assert "column 'year' is larger in every row than in the row before" in note
    assert note.endswith("leave it out with drop=['year']")


def test_identifiers_out_of_order_stay_with_a_note():
    shuffled = np.random.default_rng(0).permutation(N).tolist()
    found = learned(user_id=shuffled)
    assert found.layout.inputs == ("user_id", "x")
    (note,) = found.notes
    assert "column 'user_id' seems to hold identifiers" in note
    assert "categorical=['user_id']" in note


@pytest.mark.parametrize("values", [[0.5 + k for k in range(N)], [1.0, 2.0] * (N // 2)])
def test_amounts_are_not_suspected(values):
    assert learned(size=values).notes == ()


def test_nothing_left_is_an_error_with_the_way_out():
    data = {"id": list(range(N)), "y": columns()["y"]}
    with pytest.raises(DataError, match=r"beside 'id', which numbers.*features=\['id'\]"):
        learn_layout(data, target="y")
    assert learn_layout(data, target="y", features=["id"]).layout.inputs == ("id",)


def test_words_that_end_in_id_are_no_identifiers():
    assert not any(map(is_named_so, ["paid", "grid", "Madrid", "humid", "idle", "kids", "trend"]))
