"""`RowDraws`: which rows of a dataset come next, if each row is in a group and groups have weights.

Stands on `Draws`: the stream depends only on the seed, on the weights and on which row is in which
group, each from a known draw on.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoise.common.arguments import check_version
from counterpoise.lm.mixture.draws import Change, Draws

Array = np.ndarray

STATE_VERSION = 1


class Grouping(NamedTuple):
    """The group of each row, from draw ``at`` on."""

    at: int
    codes: Array


class RowDraws:
    """The stream of rows at some draw.

    Parameters
    ----------
    names : sequence of str
        Groups.
    codes : integer array
        Each row's group, a position in ``names``.
    weights : array
        First weights of the groups.
    seed : int

    Notes
    -----
    Within a group, no row comes again before all have come, unless rows change their groups: each
    group then starts anew. While a group is empty, the others share its weight in proportion to
    theirs.
    """

    def __init__(
        self, names: Sequence[str], codes: Array, weights: Array, *, seed: int = 0
    ) -> None:
        self.names, self.seed = list(names), int(seed)
        self._first = Grouping(0, self.check_codes(codes))
        self._groupings = [self._first]
        self._changes = [Change(0, np.asarray(weights, dtype=float))]
        self._formed: Grouping | None = None  # the groups now in use
        self.counts = np.zeros(len(self.names), dtype=np.int64)
        self.expected = np.zeros(len(self.names))
        self._draws = Draws(self.names, np.zeros(0), self.seed, [])
        self._rows: list[Array] = []
        self._digest = zlib.crc32(self._first.codes.tobytes())

    @property
    def number(self) -> int:
        """Rows drawn so far."""
        return self._draws.number

    @property
    def weights(self) -> Array:
        """Weights in force at the next draw."""
        return _in_force(self._changes, self.number).weights

    @property
    def codes(self) -> Array:
        """Each row's group at the next draw."""
        return _in_force(self._groupings, self.number).codes

    @property
    def latest_codes(self) -> Array:
        """Each row's group after the changes that lie ahead."""
        return self._groupings[-1].codes

    def copy(self) -> RowDraws:
        """Make a copy that moves independently."""
        twin = object.__new__(RowDraws)
        vars(twin).update(vars(self))
        twin._groupings, twin._changes = list(self._groupings), list(self._changes)
        twin.counts, twin.expected = self.counts.copy(), self.expected.copy()
        twin._draws = self._draws.copy()
        return twin

    def change(self, at: int, weights: Array) -> None:
        """Let ``weights`` hold from draw ``at`` on; later changes are dropped."""
        self._changes = [c for c in self._changes if c.at < at] + [Change(at, weights)]

    def regroup(self, at: int, codes: Array) -> None:
        """Let rows be in other groups from draw ``at`` on; later groupings are dropped."""
        kept = [g for g in self._groupings if g.at < at]
        self._groupings = [*kept, Grouping(at, self.check_codes(codes))]

    def take(self, count: int) -> Array:
        """Draw the next ``count`` rows."""
        found: list[Array] = []
        while count > 0:
            self._form()
            starts = [c.at for c in self._changes] + [g.at for g in self._groupings]
            left = min([count, *(at - self.number for at in starts if at > self.number)])
            self._draws.expected = np.zeros(len(self.names))
            domains, ordinals = self._draws.take(left)
            self.expected = self.expected + self._draws.expected
            self.counts = self.counts + np.bincount(domains, minlength=len(self.names))
            pairs = zip(domains.tolist(), ordinals.tolist(), strict=True)
            found.append(np.array([self._rows[k][self._draws.sample(k, i)] for k, i in pairs]))
            count -= left
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def check_codes(self, codes: Array) -> Array:
        """Check the groups of all rows."""
        codes = np.ascontiguousarray(codes, dtype=np.int32)
        if codes.ndim != 1 or codes.size == 0:
            raise ValueError(f"codes must be one group per row; got an array of {codes.shape}")
        if codes.min() < 0 or codes.max() >= len(self.names):
            raise ValueError(
                f"codes must be between 0 and {len(self.names) - 1}, positions in the groups; got "
                f"{int(codes.min())} to {int(codes.max())}"
            )
        return codes

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain JSON; rows' groups are part of it once they have changed."""
        self._form()
        return {
            "version": STATE_VERSION,
            **self._identity(),
            "number": self.number,
            "cursors": self._draws.cursors.tolist(),
            "counts": self.counts.tolist(),
            "expected": self.expected.tolist(),
            "changes": [[c.at, c.weights.tolist()] for c in self._changes],
            "groupings": [
                [g.at, None if g is self._first else _packed(g.codes)] for g in self._groupings
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state over the same rows, groups and seed."""
        check_version(state, STATE_VERSION)
        for what, value in self._identity().items():
            if state[what] != value:
                raise ValueError(
                    f"state belongs to rows with {what}={state[what]!r}, but these have {value!r}; "
                    "the rows still to come would be others"
                )
        self._groupings = [
            self._first if text is None else Grouping(int(at), self.check_codes(_unpacked(text)))
            for at, text in state["groupings"]
        ]
        self._changes = [Change(int(at), np.array(w, dtype=float)) for at, w in state["changes"]]
        self.counts = np.array(state["counts"], dtype=np.int64)
        self.expected = np.array(state["expected"], dtype=float)
        self._draws.number, self._formed = int(state["number"]), None
        self._form()
        self._draws.cursors = np.array(state["cursors"], dtype=np.int64)

    def _identity(self) -> dict[str, Any]:
        """Return what must not differ between saving and loading."""
        rows = len(self._first.codes)
        return {"names": self.names, "rows": rows, "seed": self.seed, "digest": self._digest}

    def _form(self) -> None:
        """Form the groups and take the weights that hold at the next draw."""
        grouping = _in_force(self._groupings, self.number)
        change = _in_force(self._changes, self.number)
        if self._formed is not grouping:
            self._formed = grouping
            sizes = np.bincount(grouping.codes, minlength=len(self.names))
            self._rows = [np.flatnonzero(grouping.codes == k) for k in range(len(self.names))]
            names = [f"{name}\x1f{grouping.at}" for name in self.names]
            self._draws = Draws(names, sizes, self.seed, [], number=self.number)
        shares = np.where(self._draws.sizes > 0, change.weights, 0.0)
        if not shares.any():
            shares = self._draws.sizes.astype(float)
        self._draws.changes = [Change(0, shares / shares.sum())]


def _in_force(items: list[Any], number: int) -> Any:
    """Return the last item that holds at a draw; forget those before it."""
    del items[: max(bisect_right(items, number, key=lambda item: item.at) - 1, 0)]
    return items[0]


def _packed(codes: Array) -> str:
    return base64.b64encode(zlib.compress(codes.astype("<i4").tobytes())).decode()


def _unpacked(text: str) -> Array:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i4")
