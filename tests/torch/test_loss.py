"""GroupDROLoss: closed forms, and gradients that do not depend on how a batch was cut."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_workers as workers
from paths import SUPPORT
from ranks import run_ranks
from torch_workers import NAMES, batch, criterion, model, per_row, train

from counterpoise import Reweighter, ReweightWarning
from counterpoise.torch import GroupDROLoss, group_sums, reduce_checked, reduce_sums

ROOT = Path(__file__).parents[2]


def gradient(net):
    found = torch.cat([p.grad.flatten() for p in net.parameters()])
    net.zero_grad()
    return found


def close(found, expected, tol=1e-12):
    torch.testing.assert_close(found, expected, rtol=tol, atol=tol)


# ---------------------------------------------------------------- closed forms


def test_value_weights_and_order():
    """Old weights in the value, new ones after it: those of the Reweighter on the means."""
    twin = Reweighter(NAMES, step=0.3)
    loss = GroupDROLoss(Reweighter(NAMES, step=0.3))
    rng = np.random.default_rng(0)
    for _ in range(5):
        values, g = rng.exponential(size=12), rng.permutation(np.arange(12) % 3)
        means = np.array([values[g == k].mean() for k in range(3)])
        found = loss(torch.tensor(values), torch.tensor(g, dtype=torch.int32))
        assert found.item() == pytest.approx(twin.weights @ means, rel=1e-12)
        np.testing.assert_allclose(loss.weights, twin.update(means), rtol=1e-12)
    np.testing.assert_allclose(loss.last.losses, means)
    assert loss.reweighter.updates == 5
    assert "updates=5" in repr(loss)


def test_gradient_is_weight_over_count():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    loss = GroupDROLoss(Reweighter(NAMES, start=[0.5, 0.3, 0.2]))
    loss(x, ["a", "c", "a", "a"]).backward()
    close(x.grad, torch.tensor([0.5 / 3, 0.2, 0.5 / 3, 0.5 / 3]), 1e-7)


def test_an_absent_group_contributes_nothing_and_keeps_its_weight():
    loss = GroupDROLoss(Reweighter(NAMES, smoothing=0.0, extrapolation=0.0))
    assert loss(torch.tensor([3.0, 6.0]), ["a", "b"]).item() == pytest.approx(3.0)
    assert loss.weights[2] == pytest.approx(1 / 3)
    assert loss.weights[1] > loss.weights[0]


def test_tokens_and_masks():
    rng = np.random.default_rng(1)
    values, mask = rng.exponential(size=(4, 5, 2)), rng.random((4, 5, 2)) < 0.6
    g = np.array([2, 0, 2, 1])
    expected = np.mean([values[g == k][mask[g == k]].mean() for k in range(3)])
    spoilt = torch.tensor(np.where(mask, values, np.nan), requires_grad=True)
    for kept in (torch.tensor(mask), torch.tensor(mask).long()):
        loss = criterion()
        value = loss(spoilt, torch.tensor(g), mask=kept)
        assert value.item() == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(loss.reweighter.last.present, True)
    value.backward()
    assert (spoilt.grad[~torch.tensor(mask)] == 0).all()
    per_token = torch.tensor(g)[:, None].expand(4, 5)
    close(criterion()(spoilt, per_token, mask=kept), value)


def test_eval_mode_updates_nothing():
    loss = criterion(accumulate=4).eval()
    assert loss(torch.tensor([1.0, 2.0, 6.0]), torch.arange(3)).item() == pytest.approx(3.0)
    assert loss.reweighter.updates == 0
    assert loss.last is None
    known = criterion(accumulate=4, shares=[0.5, 0.25, 0.25]).eval()
    assert known(torch.ones(4), torch.tensor([0, 0, 1, 2])).item() == pytest.approx(1.0)


def test_group_sums_in_double():
    values = torch.full((4096,), 1.001, dtype=torch.bfloat16, requires_grad=True)
    sums, counts = group_sums(values, torch.arange(4096) % 2, 3)
    assert sums.tolist() == [2048 * values[0].item()] * 2 + [0.0]
    assert counts.tolist() == [2048.0, 2048.0, 0.0]
    assert sums.dtype == torch.float64
    assert not sums.requires_grad


def test_one_process_reduces_nothing():
    values = torch.ones(2, 3, dtype=torch.float64)
    assert reduce_sums(values) is values
    close(reduce_checked(values, b"x"), values)
    with pytest.raises(TypeError, match="float64"):
        reduce_checked(values.float(), b"x")


# ---------------------------------------------------------------- gradient accumulation


@pytest.mark.parametrize("way", ["counts", "shares"])
def test_four_micro_batches_are_one_batch(way):
    net, whole, cut = model(), criterion(), criterion(accumulate=4)
    if way == "shares":
        options = {"shares": {"a": 0.6, "b": 0.3, "c": 0.1}}
        whole, cut = criterion(**options), criterion(accumulate=4, **options)
    for t in range(4):
        X, y, g = batch(t)
        value = whole(per_row(net, X, y), g)
        value.backward()
        expected, before = gradient(net), cut.weights
        counts, parts = cut.count(g) if way == "counts" else None, []
        for rows in torch.arange(len(y)).chunk(4):
            assert (cut.weights == before).all(), "weights stay within a batch"
            parts.append(cut(per_row(net, X[rows], y[rows]), g[rows], counts=counts))
            parts[-1].backward()
        close(gradient(net), expected)
        close(sum(parts), value)
        np.testing.assert_allclose(cut.weights, whole.weights, rtol=1e-13)
    assert cut.reweighter.updates == 4


def test_shares_are_unbiased():
    """Over all batches of two from a population, the mean value is that of the population."""
    values, g = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor([0, 0, 0, 1])
    loss = GroupDROLoss(Reweighter(["a", "b"]), shares=[0.75, 0.25]).eval()
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    found = torch.stack([loss(values[p], g[p]) for p in pairs]).mean()
    close(found, torch.tensor(0.5 * 2.0 + 0.5 * 10.0), 1e-6)
    plain = GroupDROLoss(Reweighter(["a", "b"])).eval()
    means = torch.stack([plain(values[p], g[p]) for p in pairs]).mean()
    assert means < found - 1, "batch means leave out the group that is often absent"


def test_flush_ends_an_accumulation():
    loss, twin = criterion(accumulate=3), criterion()
    values, g = torch.tensor([1.0, 2.0, 5.0, 4.0]), torch.tensor([0, 1, 2, 2])
    twin(values, g)
    counts = loss.count(g)
    for rows in ([0, 1], [2, 3]):
        loss(values[rows], g[rows], counts=counts)
    assert loss.reweighter.updates == 0
    np.testing.assert_array_equal(loss.flush(), twin.weights)
    np.testing.assert_array_equal(loss.flush(), twin.weights)
    assert loss.reweighter.updates == 1


def test_counts_of_tokens_follow_the_mask():
    mask = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    assert criterion().count(["a", "a", "b"], mask).tolist() == [3.0, 3.0, 0.0]
    loss = criterion(accumulate=2)
    values, g = torch.ones(3, 3), torch.tensor([0, 0, 1])
    loss(values[:2], g[:2], mask=mask[:2], counts=loss.count(g))
    with pytest.raises(
        ValueError, match=r"counts=\[2.0, 1.0, 0.0\] differ from those of the batch"
    ):
        loss(values[2:], g[2:], mask=mask[2:], counts=loss.count(g))


# ---------------------------------------------------------------- mixed precision


def test_autocast():
    net = model().float()
    X, y, g = batch(0)
    loss, exact = criterion(), criterion()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        per_example = (net(X.float()).squeeze(1) - y.bfloat16()) ** 2
        assert per_example.dtype == torch.bfloat16
        value = loss(per_example, g)
    assert value.dtype == torch.float32
    expected = exact(per_example.detach().double(), g)
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(loss.weights, exact.weights, rtol=1e-13)
    value.backward()
    assert gradient(net).isfinite().all()


def test_half_precision_does_not_overflow():
    values = torch.full((64,), 6e4, dtype=torch.float16)
    assert criterion()(values, torch.arange(64) % 3).item() == pytest.approx(6e4, rel=1e-3)


def test_a_scaler_skips_the_step_and_the_weights_of_that_group_stay():
    x = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
    loss = GroupDROLoss(Reweighter(NAMES, smoothing=0.0, extrapolation=0.0))
    scaler, optimiser = torch.amp.GradScaler("cpu", init_scale=8.0), torch.optim.SGD([x], lr=0.1)
    scaler.scale(loss(x * torch.tensor([1.0, 2.0, 4.0]), torch.arange(3))).backward()
    close(x.grad, 8.0 * torch.tensor([1.0, 2.0, 4.0]) / 3, 1e-6)
    scaler.step(optimiser)
    scaler.update()
    before, weights = x.detach().clone(), loss.weights
    optimiser.zero_grad()
    with pytest.warns(ReweightWarning, match="'c'"):
        value = loss(x * torch.tensor([1.0, 2.0, np.inf]), torch.arange(3))
    scaler.scale(value).backward()
    scaler.step(optimiser)
    close(x.detach(), before)
    assert loss.weights[2] == weights[2]
    assert np.isfinite(loss.weights).all()
    assert loss.reweighter.missed["c"] == 1


# ---------------------------------------------------------------- state


def test_state_round_trip(tmp_path):
    """Saved in the middle of an accumulation, read without pickle: it goes on to the same bits."""
    one, values = criterion(accumulate=3), torch.rand(6, generator=torch.manual_seed(1))
    g = torch.tensor([0, 1, 2, 0, 2, 2])

    def call(loss, rows, counts):
        loss(values[rows], g[rows], counts=counts)

    for _ in range(2):
        for rows in ([0, 1], [2, 3], [4, 5]):
            call(one, rows, one.count(g))
    call(one, [0, 1], one.count(g))
    json.dumps(one.get_extra_state(), allow_nan=False)
    torch.save(one.state_dict(), tmp_path / "state.pt")
    two = GroupDROLoss(
        Reweighter(["c", "a", "b"], step=0.05, smoothing=0.01),
        accumulate=3,
    )
    three = criterion(accumulate=3)
    for loss in (two, three):
        loss.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for loss in (one, three):
        for rows in ([2, 3], [4, 5]):
            call(loss, rows, loss.count(g))
    np.testing.assert_array_equal(three.weights, one.weights)
    assert three.reweighter.updates == 3
    for rows in ([2, 3], [4, 5]):
        names = [NAMES[k] for k in g[rows]]
        two(values[rows], names, counts=two.count([NAMES[k] for k in g]))
    assert two.reweighter.as_dict() == pytest.approx(one.reweighter.as_dict(), rel=1e-12)


def test_a_pending_loss_that_is_not_finite_survives_as_such():
    one, two = criterion(accumulate=2, shares=[1 / 3] * 3), criterion(accumulate=2)
    one(torch.tensor([1.0, np.inf]), ["a", "b"])
    state = json.loads(json.dumps(one.get_extra_state(), allow_nan=False))
    two.set_extra_state(state)
    with pytest.warns(ReweightWarning, match="'b'"):
        two.flush()
    with pytest.raises(ValueError, match="version 7"):
        two.set_extra_state({**state, "version": 7})


def test_another_ranks_sums_are_not_taken_over():
    one, two = criterion(accumulate=2, shares=[1 / 3] * 3), criterion(accumulate=2)
    one(torch.tensor([1.0, 2.0]), ["a", "b"])
    two.set_extra_state({**one.get_extra_state(), "rank": 1})
    two(torch.tensor([1.0]), ["c"], counts=[1, 1, 1])
    assert two.last.present.tolist() == [False, False, True]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("losses", "groups", "more", "kind", "message"),
    [
        (torch.tensor(1.0), ["a"], {}, ValueError, 'reduction="none"'),
        (torch.ones(2).long(), ["a", "b"], {}, TypeError, "floating-point numbers; got torch.int"),
        ([1.0], ["a"], {}, TypeError, "got list"),
        (torch.ones(2), ["a", "x"], {}, ValueError, "unknown domain.*'x'"),
        (torch.ones(2), "ab", {}, ValueError, "single string"),
        (torch.ones(2), torch.tensor([0, 3]), {}, ValueError, r"positions 0..2 .*; 1 losses"),
        (torch.ones(2), torch.tensor([-1, -5]), {}, ValueError, "2 losses"),
        (torch.ones(2), torch.ones(2), {}, TypeError, "tensor of torch.float32"),
        (torch.ones(2), torch.tensor([True, False]), {}, TypeError, "torch.bool"),
        (torch.ones(2, 5), torch.arange(3), {}, ValueError, r"shape \(3,\) for .* \(2, 5\)"),
        (torch.ones(2), torch.tensor(1), {}, ValueError, r"shape \(\)"),
        (torch.ones(2), ["a", "b"], {"mask": torch.ones(2)}, TypeError, "mask > 0"),
        (torch.ones(2), ["a", "b"], {"mask": [True, True]}, TypeError, "got list"),
        (torch.ones(2), ["a", "b"], {"mask": torch.ones(1).bool()}, ValueError, r"got \(1,\)"),
        (torch.ones(2), ["a", "b"], {"counts": [1, 1]}, ValueError, "each of 3 domains"),
        (torch.ones(2), ["a", "b"], {"counts": [1, 2, 0]}, ValueError, r"held \[1.0, 1.0, 0.0\]"),
    ],
)
def test_errors_of_a_call(losses, groups, more, kind, message):
    loss = criterion()
    with pytest.raises(kind, match=message):
        loss(losses, groups, **more)
    assert loss.reweighter.updates == 0
    assert criterion()(torch.ones(3), NAMES).item() == pytest.approx(1.0)


def test_errors_of_options():
    with pytest.raises(TypeError, match=r"Reweighter.*got list"):
        GroupDROLoss(NAMES)
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match="accumulate"):
            criterion(accumulate=bad)
    for bad in ([0.5, 0.5], [0.5, 0.5, 0.5], [1.0, 0.0, 0.0], torch.tensor([5, 3, 2])):
        with pytest.raises(ValueError, match=r"shares must (hold one|be positive|sum to 1)"):
            criterion(shares=bad)
    with pytest.raises(ValueError, match="no value for domain"):
        criterion(shares={"a": 1.0})
    with pytest.raises(ValueError, match=r"criterion\.count.*shares="):
        criterion(accumulate=2)(torch.ones(3), NAMES)
    with pytest.raises(ValueError, match="only one"):
        criterion(shares=[0.5, 0.3, 0.2])(torch.ones(3), NAMES, counts=[1, 1, 1])


# ---------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What two processes over gloo found, all tasks in one start."""
    out = tmp_path_factory.mktemp("ranks") / "found"
    run_ranks(SUPPORT / "torch_workers.py", out)
    return [torch.load(f"{out}.{rank}", weights_only=True) for rank in (0, 1)]


