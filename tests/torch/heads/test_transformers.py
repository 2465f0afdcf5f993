"""Sequence classifiers of transformers, from configurations: no network."""

import copy

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from counterpoise.torch import robust_head

SMALL = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
MODELS = {
    "llama": (LlamaForSequenceClassification, LlamaConfig, SMALL, "score"),
    "gpt2": (GPT2ForSequenceClassification, GPT2Config, {**GPT2, "pad_token_id": 0}, "score"),
    "bert": (BertForSequenceClassification, BertConfig, SMALL, "classifier"),
    "roberta": (RobertaForSequenceClassification, RobertaConfig, SMALL, "classifier.out_proj"),
}


def texts(classes, n=90, length=9):
    """Token ids padded on the right; a token in the text gives the class away, mostly."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    ids = rng.integers(10, 50, (n, length))
    lengths = rng.integers(4, length + 1, n)
    ids[np.arange(n), lengths - 2] = np.where(rng.random(n) < 0.8, y + 1, 9)
    mask = np.arange(length) < lengths[:, None]
    return torch.tensor(ids * mask), torch.tensor(mask.astype(int)), torch.tensor(y)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("labels", [2, 3])
def test_sequence_classifiers(kind, labels):
    make, config, options, layer = MODELS[kind]
    torch.manual_seed(0)
    model = make(config(**options, num_labels=labels)).train()
    ids, mask, y = texts(labels)
    groups = np.where(mask.sum(1) > 6, "long", "short")
    loader = [
        {"input_ids": ids[a : a + 30], "attention_mask": mask[a : a + 30], "labels": y[a : a + 30]}
        for a in range(0, 90, 30)
    ]
    twin = copy.deepcopy(model)
    result = robust_head(model, loader, groups)
    assert result.layer == layer
    assert model.training
    changed = {
        name
        for (name, a), b in zip(model.state_dict().items(), twin.state_dict().values(), strict=True)
        if not torch.equal(a, b)
    }
    assert changed <= {f"{layer}.weight", f"{layer}.bias"}
    assert f"{layer}.weight" in changed
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits.double()
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none").numpy()
    means = [losses[groups == name].mean() for name in ("long", "short")]
    np.testing.assert_allclose(result.after.losses, means, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(result.group_risks, means, rtol=1e-3, atol=1e-5)
    right = (logits.argmax(1) == y).numpy()
    assert result.after.accuracies[0] == pytest.approx(right[groups == "long"].mean())
    assert result.after.worst_loss < result.before.worst_loss
