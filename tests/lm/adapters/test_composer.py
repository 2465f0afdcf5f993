"""The Composer callback, with a stand-in for the package."""

import importlib
import json
import sys
import types

import numpy as np
import pytest
import torch
from lm_adapters import begin, make_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("lm") / "corpus")


class Recorder:
    def __init__(self):
        self.metrics = {}

    def log_metrics(self, metrics):
        self.metrics.update(metrics)


def composer_state(step, losses, dataset=None):
    """What LLM-Shearing's callback reads of Composer's State."""
    metric = {
        f"{name}_LanguageCrossEntropy": types.SimpleNamespace(compute=lambda v=v: torch.tensor(v))
        for name, v in losses.items()
    }
    return types.SimpleNamespace(
        eval_metrics={"eval": metric},
        timestamp=types.SimpleNamespace(batch=types.SimpleNamespace(value=step)),
        train_dataloader=types.SimpleNamespace(dataset=dataset),
    )


@pytest.fixture
def composer(monkeypatch):
    """A stand-in of the package, which cannot be installed beside current torch: an empty Callback
    is all that the module takes from it."""
    monkeypatch.setitem(sys.modules, "composer", types.SimpleNamespace(Callback=type("C", (), {})))
    module = importlib.import_module("counterpoise.lm.adapters.composer")
    yield importlib.reload(module)
    monkeypatch.undo()
    importlib.reload(module)


def test_composer_s_callback_keeps_the_contract(composer, corpus):
    mixture, reweighter = begin(corpus)
    callback = composer.DynamicLoadingCallback(reweighter, mixture)
    assert type(callback).__mro__[1].__name__ == "C"
    logger, losses = Recorder(), {"x": 2.0, "y": 3.0, "z": 2.5}
    callback.fit_start(composer_state(0, losses), logger)
    callback.eval_end(composer_state(10, losses), logger)
    _, expected = begin(corpus)
    np.testing.assert_array_equal(mixture.weights, expected.update(losses))
    assert logger.metrics["metrics/train/y_weight"] == expected.weights[1]
    again = composer.DynamicLoadingCallback(*begin(corpus)[::-1])
    again.load_state_dict(json.loads(json.dumps(callback.state_dict())))
    again.eval_end(composer_state(10, {"x": 9.0, "y": 3.0, "z": 2.5}), logger)
    assert again.state_dict()["mixture"] == callback.state_dict()["mixture"]
    with pytest.raises(ValueError, match="has no 'z_LanguageCrossEntropy'"):
        callback.eval_end(composer_state(20, {"x": 2.0, "y": 3.0}), logger)


@pytest.mark.parametrize("early", [False, True])
def test_composer_s_callback_can_update_at_start(composer, corpus, early):
    callback = composer.DynamicLoadingCallback(*begin(corpus)[::-1], update_at_start=early)
    callback.eval_end(composer_state(0, {"x": 2.0, "y": 3.0, "z": 2.5}), Recorder())
    assert callback.steering.reweighter.updates == early
    callback.eval_end(composer_state(10, {"x": 2.0, "y": 3.0, "z": 2.5}), Recorder())
    assert callback.steering.reweighter.updates == early + 1


def test_composer_s_callback_drives_a_streaming_dataset(composer, corpus):
    seen = []
    dataset = types.SimpleNamespace(update_proportion=seen.append)
    callback = composer.DynamicLoadingCallback(begin(corpus)[1])
    losses = {"x": 2.0, "y": 3.0, "z": 2.5}
    callback.fit_start(composer_state(0, losses, dataset), Recorder())
    callback.eval_end(composer_state(10, losses, dataset), Recorder())
    assert len(seen) == 2
    assert seen[1] == callback.steering.weights.tolist()


def test_without_composer_the_error_says_what_to_do(corpus):
    module = importlib.import_module("counterpoise.lm.adapters.composer")
    with pytest.raises(ImportError, match="pip install mosaicml"):
        module.DynamicLoadingCallback(begin(corpus)[1])