@pytest.mark.distributed
@pytest.mark.parametrize("task", ["ddp", "ddp_accumulated", "fsdp"])
def test_two_processes_are_one(ranks, task):
    net, loss = model(), criterion()
    train(net, loss)
    for found in ranks:
        for name, value in net.state_dict().items():
            close(found[task]["model"][name], value, 1e-6)
    states = [found[task]["loss"]["_extra_state"]["reweighter"] for found in ranks]
    assert states[0] == states[1], "the same bits on both ranks"
    np.testing.assert_allclose(states[0]["weights"], loss.weights, rtol=1e-9)
    assert states[0]["updates"] == workers.STEPS


def test_means_of_means_would_differ():
    """The check above can fail: each rank's own means, averaged, lead elsewhere."""
    net, other, loss = model(), model(), criterion()
    train(net, loss)
    optimiser, dual = torch.optim.SGD(other.parameters(), lr=0.02), criterion()
    for t in range(workers.STEPS):
        local = [criterion().eval() for _ in range(2)]
        for r, one in enumerate(local):
            one.reweighter.weights = dual.weights
            X, y, g = workers.part(batch(t), r, 2)
            (one(per_row(other, X, y), g) / 2).backward()
        X, y, g = batch(t)
        dual(per_row(other, X, y).detach(), g)
        optimiser.step()
        optimiser.zero_grad()
    apart = max(
        (a - b).abs().max() for a, b in zip(net.parameters(), other.parameters(), strict=True)
    )
    assert apart > 1e-3


