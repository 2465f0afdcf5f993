"""Plain JSON from arrays, dataclasses and mappings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain(value: Any, digits: int | None = None) -> Any:
    """Convert a value to what JSON can hold.

    Arrays become lists; dataclasses and named tuples become mappings; numbers that are not finite
    become None; anything unknown becomes text.

    Parameters
    ----------
    value : object
    digits : int, optional
        Significant digits to keep of floats; None keeps all.

    Examples
    --------
    >>> plain({"a": np.array([1.23456789, np.inf]), "b": (np.int64(2), True, None)}, digits=5)
    {'a': [1.2346, None], 'b': [2, True, None]}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    return str(value)
