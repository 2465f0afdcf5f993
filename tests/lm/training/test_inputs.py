"""Files that decide a run: large ones are read once."""

import pytest
from lm_problems import markov_corpus
from lm_runs import SIZES, SPLITS, STEP, run_settings

from counterpoise.lm.sealed import DamagedFile
from counterpoise.lm.training.inputs import inputs_of
from counterpoise.lm.training.integrity import verify_model
from counterpoise.lm.training.run_folder import MODEL
from counterpoise.lm.training.train import train
from counterpoise.storage import remembered
from counterpoise.storage.files import checksum


def test_a_model_is_read_once_until_it_changes(tmp_path, monkeypatch):
    """Plans, starts and measurements of many runs ask for the checksum of the same model."""
    corpus = markov_corpus(tmp_path / "corpus", SIZES, splits=SPLITS)
    short = run_settings(corpus, train={"tokens": STEP * 4})
    model = tmp_path / "run" / train(short, tmp_path / "run", progress=False)["model"]
    further = run_settings(corpus, model={"checkpoint": str(model)})
    seen = []
    monkeypatch.setattr(remembered, "SETTLED", -1)
    monkeypatch.setattr(
        remembered, "checksum", lambda path: (seen.append(path.name), checksum(path))[1]
    )
    found = inputs_of(further)
    for _ in range(2):
        remembered._known.clear()  # another process
        assert inputs_of(further) == found
        verify_model(model)
    assert seen.count(MODEL) == 1
    data = bytearray((model / MODEL).read_bytes())
    data[-1] ^= 1
    (model / MODEL).write_bytes(data)
    assert inputs_of(further) != found
    with pytest.raises(DamagedFile, match=f"{MODEL}' is damaged"):
        verify_model(model)
