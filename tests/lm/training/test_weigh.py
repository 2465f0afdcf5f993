"""Runs whose samples are drawn by other shares than the weights."""

import numpy as np
import pytest
from lm_problems import markov_corpus
from lm_runs import SIZES, SPLITS, assert_same_model, interrupt_at
from lm_runs import run_settings as settings

from counterpoise.common.stopping import Stopped
from counterpoise.lm.logs import JsonlLog
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.train import train
from counterpoise.reweight.sampling import least_variance_shares


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm") / "corpus"
    return markov_corpus(folder, SIZES, splits=SPLITS)


@pytest.mark.parametrize("workers", [0, 1])
def test_shares_of_least_variance_survive_a_stop(corpus, tmp_path, monkeypatch, workers):
    both = settings(corpus, reweight={"weigh": "both", "ratio": 1.25}, train={"workers": workers})
    train(both, tmp_path / "one", progress=False)
    interrupt_at(monkeypatch, 10)
    with pytest.raises(Stopped):
        train(both, tmp_path / "two", progress=False)
    train(both, tmp_path / "two", progress=False)
    assert_same_model(tmp_path / "one", tmp_path / "two")
    logs = [JsonlLog(tmp_path / name / "weights.jsonl").read() for name in ("one", "two")]
    assert logs[0] == logs[1]
    last = logs[0][-1]
    assert last["sampling"]["largest_ratio"] <= 1.25 * (1 + 1e-9)
    assert 0.9 < last["sampling"]["effective_sample_size"] < 1.0
    rows = last["domains"].values()
    assert [row["drawn_by"] for row in rows] != pytest.approx([row["weight"] for row in rows])


def test_shares_follow_the_spreads_of_the_evaluation(corpus, tmp_path):
    both = settings(corpus, reweight={"weigh": "both", "ratio": 4.0})
    train(both, tmp_path, progress=False)
    record = RunFolder(tmp_path).evaluations.read()[-1]
    last = JsonlLog(tmp_path / "weights.jsonl").read()[-1]
    assert last["step"] == record["step"]
    spreads = np.array([record["driving_spreads"][name] for name in SIZES])
    weights = np.array([last["domains"][name]["weight"] for name in SIZES])
    drawn_by = [last["domains"][name]["drawn_by"] for name in SIZES]
    np.testing.assert_allclose(drawn_by, least_variance_shares(weights, spreads, 4.0), rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weigh": "neither"}, "reweight.weigh must be one of 'samples', 'loss', 'both'"),
        ({"weigh": "both", "ratio": 0.9}, "reweight.ratio must be a finite number >= 1; got 0.9"),
        (
            {"rule": "pd-kl", "weigh": "both", "losses": "batches"},
            "needs the spread of losses, which evaluations measure",
        ),
    ],
)
def test_settings_that_cannot_be_sampled_are_refused(corpus, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(corpus, reweight=changes)
