"""Which columns a model is made of, and how they become numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from counterpoise.common.arguments import check_choice

MISSING = ("refuse", "drop", "impute")
UNSEEN = ("refuse", "base")
# The level, or group, of values that are missing.
NONE = "(missing)"
# Features are CSR where dense ones would take more bytes, and where so few are not zero.
DENSE_BYTES, SPARSE_SHARE = 1 << 28, 0.1


@dataclass(frozen=True)
class Feature:
    """A column that the model sees.

    Attributes
    ----------
    name : str
    kind : str, "number", "boolean" or "category"
    levels : tuple of str
        Of a category; the first, the most frequent one, is the base and has no indicator.
    fill : float or None
        What stands for missing numbers.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    fill: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        if self.kind != "category":
            return (self.name,)
        return tuple(f"{self.name}={level}" for level in self.levels[1:])


@dataclass(frozen=True)
class Columns:
    """Columns by their roles. Of plain fields, so that JSON can hold them.

    Attributes
    ----------
    target : str
    group : tuple of str
        Several are crossed; none is one group.
    weight : str or None
    features : tuple of Feature
    missing : str, "refuse", "drop" or "impute"
        What becomes of missing features. Under "impute", missing numbers are the mean, and missing
        categories are the level ``"(missing)"``, or the base where none was missing when the
        columns were learned.
    labels : str, "text" or "integer"
        What groups are called by.
    """

    target: str
    group: tuple[str, ...]
    weight: str | None
    features: tuple[Feature, ...]
    missing: str = "refuse"
    labels: str = "text"

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, MISSING)
        check_choice("labels", self.labels, ("text", "integer"))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded features."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that predictions need."""
        return tuple(feature.name for feature in self.features)

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns of target, groups and weights."""
        return (self.target, *self.group, *(() if self.weight is None else (self.weight,)))

    @property
    def used(self) -> tuple[str, ...]:
        """All columns, each once."""
        return tuple(dict.fromkeys((*self.inputs, *self.roles)))

    @property
    def text(self) -> tuple[str, ...]:
        """Columns to read as they are written; see :func:`open_table`."""
        return self.group

    @property
    def words(self) -> tuple[str, ...]:
        """Columns to read as text; see :func:`open_table`."""
        found = [f.name for f in self.features if f.kind == "category" and f.name not in self.group]
        return tuple(found)

    def is_sparse(self, n_rows: int) -> bool:
        """Whether so many rows are encoded as CSR: at most one indicator of a category is one."""
        share = len(self.features) / max(1, self.width)
        return 8 * self.width * n_rows > DENSE_BYTES and share < SPARSE_SHARE

    def encode(self, data: Any, unseen: str = "refuse") -> Any:
        """The features of rows as numbers.

        Parameters
        ----------
        data : Table, Arrow table or batch, pandas or polars DataFrame, mapping of columns
        unseen : {"refuse", "base"}
            What becomes of categories that were not there when the columns were learned: an
            error, or the base level.

        Returns
        -------
        float64 array, or CSR matrix if that is much smaller, of shape (n, width)
        """
        from counterpoise.tabular.indicators import encode

        return encode(self, data, unseen)
