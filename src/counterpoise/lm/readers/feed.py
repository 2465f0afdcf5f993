"""One source of a mixed stream: where it stands, and how it continues from there."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

Name = str | int

# Samples of an epoch between states that are kept, in case the source raises an error.
KEEP_EVERY = 100


class Feed:
    """Samples of one source, drawn one at a time.

    A source with ``state_dict`` and ``load_state_dict`` resumes by them: after
    ``load_state_dict``, its next iteration must continue where the state was taken, and later ones
    must start anew. Any other source is read from its start again, up to where it was, so it must
    give the same samples in the same order.

    After an error in a source, the next draw resumes it in the same way, from a state before the
    error: its own state may then be past the sample that failed. An iterator without a state cannot
    be resumed, and every further draw is an error, too.
    """

    def __init__(self, name: Name, source: Iterable[Any]) -> None:
        if not hasattr(source, "__iter__"):
            raise TypeError(
                f"sources must be iterables; domain {name!r} has {type(source).__name__}. Call it "
                "if it is a function that makes one"
            )
        self.name, self.source = name, _restarting(source)
        self.stateful = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self.taken = 0  # samples of this epoch
        self.epoch = 0
        self._samples: Iterator[Any] | None = None
        # A state of the source in this epoch, and how many samples had been taken by then.
        self._kept: tuple[Any, int] = (None, 0)
        self._read = False  # whether the source was ever read from

    def draw(self, again: bool) -> Any:
        """Return the next sample; at the end, start again or raise StopIteration."""
        try:
            sample = self._next(again)
        except StopIteration:
            raise
        except BaseException:
            self._samples = None  # it may be dead, which would look like the end of the source
            raise
        self.taken += 1
        if self.stateful and self.taken % KEEP_EVERY == 1:
            self._kept = copy.deepcopy(self._state())  # a source may hand out its live state
        return sample

    def state_dict(self) -> dict[str, Any]:
        """Return where the source stands."""
        state, at = self._state()
        return {"taken": self.taken, "epoch": self.epoch, "state": state, "state_at": at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was taken."""
        self.taken, self.epoch = int(state["taken"]), int(state["epoch"])
        at = 0 if state["state"] is None else int(state.get("state_at", self.taken))
        self._kept, self._samples = (state["state"], at), None

    def _state(self) -> tuple[Any, int]:
        """Return the source's state and the number of samples before it, if there is one."""
        if self.stateful and self.taken and self._samples is not None:
            return self.source.state_dict(), self.taken
        return self._kept

    def _next(self, again: bool) -> Any:
        try:
            return next(self._open())
        except StopIteration:
            if not again:
                raise
            self._restart()
            return self._first()

    def _open(self) -> Iterator[Any]:
        if self._samples is None:
            state, at = self._kept if self.stateful else (None, 0)
            if state is not None:
                self.source.load_state_dict(state)
            samples = self._begun(resumes=state is not None)
            if sum(1 for _ in islice(samples, self.taken - at)) < self.taken - at:
                raise ValueError(
                    f"the state is {self.taken} samples into domain {self.name!r}, but its source "
                    "has fewer; give the sources that the state was saved with"
                )
            self._samples = samples
        return self._samples

    def _begun(self, resumes: bool = False) -> Iterator[Any]:
        samples = iter(self.source)
        if samples is self.source and self._read and not resumes:
            raise ValueError(
                f"the source of domain {self.name!r} is an iterator, which cannot start again "
                "after its end or an error; give an iterable, such as a list"
            )
        self._read = True
        return samples

    def _restart(self) -> None:
        self._kept, self.taken = (None, 0), 0
        self.epoch += 1
        self._samples = self._begun()

    def _first(self) -> Any:
        try:
            return next(self._open())
        except StopIteration:
            raise ValueError(
                f"the source of domain {self.name!r} is empty; leave the domain out"
            ) from None


class Restarting:
    """A streamed dataset each of whose iterations starts anew, or where a state was taken.

    The datasets of Hugging Face begin every later iteration where a state was loaded once.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._start: Any = None

    def __iter__(self) -> Iterator[Any]:
        start, self._start = self._start, None
        self.dataset.load_state_dict(start)
        return iter(self.dataset)

    def state_dict(self) -> Any:
        return self.dataset.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self._start = state


def _restarting(source: Any) -> Any:
    datasets = sys.modules.get("datasets")  # without it, no source is of it
    streamed = getattr(datasets, "IterableDataset", None)
    keeps = isinstance(streamed, type) and isinstance(source, streamed)
    return Restarting(source) if keeps else source
