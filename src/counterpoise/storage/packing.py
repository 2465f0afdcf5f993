"""Objects of the library as plain JSON and plain arrays, and back. Nothing is ever executed.

A value becomes a tree of JSON values; arrays are kept aside and named in it. Anything that JSON
cannot express is an object with the key ``"!"``: ``{"!": "array", "name": ...}``, ``{"!": "float",
"is": "inf"}``, or one of the library's own types with its fields. Only types in the tables below
are ever made from such a tree. They are named here as text and imported when one is met.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from counterpoise.storage.arrays import KINDS
from counterpoise.storage.labels import LABELS, pack_label, unpack_label
from counterpoise.storage.types import check_types

Array = np.ndarray

MARK = "!"
# Dataclasses and named tuples that may be stored, and their modules.
TYPES = {
    "AbsoluteErrors": "assessment.record",
    "AdaptiveSteps": "solver.schedules",
    "AlikeRows": "assessment.diagnosis.neighbours",
    "Calibration": "assessment.calibration",
    "CalibrationBin": "assessment.calibration",
    "CalibrationByGroup": "assessment.calibration",
    "Certificate": "solver.certificate",
    "CertificateConstants": "solver.certificate",
    "ClassComparison": "assessment.classes",
    "ClassDiagnosis": "assessment.diagnosis.classes",
    "ClassScores": "assessment.classes",
    "ConvexCertificate": "solver.convex_certificate",
    "DataFacts": "assessment.record",
    "Diagnosis": "assessment.diagnosis.diagnose",
    "Feature": "tabular.layout",
    "FitRecord": "assessment.record",
    "Frontier": "estimators.frontier",
    "GroupBeside": "assessment.record",
    "GroupClassDiagnosis": "assessment.diagnosis.classes",
    "GroupDiagnosis": "assessment.diagnosis.diagnose",
    "Interval": "assessment.intervals",
    "PairedErrors": "assessment.proportions",
    "PairedLosses": "assessment.classes",
    "PaperSteps": "solver.schedules",
    "Region": "solver.certificate",
    "RegionProof": "solver.certificate",
    "Residuals": "assessment.record",
    "RiskComparison": "assessment.record",
    "RiskIntervals": "assessment.intervals",
    "SlackAccount": "solver.slack",
    "TableLayout": "tabular.layout",
    "Verdict": "assessment.diagnosis.verdicts",
    "Worth": "assessment.diagnosis.worth",
}
# Estimators and transformers: their parameters and fitted attributes are stored.
ESTIMATORS = {
    "AverageClassifier": "baselines",
    "AverageNeuron": "baselines",
    "ExponentiatedGradientClassifier": "baselines",
    "ExponentiatedGradientNeuron": "baselines",
    "GroupCVaRNeuron": "baselines",
    "GroupDROClassifier": "estimators.classifier",
    "GroupDROClassifierCV": "estimators.classifier_cv",
    "GroupDRONeuron": "estimators.neuron",
    "GroupDRONeuronCV": "estimators.cross_validation",
    "GroupDRORegressor": "estimators.regressor",
    "PrimalExtrapolationNeuron": "baselines",
    "RowCVaRClassifier": "baselines",
    "RowChiSquareClassifier": "baselines",
    "RowChiSquareNeuron": "baselines",
    "StochasticMirrorNeuron": "baselines",
    "SubsampledClassifier": "baselines",
    "TableEncoder": "tabular.encoder",
    "TiltedClassifier": "baselines",
    "TiltedNeuron": "baselines",
}
# Classes with config() -> dict or None, and their modules, with from_config(dict) -> object.
CONFIGURED = {"Activation": "activations", "Divergence": "dual.divergences", "Loss": "losses"}


class Packer:
    """Turns values into trees; ``arrays`` holds the arrays that the trees name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._names: dict[int, str] = {}

    def pack(self, value: Any, where: str) -> Any:
        """The tree of a value; ``where`` names it in errors and in names of arrays."""
        if value is None or isinstance(value, (bool, str, int)):
            return value
        if isinstance(value, np.generic) and value.dtype.kind in "biufUS":
            return self.pack(value.item(), where)
        if isinstance(value, float):
            if math.isfinite(value):
                return value
            return {MARK: "float", "is": "nan" if math.isnan(value) else str(value)}
        if isinstance(value, Array):
            return self._array(value, where)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if type(value).__name__ in TYPES and type(value) is _type(type(value).__name__, TYPES):
            return self._fields(value, where)
        if isinstance(value, (list, tuple)):
            items = [self.pack(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {MARK: "tuple", "items": items}
        if isinstance(value, Mapping):
            return self._mapping(value, where)
        return self._special(value, where)

    def _array(self, value: Array, where: str) -> Any:
        if value.dtype.kind == "O":
            items = [self.pack(item, f"{where}[{i}]") for i, item in enumerate(value.tolist())]
            return {MARK: "objects", "items": items}
        if value.dtype.kind not in KINDS:
            raise _unknown(value, where)
        if id(value) not in self._names:
            name = where if where not in self.arrays else f"{where}~{len(self.arrays)}"
            self.arrays[name] = value
            self._names[id(value)] = name
        return {MARK: "array", "name": self._names[id(value)]}

    def _fields(self, value: Any, where: str) -> Any:
        names = _field_names(type(value))
        fields = {n: self.pack(getattr(value, n), f"{where}.{n}") for n in names}
        return {MARK: type(value).__name__, "fields": fields}

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        if all(isinstance(key, str) for key in value) and MARK not in value:
            return {key: self.pack(item, f"{where}.{key}") for key, item in value.items()}
        items = [
            [self.pack(key, f"a key of {where}"), self.pack(item, f"{where}[{key!r}]")]
            for key, item in value.items()
        ]
        return {MARK: "mapping", "items": items}

    def _special(self, value: Any, where: str) -> Any:
        if _is_pipeline(value):
            steps = [[name, self._step(step, f"{where}.{name}")] for name, step in value.steps]
            return {MARK: "pipeline", "steps": steps}
        if _is_estimator(value):
            return self._estimator(value, where)
        for kind in CONFIGURED:
            if isinstance(value, _type(kind, CONFIGURED)):
                return {MARK: kind, **self._config(value, kind, where)}
        label = pack_label(value)
        if label is None:
            raise _unknown(value, where)
        return label

    def _config(self, value: Any, kind: str, where: str) -> dict[str, Any]:
        config = value.config()
        if config is None:
            raise TypeError(
                f"{where} is your own {kind} ({value.name!r}), which exists only as Python code; "
                "use a named one to store the model, or keep coef_ and intercept_"
            )
        return {key: self.pack(item, f"{where}.{key}") for key, item in config.items()}

    def _step(self, value: Any, where: str) -> Any:
        if not _is_estimator(value):
            raise TypeError(
                f"{where} is of type {type(value).__name__}, and only pipelines of counterpoise's "
                "own steps can be stored; store the neuron alone, with pipeline[-1].save(...)"
            )
        return self._estimator(value, where)

    def _estimator(self, value: Any, where: str) -> Any:
        return {
            MARK: "estimator",
            "class": type(value).__name__,
            "parameters": {
                key: self.pack(item, f"{where}.{key}")
                for key, item in value.get_params(deep=False).items()
            },
            "fitted": {
                key: self.pack(item, f"{where}.{key}")
                for key, item in vars(value).items()
                if is_fitted_name(key)
            },
        }


def unpack(tree: Any, arrays: Mapping[str, Array]) -> Any:
    """The value that a :class:`Packer` made the tree of."""
    if isinstance(tree, list):
        return [unpack(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if MARK not in tree:
        return {key: unpack(item, arrays) for key, item in tree.items()}
    kind = tree[MARK]
    if not isinstance(kind, str):
        raise ValueError(f"the type {str(kind)[:80]!r} is not known here")
    if kind in TYPES:
        made = _type(kind, TYPES)
        fields = {name: unpack(item, arrays) for name, item in tree["fields"].items()}
        check_types(made, fields, _known)
        return made(**fields)
    if kind not in _READERS:
        raise ValueError(f"the type {kind[:80]!r} is not known here")
    return _READERS[kind](tree, arrays)


def check_storable(labels: Array) -> None:
    """Raise TypeError unless a model with these labels of groups could be stored."""
    if labels.dtype.kind in KINDS:
        return
    seen: set[type] = set()
    for label in labels:
        if type(label) in seen:
            continue
        try:
            Packer().pack(label, "groups")
        except (TypeError, ValueError, AttributeError):
            raise TypeError(
                f"groups has labels of type {type(label).__name__}, such as {label!r:.80}, which "
                "cannot be stored with a model; convert them, for example with str()"
            ) from None
        if not isinstance(label, tuple):  # whose items may differ in type
            seen.add(type(label))


def is_fitted_name(name: str) -> bool:
    """Whether scikit-learn would call this an attribute of a fit."""
    return name.endswith("_") and not name.startswith("_")


def _items(tree: Any, arrays: Mapping[str, Array]) -> list[Any]:
    return [unpack(item, arrays) for item in tree["items"]]


def _objects(tree: Any, arrays: Mapping[str, Array]) -> Array:
    items = _items(tree, arrays)
    return object_array(items)


def object_array(items: Sequence[Any]) -> Array:
    """Return an array of objects; tuples stay whole."""
    out = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        out[i] = item
    return out


def _configured(tree: Any, arrays: Mapping[str, Array]) -> Any:
    module = import_module(f"counterpoise.{CONFIGURED[tree[MARK]]}")
    given = {key: unpack(item, arrays) for key, item in tree.items() if key != MARK}
    return module.from_config(given)


def _pipeline(tree: Any, arrays: Mapping[str, Array]) -> Any:
    from sklearn.pipeline import Pipeline

    for _, step in tree["steps"]:
        if not isinstance(step, dict) or step.get(MARK) != "estimator":
            raise ValueError("a step of the pipeline is not an estimator")
    return Pipeline([(str(name), unpack(step, arrays)) for name, step in tree["steps"]])


def _estimator(tree: Any, arrays: Mapping[str, Array]) -> Any:
    made = _type(tree["class"], ESTIMATORS)
    model = made(**{name: unpack(item, arrays) for name, item in tree["parameters"].items()})
    fitted = {name: unpack(item, arrays) for name, item in tree["fitted"].items()}
    check_types(made, fitted, _known)
    for name, value in fitted.items():
        if not is_fitted_name(name):
            raise ValueError(f"{name!r} is not the name of a fitted attribute")
        setattr(model, name, value)
    return model


_READERS: dict[str, Callable[[Any, Mapping[str, Array]], Any]] = {
    **dict.fromkeys(CONFIGURED, _configured),
    **dict.fromkeys(LABELS, lambda tree, arrays: unpack_label(tree)),
    "array": lambda tree, arrays: arrays[tree["name"]],
    "estimator": _estimator,
    "float": lambda tree, arrays: float(tree["is"]),
    "mapping": lambda tree, arrays: dict(_items(tree, arrays)),
    "objects": _objects,
    "pipeline": _pipeline,
    "tuple": lambda tree, arrays: tuple(_items(tree, arrays)),
}


def _is_estimator(value: Any) -> bool:
    name = type(value).__name__
    return name in ESTIMATORS and type(value) is _type(name, ESTIMATORS)


def _is_pipeline(value: Any) -> bool:
    return (type(value).__module__, type(value).__name__) == ("sklearn.pipeline", "Pipeline")


def _type(name: str, table: Mapping[str, str]) -> Any:
    if name not in table:
        raise ValueError(f"the type {name!r} is not known here")
    return getattr(import_module(f"counterpoise.{table[name]}"), name)


def _known(name: str) -> Any:
    """A type by its name; None if it is none of those that may be stored."""
    tables = {**TYPES, **ESTIMATORS, **CONFIGURED}
    return _type(name, tables) if name in tables else None


def _field_names(made: type) -> list[str]:
    """Fields to store; those marked ``metadata={"stored": False}`` are left out."""
    if dataclasses.is_dataclass(made):
        fields = dataclasses.fields(made)
        return [field.name for field in fields if field.metadata.get("stored", True)]
    return list(made._fields)  # type: ignore[attr-defined]


def _unknown(value: Any, where: str) -> TypeError:
    return TypeError(
        f"{where} is of type {type(value).__name__}, which cannot be stored; use numbers, text, or "
        "objects of counterpoise"
    )
