"""`RobustHead`: a fitted last layer, and how it does on every group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from counterpoise.common.text import clipped, count, number, text_table
from counterpoise.rows.groups import label_list
from counterpoise.torch.heads.rows import plain_groups
from counterpoise.torch.heads.tasks import Task, loss_of

if TYPE_CHECKING:
    from counterpoise.solver.certificate import Certificate

Array = np.ndarray


@dataclass(frozen=True)
class HeadScores:
    """How a head does on the rows of the fit.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    rows : array of shape (K,)
        Number of rows of each group; their sum differs from ``n_rows`` if groups overlap.
    losses : array of shape (K,)
        Mean loss of each group.
    accuracies : array of shape (K,) or None
        Share of right classes in each group; None for regression.
    accuracy : float or None
        Share of right classes over all rows.
    """

    n_rows: int
    rows: Array
    losses: Array
    accuracies: Array | None
    accuracy: float | None

    @property
    def worst_loss(self) -> float:
        """The largest mean loss of any group."""
        return float(self.losses.max())

    @property
    def worst_accuracy(self) -> float | None:
        """The smallest accuracy of any group; None for regression."""
        return None if self.accuracies is None else float(self.accuracies.min())


@dataclass(frozen=True, eq=False)
class RobustHead:
    """A last layer that was fitted for the worst group; prints as a table and a certificate.

    Attributes
    ----------
    estimator : GroupDROClassifier or GroupDRORegressor
        The fit, with its ``history_``, ``group_weights_`` and more.
    layer : str or None
        Name of the layer in the model; None for a head of `fit_head`.
    weight, bias : arrays of shape (outputs, d) and (outputs,)
        What was written, rounded to the layer's type; ``bias`` is None for a layer without one.
    after, before : HeadScores
        The written head and the one it replaced (None for `fit_head`), on the rows of the fit.
        Rows that were not fitted to are a better judge.
    """

    estimator: Any
    layer: str | None
    weight: Array
    bias: Array | None
    after: HeadScores
    before: HeadScores | None = None

    @property
    def certificate(self) -> Certificate:
        """What is proved about this last layer, for these embeddings."""
        found: Certificate = self.estimator.certificate_
        return found

    @property
    def groups(self) -> Array:
        """The group labels, in the order of all arrays."""
        return np.asarray(self.estimator.groups_)

    @property
    def group_risks(self) -> Array:
        """Mean loss of each group, as the estimator reports it, before rounding."""
        return np.asarray(self.estimator.group_risks_)

    def write(self, layer: torch.nn.Linear) -> None:
        """Write the head to a layer; its type, device and ``requires_grad`` stay."""
        shape = tuple(self.weight.shape)
        if tuple(layer.weight.shape) != shape:
            raise ValueError(
                f"the head has {shape[0]} outputs of {shape[1]} features; the layer is {layer!r}"
            )
        if (layer.bias is None) != (self.bias is None):
            has, fit = ("no", "a") if layer.bias is None else ("a", "no")
            raise ValueError(f"the layer has {has} bias, but the head was fitted with {fit} bias")
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self.weight))
            if self.bias is not None:
                layer.bias.copy_(torch.from_numpy(self.bias))

    def linear(self, dtype: torch.dtype = torch.float32) -> torch.nn.Linear:
        """Return the head as a new layer."""
        outputs, features = self.weight.shape
        layer = torch.nn.Linear(features, outputs, bias=self.bias is not None, dtype=dtype)
        self.write(layer)
        return layer

    def __str__(self) -> str:
        name = "" if self.layer is None else f" {self.layer!r}"
        rows = count(self.after.n_rows, "row")
        outputs, features = self.weight.shape
        return (
            f"Last layer{name}, {features} -> {outputs}, fitted to {rows} in "
            f"{count(len(self.groups), 'group')}\n\n{self._table()}\n\n{self.certificate}"
        )

    def _table(self) -> str:
        stages = [("before", self.before), ("after", self.after)]
        shown = [(when, scores) for when, scores in stages if scores is not None]
        head, columns = ["group", "rows"], []
        for when, scores in shown:
            head.append(f"loss {when}")
            columns.append([number(v) for v in (*scores.losses, scores.worst_loss)])
        for when, scores in shown:
            if scores.accuracies is not None:
                head.append(f"accuracy {when}")
                columns.append([f"{v:.1%}" for v in (*scores.accuracies, scores.accuracies.min())])
        names = [*(clipped(str(g)) for g in label_list(self.groups)), "worst group"]
        sizes = [*(f"{n:,.0f}" for n in self.after.rows), ""]
        return text_table(head, zip(names, sizes, *columns, strict=True))


def _totals(groups: Array, labels: Array, values: Array | None) -> Array:
    """Sum values over the rows of each group; without values, count the rows."""
    if groups.ndim == 2:
        return groups.sum(0) if values is None else groups.T @ values
    return np.bincount(np.searchsorted(labels, groups), values, len(labels))


def measure(
    rows: Iterable[tuple[Any, ...]],
    heads: Sequence[tuple[Array, Array | None]],
    task: Task,
    estimator: Any,
) -> list[HeadScores]:
    """Measure heads on rows that come in chunks, by the estimator's loss and groups."""
    labels = np.asarray(estimator.groups_)
    loss = loss_of(estimator)
    sums = np.zeros((len(heads), 3, len(labels)))
    n_rows, all_right = 0, np.zeros(len(heads))
    for X, y, groups, *_ in rows:
        groups = plain_groups(groups)
        n_rows += len(y)
        for h, head in enumerate(heads):
            z = task.scores(X, *head)
            right = task.right(z, y)
            all_right[h] += 0 if right is None else right.sum()
            for row, values in zip(sums[h], (None, loss.value(z, y), right), strict=True):
                row += _totals(groups, labels, values)
    return [
        HeadScores(n_rows, sizes, losses / sizes, right / sizes, float(total / n_rows))
        if task.classifies
        else HeadScores(n_rows, sizes, losses / sizes, None, None)
        for (sizes, losses, right), total in zip(sums, all_right, strict=True)
    ]
