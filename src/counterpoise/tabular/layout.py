"""Which columns of a table play which role, and how each feature becomes numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from counterpoise.common.arguments import check_choice

MISSING = ("refuse", "drop", "impute")
UNSEEN = ("refuse", "base")
CLASSIFY, REGRESS = TASKS = ("classify", "regress")
# The parts of a date that are features, and their kinds.
DATE_PARTS = {"year": "number", "month": "category", "weekday": "category"}
# The level, or group, of missing values.
NONE = "(missing)"
# Features are CSR if dense ones would take more bytes and at most this share of them is not zero.
DENSE_BYTES, SPARSE_SHARE = 1 << 28, 0.1


@dataclass(frozen=True)
class Feature:
    """A column that the model learns from, or a part of a column of dates.

    Attributes
    ----------
    name : str
        The column.
    kind : {"number", "boolean", "category"}
    levels : tuple of str
        The levels of a category. The first, the most frequent one, is the base level and has no
        indicator.
    fill : float or None
        The value that replaces missing numbers.
    part : {"year", "month", "weekday"} or None
        The part of a date that the feature is; None if the column holds no dates.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    fill: float | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        if self.part is not None:
            check_choice("part", self.part, tuple(DATE_PARTS))
            check_choice(f"kind of the part {self.part!r}", self.kind, (DATE_PARTS[self.part],))

    @property
    def title(self) -> str:
        """What messages and names of encoded columns call the feature."""
        return self.name if self.part is None else part_name(self.name, self.part)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.kind != "category":
            return (self.title,)
        return tuple(f"{self.title}={level}" for level in self.levels[1:])


def part_name(column: str, part: str) -> str:
    """The name of a part of a column of dates."""
    return f"{column}.{part}"


@dataclass(frozen=True)
class TableLayout:
    """The columns of a table by role, and the encoding of its features.

    Attributes
    ----------
    target : str or None
        None for features alone.
    group : tuple of str
        Several columns are crossed; none means one group.
    weight : str or None
    features : tuple of Feature
    missing : {"refuse", "drop", "impute"}
        What happens to missing features. "impute" replaces missing numbers by the mean and missing
        categories by the level ``"(missing)"``, or by the base level if no value was missing when
        the layout was learned.
    labels : {"text", "integer"}
        The type of group labels.
    classes : tuple of str, int or bool
        The classes that the target names, in order; none if it is a number.
    with_label : bool
        Whether groups are crossed with the classes of the target.
    overlapping : bool
        Whether the levels of every group column are groups side by side, so that a row belongs to
        one for each column, instead of the columns being crossed.
    """

    target: str | None
    group: tuple[str, ...]
    weight: str | None
    features: tuple[Feature, ...]
    missing: str = "refuse"
    labels: str = "text"
    classes: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...] = ()
    with_label: bool = False
    overlapping: bool = False

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, MISSING)
        check_choice("labels", self.labels, ("text", "integer"))
        if len(set(self.classes)) == 1 or len(set(map(type, self.classes))) > 1:
            raise ValueError(f"classes must be two or more, of one type; got {self.classes!r:.80}")
        if self.with_label and (self.target is None or not self.classes):
            raise ValueError("with_label needs a target that names classes")
        if self.overlapping and not self.group:
            raise ValueError("overlapping needs group columns")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded features."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def width(self) -> int:
        """Number of encoded features."""
        return len(self.names)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that predictions need."""
        return tuple(dict.fromkeys(feature.name for feature in self.features))

    @property
    def dates(self) -> tuple[str, ...]:
        """Columns of dates among the inputs."""
        parts = (feature.name for feature in self.features if feature.part is not None)
        return tuple(dict.fromkeys(parts))

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns of target, groups and weights."""
        given = (self.target, *self.group, self.weight)
        return tuple(name for name in given if name is not None)

    @property
    def task(self) -> str:
        """Whether to "classify", if the target names classes, or to "regress"."""
        return CLASSIFY if self.classes else REGRESS

    @property
    def crossed(self) -> str | None:
        """The target, if groups are crossed with its classes."""
        return self.target if self.with_label else None

    @property
    def has_groups(self) -> bool:
        """Whether rows have groups, by columns or by their class."""
        return bool(self.group) or self.with_label

    @property
    def grouping(self) -> tuple[str, ...]:
        """The columns that groups come from."""
        return (*self.group, *([self.crossed] if self.crossed is not None else []))

    @property
    def used(self) -> tuple[str, ...]:
        """All columns, each once."""
        return tuple(dict.fromkeys((*self.inputs, *self.roles)))

    @property
    def text(self) -> tuple[str, ...]:
        """Columns to read exactly as written; see :func:`open_table`."""
        return self.group

    @property
    def words(self) -> tuple[str, ...]:
        """Columns to read as text; see :func:`open_table`."""
        own = (f for f in self.features if f.kind == "category" or f.part is not None)
        found = [f.name for f in own if f.name not in self.group]
        if self.target is not None and self.classes and isinstance(self.classes[0], str):
            found.append(self.target)
        return tuple(dict.fromkeys(found))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns whose leading zeros mean nothing; see :func:`open_table`."""
        found = [f.name for f in self.features if f.kind != "category" and f.part is None]
        own = (self.target, self.weight)
        if set(own) & set(self.words):
            own = (None, self.weight)
        return (*found, *(name for name in own if name is not None))

    def is_sparse(self, n_rows: int) -> bool:
        """Whether this many rows are encoded as CSR."""
        share = len(self.features) / max(1, self.width)
        return 8 * self.width * n_rows > DENSE_BYTES and share < SPARSE_SHARE
