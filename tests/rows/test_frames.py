"""Masks are missing values and lazy frames are collected, wherever rows enter."""

import numpy as np
import pytest
from problems import neuron_data

from counterpoise import (
    Chunks,
    GroupDRONeuron,
    GroupDRONeuronCV,
    Npy,
    assess,
    baselines,
    diagnose,
    solve,
)
from counterpoise.assessment.metrics import group_risks
from counterpoise.rows.frames import given

COLUMNS = ("X", "y", "groups", "sample_weight")


@pytest.fixture(scope="module")
def rows():
    X, y, g = neuron_data(K=3, n=20, d=2)
    return {"X": X, "y": y, "groups": np.array(["a", "b", "c"])[g], "sample_weight": np.ones(60)}


def masked(values, row=3):
    mask = np.zeros(values.shape, dtype=bool)
    mask[row] = True
    return np.ma.array(values, mask=mask)


def dask_fit(X, y, groups, sample_weight):
    da = pytest.importorskip("dask.array")
    blocks = (da.from_array(v, chunks=20, asarray=False) for v in (X, y, groups, sample_weight))
    return GroupDRONeuron().fit(*blocks)


def torch_fit(X, y, groups, sample_weight):
    torch = pytest.importorskip("torch")
    return GroupDRONeuron().fit(torch.tensor(np.asarray(X)), y, groups, sample_weight)


USES = {
    "estimator": lambda **columns: GroupDRONeuron().fit(**columns),
    "cross-validation": lambda **columns: GroupDRONeuronCV(nus=[0.0], cv=2).fit(**columns),
    "baseline": lambda **columns: baselines.AverageNeuron("identity").fit(**columns),
    "solve": lambda **columns: solve(*columns.values()),
    "chunks": lambda **columns: GroupDRONeuron().fit(Chunks([tuple(columns.values())])),
    "npy": lambda **columns: GroupDRONeuron().fit(Npy(*columns.values())),
    "dask": dask_fit,
    "torch": torch_fit,
    "diagnose": lambda **columns: diagnose(*columns.values()),
    "assess": lambda **columns: assess(GroupDRONeuron().fit(**FULL), *columns.values(), folds=None),
    "risks": lambda X, y, **others: group_risks(y, np.zeros(60), **others),
    "predict": lambda X, **_: GroupDRONeuron().fit(**FULL).predict(X),
}
UNUSED = {("torch", "X"), ("risks", "X"), *(("predict", name) for name in COLUMNS[1:])}
USED = [(use, name) for use in USES for name in COLUMNS if (use, name) not in UNUSED]
FULL: dict[str, np.ndarray] = {}


@pytest.fixture(autouse=True)
def full(rows):
    FULL.update(rows)


@pytest.mark.parametrize(("use", "name"), USED)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_mask_is_refused(rows, use, name):
    said = "y_true" if (use, name) == ("risks", "y") else name
    message = rf"{said} has masked \(missing\) values in 1 row\(s\), first in row 3; .* leave out"
    with pytest.raises(ValueError, match=message):
        USES[use](**{**rows, name: masked(rows[name])})
    whole = np.ma.array(rows[name], mask=False)  # nothing is hidden
    USES[use](**{**rows, name: whole})


@pytest.mark.parametrize(("use", "name"), [pair for pair in USED if pair[0] != "dask"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
def test_lazy_frames_are_collected(rows, use, name):
    pl = pytest.importorskip("polars")
    values = rows[name]
    frame = pl.LazyFrame(values if values.ndim == 1 else {"a": values[:, 0], "b": values[:, 1]})
    USES[use](**{**rows, name: frame})


def test_columns_and_scalars():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1, 2]})
    assert given(frame, "y") is frame, "what is not lazy is left as it is"
    assert given(frame.lazy(), "y").to_list() == [1, 2]
    assert given(frame.lazy(), "X").shape == (2, 1)
    assert given(None, "y") is None
    with pytest.raises(ValueError, match="first in row 0"):
        given(np.ma.masked_array(3.0, mask=True), "y")
