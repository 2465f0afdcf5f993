"""Splits as cells: every training set is the union of its cells, whatever the splits are."""

from __future__ import annotations

import numpy as np
import pytest
from problems import neuron_data
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from counterpoise import GroupDRONeuronCV
from counterpoise.estimators.folds import MOST_PARTS, fitted_together


@pytest.mark.parametrize(
    "splitter",
    [
        KFold(5, shuffle=True, random_state=0),
        RepeatedKFold(n_splits=4, n_repeats=3, random_state=0),
        TimeSeriesSplit(4),
        ShuffleSplit(9, test_size=0.3, random_state=0),
        KFold(100),
    ],
)
def test_parts_make_up_the_training_rows(splitter):
    n = 400
    splits, seen = [*splitter.split(np.zeros(n))], []
    for run, parts, kept in fitted_together(splits, n):
        assert kept.shape[0] == len(run)
        assert len(run) == 1 or kept.shape[1] <= MOST_PARTS
        assert set(parts) == set(range(kept.shape[1]))
        for row, s in zip(kept, run, strict=True):
            np.testing.assert_array_equal(np.flatnonzero(row[parts]), np.sort(splits[s][0]))
        seen += run
    assert seen == [*range(len(splits))]


def test_repeats_do_not_cut_the_folds_of_others_to_pieces():
    splits = [*RepeatedKFold(n_splits=5, n_repeats=3, random_state=0).split(np.zeros(400))]
    runs = [(len(run), kept.shape[1]) for run, _, kept in fitted_together(splits, 400)]
    assert runs == [(5, 5)] * 3


@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_folds_in_lockstep_end_where_single_ones_do(activation, monkeypatch):
    X, y, groups = neuron_data(K=3, n=200, d=3, activation=activation, seed=6)
    options = dict(cv=3, truncate=[None, 0.95], nus=[np.inf, 0.5, 0.05, 0.0])
    together = GroupDRONeuronCV(activation, **options).fit(X, y, groups=groups)
    monkeypatch.setattr("counterpoise.estimators.designs.MOST_NUMBERS", 0)
    single = GroupDRONeuronCV(activation, **options).fit(X, y, groups=groups)
    for name in ("worst_group_risk", "average_risk", "group_risks"):
        found, expected = (model.cv_results_[name] for model in (together, single))
        np.testing.assert_allclose(found, expected, rtol=2e-3)
    assert together.best_params_["nu"] == pytest.approx(single.best_params_["nu"])


def test_a_default_search_reads_the_rows_less_often_than_ten_fits(monkeypatch):
    """Rounds of questions: what a search of rows that are read from elsewhere would cost."""
    from counterpoise import GroupDRONeuron
    from counterpoise.rows.engines.memory import MemoryEngine

    X, y, groups = neuron_data(K=5, n=400, d=6, seed=7)
    single = GroupDRONeuron().fit(X, y, groups=groups).n_passes_
    reads = []
    ask_all = MemoryEngine.ask_all
    monkeypatch.setattr(
        MemoryEngine, "ask_all", lambda self, asked: (reads.append(1), ask_all(self, asked))[1]
    )
    ask = MemoryEngine.ask
    monkeypatch.setattr(
        MemoryEngine, "ask", lambda self, asked: (reads.append(1), ask(self, asked))[1]
    )
    GroupDRONeuronCV().fit(X, y, groups=groups)
    assert len(reads) <= 10 * single