@pytest.mark.distributed
def test_shares_over_two_processes(ranks):
    scale = torch.tensor([1 / 3]) / torch.tensor([0.5, 0.3, 0.2])
    expected = (torch.arange(1.0, 9.0) * scale[torch.tensor([0, 1, 2, 0] * 2)]).mean()
    for found in ranks:
        close(found["shares"]["gradient"], expected.reshape(1), 1e-6)
        close(found["shares"]["value"], expected, 1e-6)


@pytest.mark.distributed
def test_every_rank_shows_the_loss_of_all(ranks):
    means = [(1 + 11) / 2, (2 + 3 + 12) / 3, 13.0]
    for found in ranks:
        assert found["shown"]["training"] == pytest.approx(np.mean(means), rel=1e-6)
        assert found["shown"]["eval"] == pytest.approx(np.mean(means), rel=1e-6)


@pytest.mark.distributed
def test_ranks_raise_together_and_go_on(ranks):
    for found in ranks:
        weights, order, stray, fine, same = found["faults"]["said"]
        assert "not the same on all 2 ranks" in weights
        assert "not the same on all 2 ranks" in order
        assert "1 losses" in stray
        assert fine == same == ""
        assert found["faults"]["sums"].tolist() == [3.0, 6.0, 0.0]
        assert found["faults"]["counts"].tolist() == [2.0, 4.0, 0.0]


