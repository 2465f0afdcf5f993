"""`robust_head` and `fit_head`: a last layer that is robust on the worst group."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone, is_classifier

from counterpoise.rows.frames import given
from counterpoise.torch.heads.batches import as_array, check_order, read_batches
from counterpoise.torch.heads.embedding import Body, embed, first_and_all, open_body
from counterpoise.torch.heads.layers import frozen, unwrapped
from counterpoise.torch.heads.result import RobustHead, measure
from counterpoise.torch.heads.rows import (
    EMBEDDINGS,
    GROUPS,
    LABELS,
    EmbeddingRows,
    HeadRows,
    new_folder,
    plain_groups,
)
from counterpoise.torch.heads.tasks import Task, task_of

Array = np.ndarray
PathLike = str | os.PathLike[str]

MEMORY = 1 << 30
# Ridge of a head by default: embeddings often separate the classes, and the loss then has no
# minimum of its own.
RIDGE = 1e-3


def robust_head(
    model: torch.nn.Module,
    loader: Iterable[Any],
    groups: Any = None,
    layer: str | None = None,
    *,
    task: str = "auto",
    estimator: Any = None,
    write: bool = True,
    folder: PathLike | None = None,
    memory: int = MEMORY,
    unpack: Callable[[Any], tuple[Any, ...]] | None = None,
) -> RobustHead:
    """Fit the last layer of a model to be robust on the worst group, and write it back.

    The body runs once over the loader, in eval mode and without gradients. The inputs of the last
    linear layer become the rows of a :class:`counterpoise.GroupDROClassifier` (or, for numbers, a
    :class:`counterpoise.GroupDRORegressor`), whose coefficients replace the layer's weights.
    Nothing else of the model changes. The certificate is about this last layer, given the body.

    Use rows that the body was not trained on: it often separates its own training rows perfectly,
    and a head learns nothing about the groups from them.

    Parameters
    ----------
    model : Module
        Any module with a linear layer last; also transformers' sequence classifiers, which apply
        it to every token and take the scores of one.
    loader : iterable of batches
        ``(x, y)``, ``(x, y, groups)``, or mappings with "labels" and perhaps "groups", whose other
        entries are keywords of the model. ``x`` may be a tensor, a mapping or a tuple. Tensors are
        moved to the model's device.
    groups : array of shape (n,), optional
        A group for each row, in the order of the loader, which then must not shuffle. By default
        they come with the batches. Groups that overlap are memberships of shape (n, K).
    layer : str, optional
        Name of the last linear layer, as in ``model.named_modules()``. By default the one whose
        output is the model's.
    task : {"auto", "classification", "regression"}
        "auto" takes integers, 0.0 and 1.0, and layers with several outputs for classes. The head's
        output ``i`` is class ``i``; a single output is the score of class 1.
    estimator : estimator, optional
        An unfitted ``GroupDROClassifier(...)``, or ``GroupDRORegressor(...)``, with options of
        your own. By default it has a ridge of ``alpha=1e-3``, because embeddings often separate
        the classes; choose ``alpha`` on rows that you keep apart. With ``nu=np.inf`` it fits the
        average over groups, as in DFR.
    write : bool, default=True
        Whether to replace the layer's weights. If False, ``result.write(model.fc)`` does it later.
    folder : path, optional
        Folder to keep embeddings, labels and groups in, as .npy files, for `fit_head`.
    memory : int, default 1 GiB
        Bytes of embeddings to keep in memory. More go to a temporary file, which the fit reads in
        chunks.
    unpack : function from a batch to (inputs, labels, groups or None), optional
        For loaders that yield something else.

    Returns
    -------
    RobustHead

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> x, groups = torch.randn(200, 5), torch.arange(200) % 2
    >>> y = (x[:, 0] + groups * x[:, 1] + 0.5 * torch.randn(200) > 0).long()
    >>> result = robust_head(net, [(x, y, groups)])
    >>> result.layer, bool(result.certificate.duality_gap < 1e-4)
    ('2', True)
    >>> result.after.worst_loss < result.before.worst_loss
    True
    """
    model = unwrapped(model)
    if groups is not None:
        check_order(loader)
    inside = None if folder is None else new_folder(folder)
    with tempfile.TemporaryDirectory(prefix="counterpoise-") as spare:
        store = EmbeddingRows(0 if inside else memory, inside or Path(spare))
        with store:
            body, y, found = _collect(model, layer, read_batches(loader, unpack), store)
            groups = _groups(found, groups, len(y))
            X = store.finish()
        if inside is not None:
            np.save(inside / LABELS, y, allow_pickle=False)
            np.save(inside / GROUPS, plain_groups(groups), allow_pickle=False)
        result = _fitted(
            X, y, groups, task_of(task, y, body.layer.out_features), estimator,
            bias=body.layer.bias is not None, body=body,
        )  # fmt: skip
    if write:
        result.write(body.layer)
    return result


def fit_head(
    embeddings: Any,
    y: Any = None,
    groups: Any = None,
    *,
    task: str = "auto",
    outputs: int | None = None,
    bias: bool = True,
    estimator: Any = None,
) -> RobustHead:
    """Fit a last layer that is robust on the worst group to saved embeddings.

    Parameters
    ----------
    embeddings : array or tensor of shape (n, d), or path
        A path names a .npy file, which is read in chunks, or a folder of `robust_head`, which
        includes ``y`` and ``groups``.
    y, groups : arrays of shape (n,), or paths of .npy files
    task, estimator
        As for `robust_head`.
    outputs : int, optional
        Number of outputs of the layer; by default one for each class, or one for regression. A
        single output of a classifier is the score of class 1.
    bias : bool, default=True
        Whether the layer has a bias.

    Returns
    -------
    RobustHead
        Its ``linear()`` is a new layer, and ``write`` changes one of yours.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(300, 4)), np.repeat(["a", "b"], 150)
    >>> y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    >>> fit_head(X, y, groups).linear()
    Linear(in_features=4, out_features=2, bias=True)
    """
    if isinstance(embeddings, (str, os.PathLike)) and Path(embeddings).is_dir():
        kept = Path(embeddings)
        embeddings = kept / EMBEDDINGS
        y = kept / LABELS if y is None else y
        groups = kept / GROUPS if groups is None else groups
    y, groups = _loaded(y, "y"), _loaded(groups, "groups")
    if not isinstance(embeddings, (str, os.PathLike)):
        embeddings = as_array(given(embeddings, "embeddings"), "embeddings")
    if outputs is not None and (not isinstance(outputs, int) or outputs < 1):
        raise ValueError(f"outputs must be a positive integer; got {outputs!r}")
    return _fitted(embeddings, y, groups, task_of(task, y, outputs), estimator, bias=bias)


def _collect(
    model: torch.nn.Module, name: str | None, batches: Any, store: EmbeddingRows
) -> tuple[Body, Array, Array | None]:
    """Embed all batches into a store; return the body, the labels and the groups."""
    first, every = first_and_all(batches)
    labels: list[Array] = []
    groups: list[Array] = []
    with frozen(model):
        body = open_body(model, name, first.inputs)
        for X, y, g in embed(body, every):
            store.add(X)
            labels.append(y)
            groups += [] if g is None else [g]
    if len(groups) not in (0, len(labels)):
        raise ValueError("some batches have groups and some have none; give groups with all")
    return body, np.concatenate(labels), np.concatenate(groups) if groups else None


def _groups(found: Array | None, groups: Any, rows: int) -> Any:
    """Return the groups of all rows: those given, or those of the batches."""
    if groups is None:
        if found is None:
            raise ValueError(
                "groups is None and the loader yields none; pass groups=, an array in the order of "
                "the loader, or yield (x, y, groups)"
            )
        return found
    array = _group_array(groups)
    if len(array) != rows:
        raise ValueError(
            f"groups has {len(array)} entries but the loader yields {rows} rows; with "
            "drop_last=True or a sampler, the loader leaves out rows"
        )
    return array


def _group_array(groups: Any) -> Any:
    """Return groups as an array; memberships, which have a matrix, stay as they are."""
    return groups if hasattr(groups, "matrix") else as_array(given(groups, "groups"), "groups")


def _loaded(values: Any, name: str) -> Any:
    if values is None:
        raise ValueError(f"{name} is None; pass {name}=, one per embedding")
    if isinstance(values, (str, os.PathLike)):
        if not Path(values).is_file():
            raise FileNotFoundError(f"{name}: there is no file {str(values)!r}")
        return np.load(values, allow_pickle=False)
    return _group_array(values) if name == "groups" else as_array(given(values, name), name)


def _fitted(
    X: Array | PathLike,
    y: Array,
    groups: Any,
    task: Task,
    estimator: Any,
    *,
    bias: bool,
    body: Body | None = None,
) -> RobustHead:
    y = task.check_labels(y)
    estimator = _estimator(estimator, task, bias)
    rows = HeadRows(X, y, groups)
    if isinstance(X, Array):
        estimator.fit(X, y, groups=groups)
    else:
        estimator.fit(rows)
    weight, offset = task.weights(estimator)
    dtype = torch.float32 if body is None else body.layer.weight.dtype
    weight = _rounded(weight, dtype)
    offsets = _rounded(offset, dtype) if bias else None
    heads = [(weight, offsets)]
    if body is not None:
        old = body.layer
        heads.append((_host(old.weight), None if old.bias is None else _host(old.bias)))
    after, *before = measure(rows, heads, task, estimator)
    return RobustHead(
        estimator=estimator,
        layer=None if body is None else body.name,
        weight=weight,
        bias=offsets,
        after=after,
        before=before[0] if before else None,
    )


def _estimator(estimator: Any, task: Task, bias: bool) -> Any:
    """Return an unfitted estimator for the task; without a bias, it has no intercept."""
    if estimator is None:
        from counterpoise import GroupDROClassifier, GroupDRORegressor

        usual = GroupDROClassifier if task.classifies else GroupDRORegressor
        estimator = usual(alpha=RIDGE)
    elif is_classifier(estimator) != task.classifies:
        kind = "classifier" if task.classifies else "regressor"
        raise ValueError(
            f"estimator={estimator!r} is not a {kind}, but the task is "
            f"{'classification' if task.classifies else 'regression'}; set task= to say which it is"
        )
    found = clone(estimator)
    if not bias:
        found.set_params(fit_intercept=False)
    return found


def _rounded(values: Array, dtype: torch.dtype) -> Array:
    """Return numbers as a layer of this type would hold them."""
    return torch.from_numpy(values).to(dtype).double().numpy()


def _host(values: torch.Tensor) -> Array:
    return values.detach().cpu().double().numpy()
