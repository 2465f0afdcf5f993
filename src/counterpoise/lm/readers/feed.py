"""One source of a mixed stream: where it stands, and how it continues from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

Name = str | int


class Feed:
    """Samples of one source, drawn one at a time.

    A source with ``state_dict`` and ``load_state_dict`` resumes by them: after
    ``load_state_dict``, its next iteration must continue where the state was taken. Any other
    source is read from its start again, up to where it was, so it must give the same samples in
    the same order.
    """

    def __init__(self, name: Name, source: Iterable[Any]) -> None:
        if not hasattr(source, "__iter__"):
            raise TypeError(
                f"sources must be iterables; domain {name!r} has {type(source).__name__}. Call it "
                "if it is a function that makes one"
            )
        self.name, self.source = name, source
        self.stateful = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self.taken = 0  # samples of this epoch
        self.epoch = 0
        self._samples: Iterator[Any] | None = None
        self._loaded: Any = None  # the state that holds until the next sample is drawn
        self._read = False  # whether the source was ever read from

    def draw(self, again: bool) -> Any:
        """Return the next sample; at the end, start again or raise StopIteration."""
        try:
            sample = next(self._open())
        except StopIteration:
            if not again:
                raise
            self._restart()
            sample = self._first()
        self.taken += 1
        self._loaded = None
        return sample

    def state_dict(self) -> dict[str, Any]:
        """Return where the source stands."""
        state = self._loaded
        if state is None and self.stateful and self.taken:
            state = self.source.state_dict()  # type: ignore[attr-defined]
        return {"taken": self.taken, "epoch": self.epoch, "state": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was taken."""
        self.taken, self.epoch = int(state["taken"]), int(state["epoch"])
        self._loaded, self._samples = state["state"], None

    def _open(self) -> Iterator[Any]:
        if self._samples is None:
            resumes = self.stateful and self._loaded is not None
            if resumes:
                self.source.load_state_dict(self._loaded)  # type: ignore[attr-defined]
            self._samples = self._begun()
            if not resumes and sum(1 for _ in islice(self._samples, self.taken)) < self.taken:
                raise ValueError(
                    f"the state is {self.taken} samples into domain {self.name!r}, but its source "
                    "has fewer; give the sources that the state was saved with"
                )
        return self._samples

    def _begun(self) -> Iterator[Any]:
        samples = iter(self.source)
        if samples is self.source and self._read:
            raise ValueError(
                f"the source of domain {self.name!r} is an iterator, which cannot start again; "
                "give an iterable such as a list, or set exhaustion='drop' or 'stop'"
            )
        self._read = True
        return samples

    def _restart(self) -> None:
        self._loaded, self.taken = None, 0
        self.epoch += 1
        self._samples = self._begun()

    def _first(self) -> Any:
        try:
            return next(self._open())
        except StopIteration:
            raise ValueError(
                f"the source of domain {self.name!r} is empty; leave the domain out"
            ) from None