@pytest.mark.distributed
def test_one_all_reduce_per_batch_and_a_rank_without_rows(ranks):
    for found in ranks:
        assert found["empty"]["calls"] == [[2 * (3 + 1) + 2]]
        assert found["empty"]["losses"][0] == 2.0
        assert np.isnan(found["empty"]["losses"][1:]).all()


# ---------------------------------------------------------------- example


def test_stray_groups_are_errors_in_eval_mode_too():
    criterion = GroupDROLoss(Reweighter(["a", "b"]), shares=[0.5, 0.5]).eval()
    with pytest.raises(ValueError, match="group"):
        criterion(torch.tensor([3.0, 5.0]), torch.tensor([0, 7]))


@pytest.mark.slow
def test_example_tabulates_and_draws(tmp_path, capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("spurious", ROOT / "examples" / "spurious.py")
    spurious = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(spurious)
    monkeypatch.setattr(spurious, "GRID", {m: g[:2] for m, g in spurious.GRID.items()})
    spurious.main(["--rows", "600", "--epochs", "2", "--seeds", "2", "--out", str(tmp_path)])
    table = capsys.readouterr().out
    assert all(name in table for name in (*spurious.METHODS, "worst group"))
    assert (tmp_path / "spurious.png").read_bytes()[:4] == b"\x89PNG"
