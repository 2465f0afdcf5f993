"""robust_head and fit_head: heads of real modules, against the estimator's own scores."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from counterpoise import (
    GroupDROClassifier,
    GroupDROClassifierCV,
    GroupDRONeuron,
    GroupDRORegressor,
    Memberships,
)
from counterpoise.torch import fit_head, robust_head
from counterpoise.torch.heads.head import RIDGE
from counterpoise.torch.heads.rows import EMBEDDINGS, GROUPS, LABELS

CLASSES = 3


class Net(nn.Module):
    """A body with what eval mode changes, and a linear layer last."""

    def __init__(self, outputs=2, *, bias=True, end=None):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Dropout(0.5))
        self.fc = nn.Linear(10, outputs, bias=bias)
        self.end = end or (lambda z: z)

    def forward(self, x):
        return self.end(self.fc(self.body(x)))


def net(*args, **kwargs):
    torch.manual_seed(0)
    return Net(*args, **kwargs)


def data(classes=2, n=240, seed=0):
    """Rows of three groups, of different sizes and slopes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    g = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    slopes = rng.normal(size=(3, 6, classes))
    score = np.einsum("nd,ndc->nc", X, slopes[g] + 2 * slopes[0]) + rng.gumbel(size=(n, classes))
    return torch.tensor(X, dtype=torch.float32), torch.tensor(score.argmax(1)), torch.tensor(g)


def batches(*tensors, size=50):
    return list(zip(*(t.split(size) for t in tensors), strict=True))


def embedded(model, x):
    """The inputs of the last layer, without any hook."""
    modes = {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        found = model.body(x).double().numpy()
    for m, training in modes.items():
        m.training = training
    return found


def scores(model, x):
    model.eval()
    with torch.no_grad():
        return model.fc(model.body(x)).double().numpy()


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 2, CLASSES])
def test_written_logits_are_the_decision_function(outputs, bias):
    x, y, g = data(max(2, outputs))
    model = net(outputs, bias=bias)
    result = robust_head(model, batches(x, y, g))
    z, expected = scores(model, x), result.estimator.decision_function(embedded(model, x))
    if outputs < CLASSES:
        z = z[:, 0] if outputs == 1 else z[:, 1] - z[:, 0]
    np.testing.assert_allclose(z, expected, atol=1e-4 * np.abs(expected).max())
    assert (model.fc.bias is None) == (not bias)
    assert result.layer == "fc"
    assert result.estimator.fit_intercept is bias


