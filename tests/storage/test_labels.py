"""Labels of groups come back equal and of the same type, or are refused before the fit."""

import datetime as dt
import enum
import json
import uuid
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from problems import neuron_data

from counterpoise import Chunks, GroupDRONeuron, GroupDRONeuronCV, load
from counterpoise.storage.packing import Packer, unpack

BERLIN = ZoneInfo("Europe/Berlin")
TIMES = ["2024-10-27 00:30", "2023-05-01", "2022-01-01 12:00:00.123456789"]
DAYS = pd.to_datetime(TIMES, format="ISO8601")
LABELS = {
    "zoned timestamps": pd.Series(DAYS).dt.tz_localize("UTC").dt.tz_convert(BERLIN),
    "timestamps at an offset": [pd.Timestamp(f"2024-01-0{i}T00:00+02:00") for i in (1, 2, 3)],
    "plain timestamps": np.array(list(DAYS), dtype=object),
    "far timestamps": [pd.Timestamp(f"{year}-01-01").as_unit("s") for year in (1, 3000, 9999)],
    "periods": pd.Series(pd.period_range("2024Q1", periods=3, freq="Q-NOV")),
    "intervals": pd.cut([1.0, 5.0, 9.5], [0, 3, 6.1, np.inf]),
    "intervals of time": pd.cut(DAYS, 3),
    "uuids": [uuid.UUID(int=i) for i in (3, 1 << 100, 7)],
    "decimals": [Decimal("1.10"), Decimal("1e-50"), Decimal(3)],
    "fractions": [Fraction(1, i) for i in (3, 1, 2)],
    "dates": [dt.date(2024, 1, i) for i in (3, 1, 2)],
    "times": [dt.time(i, 5, 7, 11) for i in (3, 1, 2)],
    "datetimes": [dt.datetime(2024, 1, i, 5, 7, 11, 13) for i in (3, 1, 2)],
    "zoned datetimes": [dt.datetime(2024, 10, i, 2, 30, tzinfo=BERLIN) for i in (26, 27, 28)],
    "durations": np.array([dt.timedelta(i, 5, 7) for i in (3, 1, 2)], dtype=object),
    "durations of pandas": np.array([pd.Timedelta(i, "h") for i in (3, 1, 2)], dtype=object),
    "bytes": np.array([b"a", b"b\xff", b""], dtype=object),
    "large integers": [10**30, -(10**31), 5],
    "tuples": [("x", 1), ("x", 2), ("a", 3)],
}


def repeated(labels):
    """Ninety rows of three groups."""
    out = np.empty(90, dtype=object)
    for i in range(90):
        out[i] = list(labels)[i % 3]
    return out


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back(kind, tmp_path):
    X, y, _ = neuron_data(K=3, n=30, d=2)
    groups = repeated(LABELS[kind])
    model = GroupDRONeuron("identity").fit(X, y, groups=groups)
    again = load(model.save(tmp_path))
    assert list(again.groups_) == list(model.groups_) == sorted(set(groups))
    assert list(map(type, again.groups_)) == list(map(type, model.groups_))
    assert list(map(repr, again.groups_)) == list(map(repr, model.groups_))
    reference = dict.fromkeys(groups, 0.25)  # keys of an option
    GroupDRONeuron("identity", reference=reference).fit(X, y, groups=groups).save(tmp_path)
    assert load(tmp_path).reference == reference


def test_scalars_of_numpy_come_back():
    for value in (np.datetime64("2024-01-01"), np.timedelta64(3, "7D"), np.datetime64(5, "25s")):
        packer = Packer()
        again = unpack(json.loads(json.dumps(packer.pack(value, "value"))), packer.arrays)
        assert again == value
        assert again.dtype == value.dtype


def test_a_zone_that_is_not_known_becomes_an_offset():
    packer = Packer()
    tree = packer.pack(dt.datetime(2024, 7, 1, tzinfo=BERLIN), "value")
    tree["zone"][0] = "../../etc/passwd"
    again = unpack(tree, {})
    assert again == dt.datetime(2024, 7, 1, tzinfo=BERLIN)
    assert again.utcoffset() == dt.timedelta(hours=2)


class Mine:
    def __init__(self, i):
        self.i = i

    def __lt__(self, other):
        return self.i < other.i


class Size(enum.Enum):
    SMALL, LARGE, OTHER = 1, 2, 3


def test_what_cannot_be_stored_is_refused_before_the_fit():
    X, y, _ = neuron_data(K=3, n=30, d=2)
    mine = repeated([Mine(1), Mine(2), Mine(3)])
    message = r"groups has labels of type Mine.*cannot be stored.*with str\(\)"
    for model in (GroupDRONeuron(), GroupDRONeuronCV("identity", nus=[0.0])):
        with pytest.raises(TypeError, match=message):
            model.fit(X, y, groups=mine)
    with pytest.raises(TypeError, match=message):
        GroupDRONeuron().fit(Chunks([(X, y, mine)]))
    with pytest.raises(TypeError, match="tuple"):
        GroupDRONeuron().fit(X, y, groups=repeated([(1, Mine(1)), (2, Mine(2)), (3, Mine(3))]))
    with pytest.raises(TypeError, match=r"complex.*convert them"):
        GroupDRONeuron().fit(X, y, groups=np.arange(90) % 3 + 1j)
    with pytest.raises(TypeError, match=r"cannot be sorted.*\(Size\).*str\(\)"):
        GroupDRONeuron().fit(X, y, groups=repeated(Size))
