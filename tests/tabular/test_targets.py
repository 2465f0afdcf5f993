"""The values of a target decide the task, and it is said where they leave doubt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from counterpoise.tabular import DataError, TableSource, learn_layout, read_rows, sample_rows
from counterpoise.tabular.labels import joined_memberships

X = list(np.random.default_rng(0).normal(size=60))


def notes(y):
    return learn_layout({"x": X[: len(y)], "y": y}, target="y").notes


def learned(y, **options):
    return learn_layout({"x": X[: len(y)], "y": y}, target="y", **options)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["no", "yes"] * 5, ("no", "yes")),
        (["b", "c", "a"] * 5, ("a", "b", "c")),
        ([True, False] * 5, (False, True)),
        ([1, 0, 0], (0, 1)),
        ([1.0, 0.0, None, 0.0], (0, 1)),
        ([1, -1, -1], (-1, 1)),
        ([2, 1] * 10, (1, 2)),
        ([2, 1, 2], ()),  # too few rows to tell
        ([0.5, 1.5] * 30, ()),
        ([3, 1, 2] * 20, ()),
        ([7, 7, 7], ()),
        (pa.array(["1", "2", "1"]).dictionary_encode(), ("1", "2")),
    ],
)
def test_values_decide_the_task(y, classes):
    found = learned(y, missing="drop")
    assert found.layout.classes == classes
    assert [type(c) for c in found.layout.classes] == [type(c) for c in classes]
    assert found.layout.task == ("classify" if classes else "regress")
    assert list(found.classes) == list(classes)
    assert sum(found.classes.values()) == (found.used if classes else 0)


def test_the_task_can_be_said():
    assert learned([3, 1, 2] * 4, task="classify").layout.classes == (1, 2, 3)
    assert learned(["1", "2"], task="classify").layout.classes == ("1", "2")
    as_numbers = learned([True, False], task="regress").layout
    assert as_numbers.classes == ()
    assert read_rows({"x": X[:2], "y": [True, False]}, as_numbers).y.tolist() == [1.0, 0.0]
    assert learned([0, 1] * 5, task="regress").notes == ()
    with pytest.raises(ValueError, match="task"):
        learned([0, 1], task="rank")


@pytest.mark.parametrize(
    ("y", "options", "told"),
    [
        ([0.5, 1.0], {"task": "classify"}, "not whole, such as 0.5, .*task='regress'"),
        (["a", "b"], {"task": "regress"}, "holds text, such as 'a'; .*task='classify'"),
        (list("abcd"), {"max_levels": 3}, "more than 3 classes.*max_levels=30"),
        ([5, 5], {"task": "classify"}, "every row has 5 in the target column 'y'"),
        (["1", "2"], {}, "save them as numbers; if they name classes, use task='classify'"),
        ([1.0, 2.5, 4.0], {"with_label": True}, "groups can be crossed with classes alone"),
    ],
)
def test_targets_that_do_not_suit_the_task(y, options, told):
    with pytest.raises(DataError, match=told):
        learned(y, **options)


@pytest.mark.parametrize("y", [[0, 1] * 30, [1.0, 0.0] * 30])
def test_two_numbers_are_said_to_be_classes(y):
    (note,) = notes(y)
    assert note == (
        "the target 'y' has two values, 0 and 1, which are taken for classes; if they are "
        "amounts, use task='regress'"
    )
    assert notes(["no", "yes"] * 30) == notes([True, False] * 30) == ()


def test_classes_are_read_as_they_are_in_the_table():
    y = ["no", None, "yes", "no"]
    layout = learn_layout({"x": X[:4], "y": y}, target="y", missing="drop").layout
    assert read_rows({"x": X[:4], "y": y}, layout).y.tolist() == ["no", "yes", "no"]
    loose = read_rows({"x": X[:4], "y": y}, layout, labelled=False)
    assert loose.y.tolist() == y
    with pytest.raises(DataError, match="never saw: 'maybe'; it knows the classes 'no', 'yes'"):
        read_rows({"x": X[:1], "y": ["maybe"]}, layout)
    whole = learn_layout({"x": X[:3], "y": [4, 2, 3]}, target="y", task="classify").layout
    assert read_rows({"x": X[:3], "y": [2.0, 4.0, 3.0]}, whole).y.tolist() == [2, 4, 3]
    with pytest.raises(DataError, match="never saw: '5'"):
        read_rows({"x": X[:2], "y": [2, 5]}, whole)


@pytest.mark.parametrize("y", [["no", "yes"], [False, True], [0, 1], [0.0, 1.0]])
def test_groups_can_be_crossed_with_classes(y):
    hair = ["red", "red", "grey", "grey", "red"]
    columns = {"x": X[:5], "hair": hair, "y": [*y, *y, y[0]]}
    found = learn_layout(columns, target="y", group="hair", with_label=True)
    names = [str(c) for c in found.layout.classes]
    assert found.groups == {
        f"grey | {names[0]}": 1, f"grey | {names[1]}": 1,
        f"red | {names[0]}": 2, f"red | {names[1]}": 1,
    }  # fmt: skip
    expected = [f"{h} | {names[i]}" for h, i in zip(hair, [0, 1, 0, 1, 0], strict=True)]
    assert read_rows(columns, found.layout).groups.tolist() == expected
    (chunk,) = TableSource(columns, found.layout)
    assert chunk[2].tolist() == expected
    assert chunk[1].tolist() == [*y, *y, y[0]]
    drawn = sample_rows(columns, found.layout, 3)
    assert set(drawn.groups) <= set(expected)
    alone = learn_layout(columns, target="y", features=["x"], with_label=True)
    assert alone.groups == {names[0]: 3, names[1]: 2}


def test_a_label_that_would_read_as_two_is_refused():
    columns = {"x": X[:4], "g": list("abab"), "y": ["p | q", "r"] * 2}
    with pytest.raises(DataError, match=r"target column 'y' has the value 'p \| q'"):
        learn_layout(columns, target="y", group="g", with_label=True)


def test_a_few_numbers_are_noted_and_amounts_are_not():
    (note,) = notes([3, 1, 2] * 20)
    assert note == (
        "the target 'y' has only 3 values, 1, 2 and 3: they are fitted as numbers, by squared "
        "error; if they name classes, use task='classify'"
    )
    assert notes(X[::-1]) == ()
    assert notes([1, 2, 3, 4]) == (), "too few rows to tell"
    assert notes(list(range(6)) * 10) == ()


@pytest.mark.parametrize(
    ("holes", "advised"),
    [
        ({"y": [1.0, None, 3.0]}, "'y' (1); leave these rows out with missing='drop'"),
        ({"w": [1.0, None, 3.0]}, "'w' (1); leave these rows out with missing='drop'"),
        (
            {"x": [1.0, None, 3.0]},
            "'x' (1); leave these rows out with missing='drop', or fill them in with "
            "missing='impute'",
        ),
        (
            {"x": [1.0, None, 3.0], "y": [None, 2.0, 3.0]},
            "leave these rows out with missing='drop'; targets and weights, such as 'y', are not "
            "filled in",
        ),
    ],
)
def test_advice_on_missing_values_works(holes, advised):
    data = {"x": [1.0, 2.0, 3.0], "w": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0], **holes}
    with pytest.raises(DataError) as refused:
        learn_layout(data, target="y", weight="w")
    assert str(refused.value).endswith(advised)
    for way in ("drop", "impute"):
        if f"missing='{way}'" in advised:
            assert learn_layout(data, target="y", weight="w", missing=way).used > 0


def test_levels_of_columns_can_be_groups_side_by_side():
    columns = {
        "x": X[:6], "sex": list("fmfmfm"), "region": ["n", "n", "s", None, "s", "n"],
        "y": ["no", "yes", "no", "no", "yes", "yes"],
    }  # fmt: skip
    known = {"target": "y", "group": ["sex", "region"], "overlapping": True, "missing": "impute"}
    found = learn_layout(columns, **known)
    assert found.groups == {
        "region=(missing)": 1, "region=n": 3, "region=s": 2, "sex=f": 3, "sex=m": 3,
    }  # fmt: skip
    rows = read_rows(columns, found.layout)
    assert rows.groups.labels.tolist() == list(found.groups)
    matrix = rows.groups.matrix.toarray()
    assert (matrix.sum(axis=1) == 2).all()
    assert matrix[:, 4].tolist() == [0, 1, 0, 1, 0, 1]
    # in pieces that do not have every group
    chunks = list(TableSource(columns, found.layout, chunk_rows=2))
    assert len(chunks) == 3
    joined = joined_memberships([chunk[2] for chunk in chunks])
    assert joined.labels.tolist() == rows.groups.labels.tolist()
    np.testing.assert_array_equal(joined.matrix.toarray(), matrix)
    drawn = sample_rows(columns, found.layout, 6)
    np.testing.assert_array_equal(drawn.groups.matrix.toarray(), matrix)
    crossed = learn_layout(columns, **known, with_label=True)
    assert crossed.groups["sex=f | no"] == 2
    assert sum(crossed.groups.values()) == 12
    with pytest.raises(ValueError, match="name them, as in group"):
        learn_layout(columns, target="y", overlapping=True)
