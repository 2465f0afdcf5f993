"""Which layer is the last, and what a model makes of its scores."""

import pytest
import torch
from torch import nn

from counterpoise.torch.heads.embedding import open_body
from counterpoise.torch.heads.layers import frozen


class Tokens(nn.Module):
    """Scores at every position, of which the model takes some."""

    def __init__(self, take):
        super().__init__()
        self.inside, self.score, self.take = nn.Linear(4, 5), nn.Linear(5, 3), take

    def forward(self, x):
        return self.take(self.score(torch.relu(self.inside(x))))


def opened(model, x, layer=None):
    with frozen(model):
        return open_body(model, layer, x)


X = torch.randn(7, 6, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "take", [lambda z: z[:, -1], lambda z: z[torch.arange(7), [5, 0, 1, 2, 3, 4, 0]]]
)
def test_scores_at_one_position(take):
    model = Tokens(take)
    body = opened(model, X)
    assert body.name == "score"
    with frozen(model):
        expected = take(torch.relu(model.inside(X)))
        torch.testing.assert_close(body.rows(X), expected)
        torch.testing.assert_close(model.score(expected), model(X))


def test_averages_of_scores_want_a_name():
    model = Tokens(lambda z: z.mean(1))
    with pytest.raises(
        ValueError, match=r"no linear layer's output .*'score' \(5 -> 3\), 'inside'"
    ):
        opened(model, X)
    body = opened(model, X, "score")
    with frozen(model):
        torch.testing.assert_close(body.rows(X), torch.relu(model.inside(X)).mean(1))


@pytest.mark.parametrize("take", [lambda z: z.max(1).values, lambda z: z])
def test_scores_that_come_from_no_single_row(take):
    model = Tokens(take)
    with pytest.raises(ValueError, match="applied at many positions of each example"):
        opened(model, X, "score")


def test_a_head_of_zeros_is_found_by_its_place():
    """All positions score alike, but the model's own choice of a position still decides."""
    model = Tokens(lambda z: z[:, 2])
    nn.init.zeros_(model.score.weight)
    nn.init.zeros_(model.score.bias)
    body = opened(model, X)
    with frozen(model):
        torch.testing.assert_close(body.rows(X), torch.relu(model.inside(X))[:, 2])


def test_names():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x = torch.randn(5, 4)
    assert opened(model, x).name == "2"
    assert opened(nn.Linear(4, 2), x).name == ""
    with pytest.raises(ValueError, match="layer='head' is not a module of the model"):
        opened(model, x, "head")
    with pytest.raises(ValueError, match=r"layer='1' is a ReLU; .* '2' \(3 -> 2\), '0'"):
        opened(model, x, "1")


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.twice = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, x):
        x = self.twice(self.twice(x))
        return {"first": self.first(x), "second": (self.second(x), None)}


def test_two_heads_want_a_name():
    x = torch.randn(5, 4)
    with pytest.raises(ValueError, match=r"outputs of 2 linear layers .* 'second' .* 'first'"):
        opened(Two(), x)
    assert opened(Two(), x, "second").name == "second"
    with pytest.raises(ValueError, match="'twice' was called 2 times for one batch"):
        opened(Two(), x, "twice")


def test_layers_that_cannot_be_replaced():
    x = torch.randn(5, 4)
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    with pytest.raises(ValueError, match="computes its weight from other parameters"):
        opened(normed, x)
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    with pytest.raises(ValueError, match=r"layer '2' shares its weights with '0.weight'"):
        opened(tied, x)
