"""Ranks that hold their own rows, and how they exchange sums and short messages.

Every rank runs the same program on its own rows. All that travels is arrays of doubles, so any
library that can sum an array over processes is enough. Sums are added up in the order of the ranks
on every rank, so all ranks have the same bits, and so has the next fit with as many ranks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray
Exchange = Callable[[Array], Any]
T = TypeVar("T")

# Numbers of one rank that are gathered on every rank at a time.
PIECE = 1 << 16
# Dimensions that an array may have, and the numbers in a header: what is done, whether it failed,
# a signature, the number of dimensions and the shape.
DIMENSIONS = 8
# A number that single precision cannot hold.
FINE = 1.0 + 2.0**-40
HEADER = 4 + DIMENSIONS
# Types of errors that every rank raises as they are; others become a RuntimeError.
KNOWN = {"TypeError": TypeError, "ValueError": ValueError, "OSError": OSError}


class CollectiveError(RuntimeError):
    """The ranks cannot continue together: one is gone, or they are doing different things."""


class Collective:
    """Processes (ranks) that fit one model together, each from its own rows.

    Every rank makes a collective, wraps its rows with :meth:`rows`, and calls ``fit`` with the same
    options. Every rank ends with the same model, to the bit. It is the model of all rows in memory
    up to rounding.

    :meth:`torch` and :meth:`mpi` make collectives for PyTorch and for MPI. Anything else that can
    sum an array over processes works, too.

    Parameters
    ----------
    allreduce : callable
        Takes a float64 array of one dimension, which it may overwrite, and returns the sum of the
        arrays of all ranks. All ranks call it at the same time, with arrays of the same length.
    rank, size : int
        The number of this process, from 0, and the number of processes.
    allgather : callable, optional
        Takes an array of shape (m,) and returns the arrays of all ranks, of shape (size, m). It
        saves traffic, and replaces ``allreduce``, which may then be None.
    alltoall : callable, optional
        Takes an array of shape (size, m), whose row ``i`` is for rank ``i``, and returns the rows
        from all ranks, of shape (size, m). It saves traffic if answers are large.

    Examples
    --------
    A single process is a collective, too:

    >>> import numpy as np
    >>> from counterpoise import Collective, GroupDRONeuron
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(200, 2)), np.repeat(["a", "b"], 100)
    >>> alone = Collective(lambda values: values, rank=0, size=1)
    >>> model = GroupDRONeuron("identity", nu=0.0)
    >>> model.fit(alone.rows(X, X[:, 0], groups)).coef_.round(6) + 0.0
    array([1., 0.])
    """

    def __init__(
        self,
        allreduce: Exchange | None,
        *,
        rank: int,
        size: int,
        allgather: Exchange | None = None,
        alltoall: Exchange | None = None,
    ) -> None:
        if allreduce is None and allgather is None:
            raise TypeError("allreduce is None; pass a function that sums an array over the ranks")
        for name, function in (
            ("allreduce", allreduce), ("allgather", allgather), ("alltoall", alltoall)
        ):  # fmt: skip
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function; got {type(function).__name__}")
        if not 0 <= rank < size:
            raise ValueError(f"rank must be from 0 to size - 1; got rank={rank} and size={size}")
        self.rank, self.size = int(rank), int(size)
        self._allreduce, self._allgather, self._alltoall = allreduce, allgather, alltoall
        self._met = False

    @classmethod
    def torch(cls, group: Any = None) -> Collective:
        """Return the ranks of a process group of torch.distributed (gloo, NCCL or MPI).

        Parameters
        ----------
        group : ProcessGroup, optional
            By default all ranks. Call ``torch.distributed.init_process_group`` first; its timeout
            is how long ranks wait for each other.
        """
        from counterpoise.rows.rank_libraries import torch_ranks

        rank, size, allgather, alltoall = torch_ranks(group)
        return cls(None, rank=rank, size=size, allgather=allgather, alltoall=alltoall)

    @classmethod
    def mpi(cls, comm: Any = None) -> Collective:
        """Return the ranks of a communicator of mpi4py; by default ``MPI.COMM_WORLD``."""
        from counterpoise.rows.rank_libraries import mpi_ranks

        rank, size, allgather, alltoall = mpi_ranks(comm)
        return cls(None, rank=rank, size=size, allgather=allgather, alltoall=alltoall)

    def __repr__(self) -> str:
        return f"<Collective: rank {self.rank} of {self.size}>"

    def rows(
        self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> RankRows:
        """Return this rank's rows, for the ``fit`` of any estimator that reads rows in place.

        Parameters
        ----------
        X : array, CSR matrix, data frame, tensor or Source, or None
            The rows of this rank. A :class:`Source` includes the other columns. None, or an array
            without rows, is a rank that has none.
        y, groups, sample_weight :
            The labels, groups and weights of these rows, as in :meth:`GroupDRONeuron.fit`. Ranks
            may have different groups. If one rank has groups or weights, they all should.
        """
        return RankRows(self, X, y, groups, sample_weight)

    # -- exchange --------------------------------------------------------------------------

    def gather(self, values: Array) -> Array:
        """Return the arrays of all ranks, of shape (size, m); all have the same length."""
        values = np.ascontiguousarray(values, dtype=float).reshape(-1)
        if values.size <= PIECE:
            return self._gather(values)
        cuts = range(0, values.size, PIECE)
        return np.concatenate([self._gather(values[i : i + PIECE]) for i in cuts], axis=1)

    def sum(self, values: Array) -> Array:
        """Return the sum of the arrays of all ranks, added in the order of the ranks.

        Zeros have no sign in the sum.
        """
        flat = np.ascontiguousarray(values, dtype=float).reshape(-1)
        if self._alltoall is None or flat.size <= PIECE:
            cuts = range(0, flat.size, PIECE)
            pieces = [in_order(self._gather(flat[i : i + PIECE])) for i in cuts]
            return np.concatenate([*pieces, np.empty(0)]).reshape(np.shape(values))
        # Every rank adds up a piece of the array, and gathers the others.
        width = -(-flat.size // self.size)
        padded = np.zeros((self.size, width))
        padded.reshape(-1)[: flat.size] = flat
        mine = in_order(self._call(self._alltoall, padded, padded.shape))
        return self.gather(mine).reshape(-1)[: flat.size].reshape(np.shape(values))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, which may differ in length."""
        lengths = [int(length) for length in self.gather(np.array([float(len(data))]))[:, 0]]
        count = -(-max(lengths) // 4)
        # Integers of four bytes, which any sum with zeros leaves as they are.
        numbers = np.frombuffer(data.ljust(4 * count, b"\0"), dtype="<u4").astype(float)
        found = self.gather(numbers) if count else np.zeros((self.size, 0))
        return [row.astype("<u4").tobytes()[:n] for row, n in zip(found, lengths, strict=True)]

    def attempt(self, what: str, work: Callable[[], T], told: Any = None) -> T:
        """Return ``work()``; if it fails on any rank, all ranks raise its error.

        They also raise if what they have ``told`` differs; it must print the same on all ranks.
        """
        found: Any = None
        error: Exception | None = None
        try:
            found = work()
        except Exception as failure:
            error = failure
        self.meet(what, error, signature=zlib.crc32(repr(told).encode()))
        return found

    def meet(
        self, what: str, error: Exception | None = None, *, signature: int = 0,
        shape: Sequence[int] | None = None,
    ) -> tuple[int, ...] | None:  # fmt: skip
        """Wait for all ranks, and return the shape that those have which have one.

        All ranks raise if one has an error, or if ``what`` they do, its ``signature`` or the
        shapes differ.
        """
        sizes = () if shape is None else tuple(shape)
        dimensions = -1 if shape is None else len(sizes)
        place = [zlib.crc32(what.encode()), error is not None, signature, dimensions]
        heads = self.gather(np.array([*place, *sizes, *[0] * (DIMENSIONS - len(sizes))], float))
        failed = np.flatnonzero(heads[:, 1])
        if failed.size:
            self._raise(error, int(failed[0]))
        shapes = {tuple(map(int, h[4 : 4 + int(h[3])])) for h in heads if h[3] >= 0}
        if len(np.unique(heads[:, [0, 2]], axis=0)) > 1 or len(shapes) > 1:
            doing = [text.decode() for text in self.gather_bytes(what.encode())]
            known = ", ".join(f"rank {i}: {text}" for i, text in enumerate(doing[:8]))
            raise CollectiveError(
                f"the ranks are not in step ({known}). Call the same methods with the same options "
                "on every rank, with the same versions of the libraries"
            )
        return shapes.pop() if shapes else None

    def _raise(self, error: Exception | None, failed: int) -> None:
        """Raise the error of the first rank that failed, on all ranks."""
        text = b""
        if error is not None:
            known = [name for name, kind in KNOWN.items() if isinstance(error, kind)]
            said = str(error) if known else f"{type(error).__name__}: {error}"
            text = f"{known[0] if known else ''}\n{said}".encode(errors="replace")
        name, _, said = self.gather_bytes(text)[failed].decode().partition("\n")
        kind = KNOWN.get(name, RuntimeError)
        raise kind(f"rank {failed} of {self.size}: {said}") from error

    def _gather(self, values: Array) -> Array:
        if not self._met:
            self._met = True
            self._greet()
        if self._allgather is not None:
            return self._call(self._allgather, values, (self.size, values.size))
        slots = np.zeros((self.size, values.size))
        slots[self.rank] = values
        assert self._allreduce is not None
        total = self._call(self._allreduce, slots.reshape(-1), (slots.size,))
        return total.reshape(slots.shape)

    def _greet(self) -> None:
        """Check on first use that the ranks are numbered, and that the functions do their work."""
        found = self._gather(np.array([self.rank + 1.0, FINE]))
        if not np.array_equal(found[:, 0], np.arange(self.size) + 1.0):
            raise CollectiveError(
                f"rank {self.rank} of {self.size} gathered {found[:, 0].tolist()!r:.80} instead of "
                f"the numbers from 1 to {self.size}; allreduce must return the sum over all ranks, "
                "and every rank needs its own number"
            )
        if (found[:, 1] != FINE).any():
            raise CollectiveError(
                f"rank {self.rank} of {self.size} gathered {found[:, 1].tolist()!r:.80} instead of "
                f"{FINE!r}; allreduce and its like must sum and return float64"
            )
        if self._alltoall is not None:
            for_all = self.rank + self.size * np.arange(float(self.size))[:, None]
            got = self._call(self._alltoall, for_all, for_all.shape)[:, 0]
            if not np.array_equal(got, np.arange(self.size) + self.size * self.rank):
                raise CollectiveError(
                    f"rank {self.rank} of {self.size} got {got.tolist()!r:.80} from alltoall; its "
                    "row i must be the row that rank i has for this rank"
                )

    def _call(self, function: Exchange, values: Array, shape: tuple[int, ...]) -> Array:
        """Call a function of the user or of a library; its errors mean that a rank is gone."""
        try:
            found = np.array(function(values), dtype=float)  # which the function may use again
        except Exception as error:
            lines = str(error).strip().splitlines()
            said = f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__
            raise CollectiveError(
                f"rank {self.rank} of {self.size} cannot reach the others ({said}). Unless the "
                "function that connects them is at fault, another rank was killed, or did not "
                "answer in time; look at its log. A fit with checkpoint continues if all ranks are "
                "started again"
            ) from error
        if found.shape != shape:
            raise CollectiveError(
                f"the ranks exchanged an array of shape {found.shape} instead of {shape}; "
                "allreduce and its like must return an array of doubles of the shape they promise"
            )
        return found


class RankRows:
    """The rows of one rank; see :meth:`Collective.rows`."""

    def __init__(
        self, collective: Collective, X: Any, y: Any = None, groups: Any = None,
        sample_weight: Any = None,
    ) -> None:  # fmt: skip
        self.collective = collective
        self.X, self.y, self.groups, self.sample_weight = X, y, groups, sample_weight
        # The names that all ranks found, once the rows were opened.
        self.shared_names: list[str] | None = None

    def __repr__(self) -> str:
        return f"<rows of rank {self.collective.rank} of {self.collective.size}>"


def on_all_ranks(X: Any, what: str, work: Callable[[], T], told: Any = None) -> T:
    """Return ``work()``, as an attempt of all ranks if ``X`` are the rows of one of several."""
    return X.collective.attempt(what, work, told) if isinstance(X, RankRows) else work()


def in_order(parts: Array) -> Array:
    """Add up arrays of shape (size, m) in a tree whose shape depends only on their number.

    >>> in_order(np.array([[1.0], [2.0], [4.0]]))
    array([7.])
    """
    rows = list(parts)
    with np.errstate(over="ignore", invalid="ignore"):  # the solver refuses or rescales such rows
        while len(rows) > 1:
            pairs = [a + b for a, b in zip(rows[::2], rows[1::2], strict=False)]
            rows = pairs + rows[len(rows) - len(rows) % 2 :]
        return rows[0] + 0.0
