"""Scores of heads by group, also of groups that overlap."""

from types import SimpleNamespace

import numpy as np
import pytest

from counterpoise.losses import LogLoss, Multinomial
from counterpoise.torch.heads.result import measure
from counterpoise.torch.heads.rows import HeadRows
from counterpoise.torch.heads.tasks import Task


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_groups_that_overlap(outputs):
    rng = np.random.default_rng(0)
    X, weight, bias = (rng.normal(size=s) for s in ((50, 3), (outputs, 3), outputs))
    y = rng.integers(0, max(2, outputs), 50)
    shares = rng.integers(0, 2, (50, 2)) * [1.0, 0.5]
    loss = LogLoss() if outputs < 4 else Multinomial(4)
    estimator = SimpleNamespace(groups_=np.arange(2), loss_=loss)
    rows = HeadRows(X, y, shares)
    rows._rows.chunk_rows = 7
    (found,) = measure(rows, [(weight, bias)], Task(True, outputs), estimator)

    z = X @ weight.T + bias
    if outputs == 1:
        z = np.column_stack([np.zeros(50), z])
    losses = np.log(np.exp(z).sum(1)) - z[np.arange(50), y]
    right = z.argmax(1) == y
    assert found.n_rows == rows.n_rows == 50
    assert found.accuracy == pytest.approx(right.mean())
    np.testing.assert_allclose(found.rows, shares.sum(0))
    np.testing.assert_allclose(found.losses, losses @ shares / shares.sum(0))
    np.testing.assert_allclose(found.accuracies, right @ shares / shares.sum(0))
    with pytest.raises(ValueError, match="y has 50 entries but groups has 49"):
        HeadRows(X, y, shares[1:])
