"""Labels that are classes, as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from counterpoise.rows.frames import given
from counterpoise.rows.groups import as_labels, encode_groups
from counterpoise.rows.scan import NoRows
from counterpoise.rows.sources import Chunk, Source

Array = np.ndarray


def encode_classes(y: Any) -> tuple[Array, Array]:
    """Return the sorted classes, and the number of every row's class as a float."""
    values = as_labels(y)
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    try:
        classes, codes = encode_groups(values, len(values))
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("groups", "y", 1)) from None
    return classes, codes.astype(float)


def class_numbers(y: Any, classes: Array) -> Array:
    """Return the number of every row's class as a float; every label must be a class."""
    values = as_labels(y)
    found, codes = encode_classes(values)
    place = np.minimum(np.searchsorted(classes, found), len(classes) - 1)
    if not np.array_equal(classes[place], found):
        new = found[classes[place] != found][0]
        raise ValueError(f"y: the label {new!r} was not there on the first pass over the rows")
    return place.astype(float)[codes.astype(np.intp)]


class ClassNumbers(Source):
    """A source whose labels are numbers of classes instead of the classes themselves."""

    def __init__(self, source: Source, classes: Array) -> None:
        self.source, self.classes = source, classes
        self.feature_names = source.feature_names

    @classmethod
    def of(cls, source: Source) -> ClassNumbers:
        """Find the classes in a pass over the source."""
        found: Array | None = None
        for chunk in source:
            classes = encode_classes(np.asarray(given(chunk[1], "y")))[0]
            found = classes if found is None else np.union1d(found, classes)
        if found is None:
            raise NoRows("the source gave no chunks; it must give at least one")
        return cls(source, found)

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self.source:
            X, y, *rest = chunk
            yield (X, class_numbers(np.asarray(given(y, "y")), self.classes), *rest)

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows


def decides_class(codes: Array, y: Array) -> bool:
    """Return whether the rows of every group have one class."""
    _, numbers = np.unique(np.asarray(y), return_inverse=True)
    pairs = np.unique(np.column_stack([codes, numbers]), axis=0)
    return len(pairs) == len(np.unique(codes)) and len(pairs) > 1
