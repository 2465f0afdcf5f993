"""Export a fitted neuron as an ONNX model: a MatMul, an Add and an activation."""

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
FORMAT = "counterpoise neuron"
FORMAT_VERSION = 1
DTYPES = ("float64", "float32")


def to_onnx(
    model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float64"
) -> onnx.ModelProto:
    """Export a fitted neuron as an ONNX model.

    The model takes "X" of shape (n, d), for any n, and returns "prediction" of shape (n,). It uses
    opset 14. A row with a missing value gets the prediction NaN.

    Parameters
    ----------
    model : fitted GroupDRONeuron, GroupDRONeuronCV or baseline
        With a named activation, because ONNX cannot hold a Python function. Of a pipeline with a
        :class:`counterpoise.tabular.TableEncoder`, the neuron is exported: "X" is what the encoder
        returns.
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
        activation, and the names of features if the fit knew them (as JSON, in the order of the
        columns of "X"; features made from a table's categories have names of their own).

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
    if not isinstance(getattr(model, "activation_", None), Activation):
        if hasattr(model, "activation"):
            check_is_fitted(model)
        raise TypeError(
            f"model must be a fitted neuron, such as GroupDRONeuron; got {type(model).__name__}. "
            "For a pipeline or a search, give the neuron inside"
        )
    check_choice("dtype", dtype, DTYPES)
    draft = Draft(np.dtype(dtype))
    # A column, and not a vector: onnxruntime refuses a vector where there are no rows.
    column = draft.node("MatMul", "X", draft.constant(model.coef_[:, None], "coef"))
    draft.constants["axis"] = np.array([1], dtype=np.int64)
    terms = draft.node("Squeeze", column, "axis")
    score = draft.node("Add", terms, draft.constant(model.intercept_, "intercept"))
    model.activation_.to_onnx(draft, score)
    proto = _assemble(draft, len(model.coef_), _facts(model, names))
    if path is not None:
        _write(Path(path), proto.SerializeToString())
    return proto


@dataclass
class Draft:
    """An ONNX graph under construction; its last node is the prediction."""

    dtype: np.dtype[Any]
    nodes: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str) -> str:
        """Apply an operator and return the name of its result."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append((operator, inputs, name))
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


def _facts(model: Any, names: Any) -> dict[str, str]:
    """The metadata of the file."""
    facts = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "counterpoise_version": __version__,
        "estimator": type(model).__name__,
        "activation": model.activation_.name,
        "activation_parameters": json.dumps(model.activation_.parameters),
    }
    if names is not None:
        facts["feature_names"] = json.dumps([str(name) for name in names], ensure_ascii=False)
    return facts


def _assemble(draft: Draft, n_features: int, facts: dict[str, str]) -> onnx.ModelProto:
    onnx = _onnx()
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(draft.dtype)
    operator, inputs, _ = draft.nodes[-1]
    nodes = [*draft.nodes[:-1], (operator, inputs, "prediction")]
    graph = helper.make_graph(
        [helper.make_node(op, names, [out], name=out) for op, names, out in nodes],
        "neuron",
        [helper.make_tensor_value_info("X", kind, ["n", n_features])],
        [helper.make_tensor_value_info("prediction", kind, ["n"])],
        [numpy_helper.from_array(value, name) for name, value in draft.constants.items()],
        doc_string=f"activation(X @ coef + intercept), activation {facts['activation']}",
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