def test_probabilities_are_those_of_the_estimator():
    """Two outputs under softmax, and one under sigmoid."""
    x, y, g = data()
    for outputs, link in ((2, nn.Softmax(-1)), (1, nn.Sigmoid())):
        model = net(outputs, end=link).eval()
        result = robust_head(model, batches(x, y, g))
        expected = result.estimator.predict_proba(embedded(model, x))[:, 1]
        with torch.no_grad():
            found = model(x)[:, -1].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_nothing_else_changes():
    """Bits, modes, gradients and random numbers; the layer keeps its parameters' identity."""
    x, y, g = data()
    model = net().train()
    model.body[1].eval()  # a mode of its own
    model.body[0].weight.requires_grad_(False)
    nn.functional.cross_entropy(model(x), y).backward()
    twin = copy.deepcopy(model)
    owned = [(p, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
    state = torch.get_rng_state()
    robust_head(model, batches(x, y, g))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == [m.training for m in twin.modules()]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    changed = []
    old = twin.state_dict()
    for name, value in model.state_dict().items():
        if not torch.equal(value, old[name]):
            changed.append(name)
    assert changed == ["fc.weight", "fc.bias"]
    for (new, own), (old, grad) in zip(
        zip(model.parameters(), twin.parameters(), strict=True), owned, strict=True
    ):
        assert new is old
        assert new.requires_grad == own.requires_grad
        assert (new.grad is None and grad is None) or torch.equal(new.grad, grad)


def test_write_false_leaves_the_model_alone():
    x, y, g = data()
    model = net()
    before = copy.deepcopy(model.state_dict())
    result = robust_head(model, batches(x, y, g), write=False)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    result.write(model.fc)
    torch.testing.assert_close(result.linear().weight, model.fc.weight.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_of_the_layer_is_kept(dtype):
    x, y, g = data()
    model = net().to(dtype).eval()
    result = robust_head(model, batches(x.to(dtype), y, g))
    assert model.fc.weight.dtype == model.fc.bias.dtype == dtype
    written = model.fc.weight.detach().double().numpy()
    np.testing.assert_array_equal(result.weight, written)
    with torch.no_grad():
        right = (model(x.to(dtype)).argmax(1) == y).double().mean().item()
    assert result.after.accuracy == pytest.approx(right, abs=0.02)


# ---------------------------------------------------------------- what is reported


def test_scores_before_and_after():
    x, y, g = data()
    model = net()
    old = scores(model, x)
    result = robust_head(model, batches(x, y, g))
    for found, z in ((result.before, old), (result.after, scores(model, x))):
        losses = nn.functional.cross_entropy(torch.tensor(z), y, reduction="none").numpy()
        right = z.argmax(1) == y.numpy()
        for k in range(3):
            rows = g.numpy() == k
            assert found.rows[k] == rows.sum()
            assert found.losses[k] == pytest.approx(losses[rows].mean(), rel=1e-5)
            assert found.accuracies[k] == pytest.approx(right[rows].mean())
        assert found.accuracy == pytest.approx(right.mean())
        assert found.worst_accuracy == found.accuracies.min()
    np.testing.assert_allclose(result.after.losses, result.group_risks, rtol=1e-4)
    assert result.after.worst_loss < result.before.worst_loss
    assert result.certificate.duality_gap < 1e-4
    text = str(result)
    assert "Last layer 'fc', 10 -> 2, fitted to 240 rows in 3 groups" in text
    assert "worst group" in text
    assert str(result.certificate) in text


def test_it_is_the_estimator_on_the_embeddings():
    x, y, g = data()
    model = net()
    X = embedded(model, x).astype(np.float32)
    options = GroupDROClassifier(alpha=1e-3, nu=0.05)
    result = robust_head(model, batches(x, y, g), estimator=options)
    alone = GroupDROClassifier(alpha=1e-3, nu=0.05).fit(X, y.numpy(), groups=g.numpy())
    np.testing.assert_allclose(result.estimator.coef_, alone.coef_, rtol=1e-4, atol=1e-6)
    assert not hasattr(options, "coef_")  # a copy was fitted


# ---------------------------------------------------------------- regression


@pytest.mark.parametrize("estimator", [None, GroupDRONeuron("identity")])
def test_regression(estimator):
    x, _, g = data()
    y = x[:, 0] * (1 + g) + 0.1 * x[:, 1]
    model = net(1)
    result = robust_head(model, batches(x, y[:, None], g), estimator=estimator)
    expected = result.estimator.predict(embedded(model, x))
    np.testing.assert_allclose(scores(model, x)[:, 0], expected, atol=1e-4)
    errors = (y.double().numpy() - expected) ** 2
    means = [errors[g.numpy() == k].mean() for k in range(3)]
    np.testing.assert_allclose(result.after.losses, means, rtol=1e-3)
    assert result.after.accuracies is None
    assert result.after.worst_accuracy is result.after.accuracy is None
    assert "accuracy" not in str(result)
    kind = GroupDRORegressor if estimator is None else GroupDRONeuron
    assert isinstance(result.estimator, kind)


def test_whole_numbers_as_regression():
    x, _, g = data()
    y = (3 * x[:, 0]).round().long()
    with pytest.raises(ValueError, match="labels must be the classes 0 to 1"):
        robust_head(net(1), batches(x, y, g))
    result = robust_head(net(1), batches(x, y, g), task="regression")
    assert isinstance(result.estimator, GroupDRORegressor)


# ---------------------------------------------------------------- memory and disk


def test_rows_on_disk_give_the_same_head(tmp_path):
    x, y, g = data()
    names = np.array(["a", "b", "c"])[g.numpy()]
    one, two = net(), net()
    kept = robust_head(one, batches(x, y), names, folder=tmp_path / "kept")
    robust_head(two, batches(x, y), names, memory=2000)
    torch.testing.assert_close(one.fc.weight, two.fc.weight)
    found = {path.name for path in (tmp_path / "kept").iterdir()}
    assert found == {EMBEDDINGS, LABELS, GROUPS}
    np.testing.assert_allclose(
        np.load(tmp_path / "kept" / EMBEDDINGS), embedded(one, x), rtol=1e-6, atol=1e-6
    )
    again = fit_head(tmp_path / "kept")
    np.testing.assert_array_equal(again.weight, kept.weight)
    np.testing.assert_array_equal(again.groups, ["a", "b", "c"])
    with pytest.raises(FileExistsError, match="already has 'embeddings"):
        robust_head(one, batches(x, y), names, folder=tmp_path / "kept")


def test_a_failure_leaves_no_file(tmp_path):
    x, y, g = data()
    bad = [*batches(x, y, g)[:2], (x[:5], y[:4], g[:4])]
    model = net().train()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="sees 5 rows in a batch with labels of shape \\(4,\\)"):
        robust_head(model, bad, folder=tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_saved_embeddings_alone():
    x, y, g = data(CLASSES)
    X = x.numpy()
    result = fit_head(x, y.tolist(), g)
    alone = GroupDROClassifier(alpha=RIDGE).fit(X, y.numpy(), groups=g.numpy())
    with torch.no_grad():
        z = result.linear()(x).numpy()
    np.testing.assert_allclose(z, alone.decision_function(X), atol=1e-3)
    assert result.before is None
    assert result.layer is None
    one = fit_head(X, (y > 0).long(), g, outputs=1, bias=False)
    assert one.weight.shape == (1, 6)
    assert one.bias is None
    with pytest.raises(ValueError, match="the layer has a bias, but the head was fitted with no"):
        one.write(nn.Linear(6, 1))
    with pytest.raises(ValueError, match="3 outputs of 6 features; the layer is Linear"):
        result.write(nn.Linear(6, 2))


# ---------------------------------------------------------------- groups and loaders


def test_groups_in_the_order_of_a_loader():
    x, y, g = data()
    rows = TensorDataset(x, y)
    model = net()
    result = robust_head(model, DataLoader(rows, 32), g)
    twin = robust_head(net(), batches(x, y, g))
    np.testing.assert_allclose(result.weight, twin.weight, atol=1e-5)
    with pytest.raises(ValueError, match=r"draws rows at random \(RandomSampler\)"):
        robust_head(model, DataLoader(rows, 32, shuffle=True), g)
    with pytest.raises(ValueError, match="groups has 240 entries but the loader yields 224 rows"):
        robust_head(model, DataLoader(rows, 32, drop_last=True), g)
    with pytest.raises(ValueError, match="groups is None and the loader yields none"):
        robust_head(model, DataLoader(rows, 32))


def test_a_shuffling_loader_with_groups_in_its_batches():
    x, y, g = data()
    result = robust_head(net(), DataLoader(TensorDataset(x, y, g), 32, shuffle=True))
    twin = robust_head(net(), batches(x, y, g))
    np.testing.assert_allclose(result.weight, twin.weight, atol=1e-3)


def test_batches_of_other_kinds():
    x, y, g = data()
    twin = robust_head(net(), batches(x, y, g)).weight
    kinds = [
        [{"x": a, "y": b, "group": c} for a, b, c in batches(x, y, g)],
        [{"image": a, "label": b, "groups": c.tolist()} for a, b, c in batches(x, y, g)],
        [({"x": a}, b, c) for a, b, c in batches(x, y, g)],
        [((a,), b, c) for a, b, c in batches(x, y, g)],
    ]
    for kind in kinds:
        np.testing.assert_allclose(robust_head(net(), kind).weight, twin, atol=1e-5)
    odd = [(a, b, c, "meta") for a, b, c in batches(x, y, g)]
    with pytest.raises(ValueError, match="yields tuple of 4; pass unpack="):
        robust_head(net(), odd)
    found = robust_head(net(), odd, unpack=lambda batch: batch[:3])
    np.testing.assert_allclose(found.weight, twin, atol=1e-5)
    with pytest.raises(ValueError, match="needs the labels under one of"):
        robust_head(net(), [{"x": x, "groups": g}])
    mixed = batches(x, y, g)
    with pytest.raises(ValueError, match="some batches have groups and some have none"):
        robust_head(net(), [mixed[0], mixed[1][:2]])
    with pytest.raises(ValueError, match="loader yields no batch"):
        robust_head(net(), [])


# ---------------------------------------------------------------- what is refused


def test_labels_must_be_the_outputs():
    x, y, g = data(CLASSES)
    with pytest.raises(ValueError, match=r"classes 0 to 1, .* 2 output\(s\); got \[2\]"):
        robust_head(net(2), batches(x, y, g))
    with pytest.raises(ValueError, match="class 3 of the head's 4 classes has no rows"):
        robust_head(net(4), batches(x, y, g))
    with pytest.raises(ValueError, match="task='both' is not known"):
        robust_head(net(3), batches(x, y, g), task="both")
    with pytest.raises(ValueError, match="3 outputs; regression needs a layer with one output"):
        robust_head(net(3), batches(x, y, g), task="regression")
    with pytest.raises(ValueError, match="is not a classifier, but the task is classification"):
        robust_head(net(3), batches(x, y, g), estimator=GroupDRONeuron())


def test_wrappers_are_taken_off():
    x, y, g = data()
    twin = robust_head(net(), batches(x, y, g))
    model = net()
    result = robust_head(torch.compile(nn.DataParallel(model), backend="eager"), batches(x, y, g))
    assert result.layer == "fc"
    np.testing.assert_array_equal(result.weight, twin.weight)
    torch.testing.assert_close(model.fc.weight.detach().double().numpy(), result.weight)


def test_what_is_no_model_or_not_finite():
    x, y, g = data()
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module; got function"):
        robust_head(embedded, batches(x, y, g))
    with pytest.raises(ValueError, match="model has no parameters"):
        robust_head(nn.ReLU(), batches(x, y, g))
    x[70, 0] = np.nan
    with pytest.raises(ValueError, match="inputs of layer 'fc' are not finite in batch 2"):
        robust_head(net(), batches(x, y, g))


def test_a_layer_that_is_not_last_is_told():
    x, y, g = data()
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2), nn.Linear(2, 2))
    with pytest.warns(UserWarning, match="not that of layer '1', nor its softmax"):
        robust_head(model, batches(x, y, g), layer="1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert robust_head(model, batches(x, y, g)).layer == "2"


# ---------------------------------------------------------------- other estimators and groups


def test_memberships_in_memory_on_disk_and_in_batches():
    x, y, g = data()
    matrix = np.column_stack([np.ones(len(g)), g == 1, g == 2]).astype(float)
    groups = Memberships(matrix, labels=["all", "b", "c"])
    results = [
        robust_head(net(), batches(x, y), groups),
        robust_head(net(), batches(x, y), groups, memory=10),
        robust_head(net(), batches(x, y, torch.tensor(matrix))),
    ]
    for result in results:
        np.testing.assert_allclose(result.weight, results[0].weight, atol=1e-4)
        np.testing.assert_allclose(result.after.losses, result.group_risks, rtol=1e-4)
        assert result.after.n_rows == len(y)
    assert results[1].groups.tolist() == ["all", "b", "c"]
    assert results[0].after.accuracy == pytest.approx(results[0].after.accuracies[0])


def test_a_head_that_is_chosen_by_cross_validation():
    x, y, g = data()
    model = net()
    result = robust_head(model, batches(x, y, g), estimator=GroupDROClassifierCV(cv=2))
    z = scores(model, x)
    expected = result.estimator.decision_function(embedded(model, x))
    np.testing.assert_allclose(z[:, 1] - z[:, 0], expected, atol=1e-3)
    assert result.estimator.verdict_
