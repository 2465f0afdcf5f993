"""Export a fitted model as ONNX: a MatMul, an Add, and what turns scores into predictions."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from counterpoise import __version__
from counterpoise.activations import Activation
from counterpoise.common.arguments import check_choice
from counterpoise.common.packages import not_installed
from counterpoise.storage.files import write_bytes

if TYPE_CHECKING:
    import onnx

Array = np.ndarray

# Supported by runtimes since 2021. Every operator used here has kernels for both precisions in
# onnxruntime, unlike LeakyRelu, Elu and Softplus.
OPSET = 14
IR_VERSION = 7
# Version of the metadata; raised if a reader of the old one would misread the new.
FORMAT, CLASSIFIER_FORMAT = "counterpoise neuron", "counterpoise classifier"
FORMAT_VERSION = 1
DTYPES = ("float64", "float32")


def to_onnx(
    model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float64"
) -> onnx.ModelProto:
    """Export a fitted model as ONNX.

    The graph takes "X" of shape (n, d), for any n. For numbers it returns "prediction" of shape
    (n,), NaN for a row with a missing value. For classes it returns "label" of shape (n,), of text,
    integers or booleans as in ``classes_``, and "probabilities" of shape (n, C), NaN for a row with
    a missing value, whose label then means nothing; with the squared hinge, which has no
    probabilities, "score" of shape (n,) in their place. It uses opset 14.

    Parameters
    ----------
    model : fitted GroupDRONeuron, GroupDROClassifier, GroupDRORegressor, ...CV or baseline
        With a named activation, because ONNX cannot hold a Python function. Of a pipeline with a
        :class:`counterpoise.tabular.TableEncoder`, the last step is exported: "X" is what the
        encoder returns.
    path : path, optional
        The file to write.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the input, the arithmetic and the prediction. "float64" agrees with ``predict``
        to rounding. "float32" is for runtimes and devices without doubles. Its error is about 1e-7
        times the largest term ``|x_j w_j|`` or intercept, which matters if terms far larger than
        the prediction cancel (years, time stamps; subtract their mean before the fit).

    Returns
    -------
    onnx.ModelProto
        Its ``metadata_props`` hold the format and its version, the version of Counterpoise, the
        activation or loss, the classes as JSON, and the names of features if the fit knew them (as
        JSON, in the order of the columns of "X"; features made from a table's categories have names
        of their own).

    Examples
    --------
    >>> import numpy as np
    >>> from counterpoise import GroupDRONeuron
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = GroupDRONeuron("relu").fit(X, np.maximum(0.0, X @ [1.0, -2.0, 0.5]))
    >>> [node.op_type for node in to_onnx(model).graph.node]
    ['MatMul', 'Squeeze', 'Add', 'Relu']
    """
    _onnx()
    names = getattr(model, "feature_names_in_", None)
    if hasattr(model, "steps") and hasattr(model.steps[0][1], "layout_"):
        names, model = model[:-1].get_feature_names_out(), model.steps[-1][1]
    check_choice("dtype", dtype, DTYPES)
    if uses := getattr(model, "uses_group_", ""):
        raise ValueError(
            f"the model uses the group of every row ({uses}), and the ONNX graph has no input for "
            "it; fit with group_known=False"
        )
    draft = Draft(np.dtype(dtype))
    if isinstance(getattr(model, "activation_", None), Activation):
        score = _score(draft, model.coef_, model.intercept_)
        draft.outputs["prediction"] = model.activation_.to_onnx(draft, score)
        about = _neuron_facts(model)
    elif hasattr(model, "loss") and hasattr(model, "plain_twin"):
        check_is_fitted(model)
        about = (_classify if hasattr(model, "classes_") else _regress)(draft, model)
    else:
        if hasattr(model, "activation"):
            check_is_fitted(model)
        raise TypeError(
            "model must be a fitted neuron or classifier, such as GroupDRONeuron; got "
            f"{type(model).__name__}. For a pipeline or a search, give the estimator inside"
        )
    proto = _assemble(draft, model.n_features_in_, _facts(model, names) | about)
    if path is not None:
        _write(Path(path), proto.SerializeToString())
    return proto


@dataclass
class Draft:
    """An ONNX graph under construction.

    Attributes
    ----------
    dtype : dtype of the input and the arithmetic
    nodes : list of (operator, inputs, result, attributes)
    constants : mapping name -> array
    outputs : mapping name of an output -> name of the result that it is
    """

    dtype: np.dtype[Any]
    nodes: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Apply an operator and return the name of its result."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append((operator, inputs, name, attributes))
        return name

    def constant(self, value: Any, name: str | None = None) -> str:
        """Add numbers to the graph and return their name."""
        exact, what = np.asarray(value, dtype=float), name or "activation"
        if not np.isfinite(exact).all():
            raise ValueError(f"the model's {what} holds numbers that are not finite; fit it again")
        if (np.abs(exact) > np.finfo(self.dtype).max).any():
            raise ValueError(
                f"the model's {what} holds numbers too large for {self.dtype}; use "
                "dtype='float64', or scale the features before the fit"
            )
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = exact.astype(self.dtype)
        return name


def _score(draft: Draft, coef: Array, intercept: float) -> str:
    """One score for every row: shape (n,)."""
    # A column, and not a vector: onnxruntime refuses a vector where there are no rows.
    column = draft.node("MatMul", "X", draft.constant(coef[:, None], "coef"))
    draft.constants["axis"] = np.array([1], dtype=np.int64)
    terms = draft.node("Squeeze", column, "axis")
    return draft.node("Add", terms, draft.constant(intercept, "intercept"))


def _neuron_facts(model: Any) -> dict[str, str]:
    return {
        "format": FORMAT,
        "activation": model.activation_.name,
        "activation_parameters": json.dumps(model.activation_.parameters),
    }


def _regress(draft: Draft, model: Any) -> dict[str, str]:
    """The prediction of a linear score: its exponential for counts, else the score itself."""
    score = _score(draft, np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]))
    out = draft.node("Exp" if _loss_name(model) == "poisson" else "Identity", score)
    draft.outputs["prediction"] = out
    return {"format": FORMAT, "loss": _loss_name(model)}


def _classify(draft: Draft, model: Any) -> dict[str, str]:
    """The label of every row, and its probabilities or its score."""
    classes, name = model.classes_, _loss_name(model)
    if len(model.coef_) == 1:
        score = _score(draft, model.coef_[0], float(model.intercept_[0]))
        yes = draft.node("Greater", score, draft.constant(0.0, "zero"))
        place = draft.node("Cast", yes, to=7)  # int64
        draft.outputs["label"] = _label(draft, classes, place)
        if name == "squared_hinge":
            draft.outputs["score"] = draft.node("Identity", score)
        else:
            # The probability of "no" by itself, since 1 - p loses digits where p is near 1.
            both = [draft.node("Sigmoid", draft.node("Neg", score)), draft.node("Sigmoid", score)]
            columns = [draft.node("Unsqueeze", one, "axis") for one in both]
            draft.outputs["probabilities"] = draft.node("Concat", *columns, axis=1)
    else:
        terms = draft.node("MatMul", "X", draft.constant(model.coef_.T, "coef"))
        scores = draft.node("Add", terms, draft.constant(model.intercept_, "intercept"))
        place = draft.node("ArgMax", scores, axis=1, keepdims=0)
        draft.outputs["label"] = _label(draft, classes, place)
        draft.outputs["probabilities"] = draft.node("Softmax", scores, axis=1)
    shown = [value if type(value) in (str, int, bool) else str(value) for value in classes.tolist()]
    known = {"format": CLASSIFIER_FORMAT, "loss": name}
    return known | {"classes": json.dumps(shown, ensure_ascii=False)}


def _label(draft: Draft, classes: Array, place: str) -> str:
    """Look up labels: text, integers and booleans as they are, all others as text."""
    kept = classes
    if classes.dtype.kind in "iu":
        kept = classes.astype(np.int64)
    elif classes.dtype.kind != "b":
        kept = np.array([str(value) for value in classes.tolist()], dtype=object)
    draft.constants["classes"] = kept
    return draft.node("Gather", "classes", place)


def _loss_name(model: Any) -> str:
    return str(getattr(model.loss, "name", model.loss))


def _facts(model: Any, names: Any) -> dict[str, str]:
    """The metadata of the file that all models have."""
    facts = {
        "format_version": str(FORMAT_VERSION),
        "counterpoise_version": __version__,
        "estimator": type(model).__name__,
    }
    if names is not None:
        facts["feature_names"] = json.dumps([str(name) for name in names], ensure_ascii=False)
    return facts


def _assemble(draft: Draft, n_features: int, facts: dict[str, str]) -> onnx.ModelProto:
    onnx = _onnx()
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(draft.dtype)
    called = {result: name for name, result in draft.outputs.items()}
    nodes = [
        helper.make_node(
            op, [called.get(name, name) for name in inputs], [called.get(out, out)],
            name=called.get(out, out), **attributes,
        )
        for op, inputs, out, attributes in draft.nodes
    ]  # fmt: skip
    tensors = [numpy_helper.from_array(value, name) for name, value in draft.constants.items()]
    outputs = []
    for name in draft.outputs:
        made: int = kind
        shape: list[str | int] = ["n"]
        if name == "label":
            made = next(one.data_type for one in tensors if one.name == "classes")
        elif name == "probabilities":
            shape = ["n", len(draft.constants["classes"])]
        outputs.append(helper.make_tensor_value_info(name, made, shape))
    what = f"activation {facts['activation']}" if "activation" in facts else f"loss {facts['loss']}"
    graph = helper.make_graph(
        nodes,
        facts["format"].split()[-1],
        [helper.make_tensor_value_info("X", kind, ["n", n_features])],
        outputs,
        tensors,
        doc_string=f"from scores X @ coef + intercept, {what}",
    )
    proto = helper.make_model(
        graph,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="counterpoise",
        producer_version=__version__,
    )
    helper.set_model_props(proto, facts)
    onnx.checker.check_model(proto)
    return proto


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise not_installed("ONNX export needs", "onnx") from error
    return onnx


def _write(path: Path, data: bytes) -> None:
    if path.is_dir():
        raise ValueError(f"path {str(path)!r} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}; create it first")
    write_bytes(path, data)
