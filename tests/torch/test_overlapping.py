"""GroupDROLoss with groups that overlap: against copies of the examples and by hand."""

import numpy as np
import pytest
import torch
from scipy import sparse

from counterpoise import Memberships, Reweighter
from counterpoise.torch import GroupDROLoss, group_sums, weigh_losses

NAMES = ["a", "b", "c"]
SHARES = torch.tensor(
    [[1.0, 0.0, 0.5], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.25, 0.0, 1.0]]
)
LOSSES = torch.tensor([1.0, 2.0, 40.0, 3.0, 5.0], dtype=torch.float64)


def criterion(**options):
    return GroupDROLoss(Reweighter(NAMES, start=[0.5, 0.3, 0.2], step=0.1), **options)


def by_hand(losses, shares, weights):
    shares = shares.numpy().astype(float)
    return weights @ (shares.T @ losses.numpy() / shares.sum(axis=0))


def test_value_gradient_and_update():
    loss, w = criterion(), torch.tensor(1.5, requires_grad=True, dtype=torch.float64)
    weights = loss.weights
    value = loss(LOSSES * w, SHARES)
    expected = by_hand(LOSSES, SHARES, weights)
    assert value.item() == pytest.approx(1.5 * expected)
    value.backward()
    assert w.grad.item() == pytest.approx(expected)
    means = SHARES.numpy().T @ (1.5 * LOSSES.numpy()) / SHARES.numpy().sum(axis=0)
    twin = Reweighter(NAMES, start=[0.5, 0.3, 0.2], step=0.1)
    np.testing.assert_allclose(loss.weights, twin.update(means))


@pytest.mark.parametrize(
    "groups",
    [
        (SHARES > 0),
        (SHARES > 0).double(),
        (SHARES > 0).half(),
        (SHARES > 0).numpy(),
        sparse.csr_matrix((SHARES > 0).numpy()),
        [["a", "c"], ("a", "b"), [], {"b", "c"}, ["a", "c"]],
        Memberships((SHARES > 0).numpy()[:, [2, 0, 1]], ["c", "a", "b"]),
    ],
)
def test_kinds_of_memberships_agree(groups):
    index, codes = np.nonzero((SHARES > 0).numpy())
    expected = criterion()
    right = expected(LOSSES[index], torch.tensor(codes))  # a copy for each membership
    loss = criterion()
    assert loss(LOSSES, groups).item() == pytest.approx(right.item())
    np.testing.assert_allclose(loss.weights, expected.weights)


def test_one_group_each_is_the_same_as_positions():
    codes = torch.tensor([0, 2, 1, 1, 0])
    one, other = criterion(), criterion()
    indicator = torch.nn.functional.one_hot(codes, 3).bool()
    assert one(LOSSES, codes).item() == pytest.approx(other(LOSSES, indicator).item())
    np.testing.assert_allclose(one.weights, other.weights)


def test_losses_of_tokens_and_a_mask():
    losses = torch.arange(20.0).reshape(5, 4)
    mask = losses % 3 > 0
    loss, weights = criterion(), criterion().weights
    sums = torch.where(mask, losses, 0.0).sum(1).numpy()
    counts, shares = mask.sum(1).numpy(), SHARES.numpy()
    expected = weights @ (shares.T @ sums / (shares.T @ counts))
    assert loss(losses, SHARES, mask=mask).item() == pytest.approx(expected)
    per_token = SHARES[:, None, :].expand(5, 4, 3)
    assert criterion()(losses, per_token, mask=mask).item() == pytest.approx(expected)


def test_micro_batches_add_up_to_the_batch():
    whole = criterion()
    value = whole(LOSSES, SHARES).item()
    loss = criterion(accumulate=2)
    counts = loss.count(SHARES)
    np.testing.assert_allclose(counts, SHARES.sum(0))
    parts = [loss(LOSSES[p], SHARES[p], counts=counts).item() for p in (slice(0, 2), slice(2, 5))]
    assert sum(parts) == pytest.approx(value)
    np.testing.assert_allclose(loss.weights, whole.weights)


@pytest.mark.parametrize(
    ("groups", "options", "kind", "message"),
    [
        (torch.ones(5, 2), {}, TypeError, r"memberships of shape \(examples, 3\).*\(5, 2\)"),
        (torch.ones(4, 3), {}, ValueError, r"memberships for each example; got shape \(4,\)"),
        (SHARES - 0.5, {}, ValueError, "finite memberships >= 0; 5 losses"),
        (SHARES / 0.0, {}, ValueError, "finite memberships >= 0; 5 losses"),
        ([["a", "x"]] * 5, {}, ValueError, "unknown domain.*'x'"),
        (SHARES, {"shares": [0.2, 0.3, 0.5]}, ValueError, "takes one group per example"),
    ],
)
def test_errors(groups, options, kind, message):
    loss = criterion(**options)
    with pytest.raises(kind, match=message):
        loss(LOSSES, groups)
    assert loss.reweighter.updates == 0


def test_sums_and_factors():
    sums, counts = group_sums(LOSSES, SHARES, 3)
    np.testing.assert_allclose(sums, SHARES.numpy().T @ LOSSES.numpy())
    np.testing.assert_allclose(counts, SHARES.sum(0))
    weighed = weigh_losses(LOSSES, SHARES, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(
        weighed, LOSSES * (SHARES.double() @ torch.tensor([1.0, 2, 4]).double())
    )
