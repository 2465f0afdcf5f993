"""Weights as a small file that any loader can read: `PublishedWeights`.

One process writes the file and replaces it whole, so a reader finds the old weights or the new
ones, never a mixture of both. This module needs no torch, so that a process that only loads data
stays light.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.common.arguments import check_weights, check_whole
from counterpoise.lm.sealed import read_sealed, write_sealed
from counterpoise.reweight.checks import check_domains
from counterpoise.storage.files import read_regular

if TYPE_CHECKING:
    from counterpoise.lm.corpus.tokens import Tokens
    from counterpoise.reweight.reweighter import Reweighter

Array = np.ndarray

FORMAT = "counterpoise weights"
VERSION = 1
REMEDY = "remove it, and start the run that publishes it again"
# Nanoseconds within which two versions of a file may have one time: FAT counts in steps of 2 s.
COARSE = 4_000_000_000

Name = str | int


@dataclass(frozen=True)
class PublishedWeights:
    """Weights of domains, and from when on they hold.

    Parameters
    ----------
    weights : mapping of str or int to float
        A probability for each domain; zeros are allowed.
    update : int
        Number of updates of the weights so far; 0 for the first weights.
    step : int
        Training step of the losses behind the last update; 0 if steps are not counted.
    from_step : int or None
        First training step that the weights are meant for; None if it is not known, because the
        last update was made without a step.
    from_sample : int or None
        First sample that the weights hold for, if the publisher numbers samples. Then
        ``from_step`` is None.
    corpus : str or None
        Identity of the corpus, any text. Readers refuse weights of another one.

    Examples
    --------
    >>> PublishedWeights({"web": 0.25, "code": 0.75}, update=4, step=400, from_step=401).domains
    ('web', 'code')
    """

    weights: Mapping[Any, float]
    update: int
    step: int = 0
    from_step: int | None = None
    from_sample: int | None = None
    corpus: str | None = None

    def __post_init__(self) -> None:
        names = check_domains(self.weights)
        if len(set(map(str, names))) < len(names):
            raise ValueError(
                f"domains must differ as text, too, because JSON has only such names; got {names!r}"
            )
        check_weights(self.weights, names, zeros=True)
        weights = {name: float(self.weights[name]) for name in names}
        object.__setattr__(self, "weights", weights)
        for field in ("update", "step", "from_step", "from_sample"):
            value = getattr(self, field)
            if value is not None or field in ("update", "step"):
                object.__setattr__(self, field, check_whole(field, value))
        if self.corpus is not None and not isinstance(self.corpus, str):
            raise TypeError(f"corpus must be text that names the corpus; got {self.corpus!r}")

    @classmethod
    def of(
        cls,
        reweighter: Reweighter,
        *,
        weights: Mapping[Any, float] | None = None,
        from_sample: int | None = None,
        corpus: str | None = None,
    ) -> PublishedWeights:
        """Describe a reweighter's weights, or other ones that it led to."""
        step = max(reweighter.global_step, 0)
        known = from_sample is None and _knows_step(reweighter)
        return cls(
            reweighter.as_dict() if weights is None else weights,
            update=reweighter.updates,
            step=step,
            from_step=step + 1 if known else None,
            from_sample=from_sample,
            corpus=corpus,
        )

    @property
    def domains(self) -> tuple[Name, ...]:
        return tuple(self.weights)

    def array(self, domains: Iterable[Name]) -> Array:
        """Return the weights in the order of ``domains``."""
        return check_weights(self.weights, list(domains), zeros=True)

    def as_dict(self) -> dict[str, Any]:
        """Return the contents of the file, as plain JSON without its checksum."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "update": self.update,
            "step": self.step,
            "from_step": self.from_step,
            "from_sample": self.from_sample,
            "corpus": self.corpus,
            "domains": list(self.domains),
            "weights": {str(name): weight for name, weight in self.weights.items()},
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> PublishedWeights:
        """Make the weights that `as_dict` described."""
        try:
            names, numbers = found["domains"], found["weights"]
            if set(map(str, names)) != set(numbers):
                raise ValueError(f"domains {names!r} and weights {numbers!r} have other names")
            return cls(
                {name: numbers[str(name)] for name in names},
                **{k: found[k] for k in ("update", "step", "from_step", "from_sample", "corpus")},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"not published weights: {type(error).__name__} {error}; {REMEDY}"
            ) from None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace a file by these weights; a crash leaves the old file or the new one."""
        write_sealed(Path(path), self.as_dict())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PublishedWeights:
        """Read a file that `write` wrote; a damaged one is refused."""
        file = Path(path)
        if not file.exists():
            raise FileNotFoundError(
                f"there are no weights in {str(file)!r}; start the run that publishes them first, "
                "or correct the path"
            )
        try:
            found = read_sealed(file, REMEDY, kind=FORMAT, versions=(VERSION,), since=VERSION)
        except ValueError:
            if is_of(file, FORMAT):
                raise
            raise ValueError(
                f"{str(file)!r} is not a file of {FORMAT}; give another name, or move the file"
            ) from None
        try:
            return cls.from_dict(found)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{str(file)!r} holds no weights ({error}); {REMEDY}") from None

    def check_same(self, domains: Iterable[Name], corpus: str | None, where: str) -> None:
        """Raise ValueError unless the weights are of these domains and this corpus.

        A corpus that is not known on either side is not compared.
        """
        names = tuple(domains)
        gone = [name for name in names if name not in self.weights]
        new = [name for name in self.domains if name not in set(names)]
        if gone or new:
            changes = [f"lack {gone[:5]!r}"] * bool(gone) + [f"have {new[:5]!r}"] * bool(new)
            raise ValueError(
                f"the weights in {where} {' and '.join(changes)}, unlike the domains "
                f"{list(names)[:10]!r}; they belong to another run. Move the file, or give the "
                "same domains"
            )
        if None not in (corpus, self.corpus) and corpus != self.corpus:
            raise ValueError(
                f"the weights in {where} are of the corpus {self.corpus!r}, not of {corpus!r}; "
                "move the file, or use that corpus"
            )

    def check_follows(self, before: PublishedWeights, where: str) -> None:
        """Raise ValueError unless these weights can come after others in the same file."""
        self.check_same(before.domains, before.corpus, where)
        if before.corpus is not None and self.corpus is None:
            raise ValueError(
                f"the weights in {where} no longer name their corpus, {before.corpus!r}; let one "
                "run alone publish there"
            )
        for what in ("update", "step"):
            old, new = getattr(before, what), getattr(self, what)
            if new < old:
                raise ValueError(
                    f"the weights in {where} went back from {what} {old} to {new}: their run "
                    "resumed from a checkpoint, or another run publishes there. Start this reader "
                    "again, from its own state at that checkpoint"
                )
        if self.update == before.update and self.weights != before.weights:
            raise ValueError(
                f"the weights in {where} changed although they are still of update {self.update}: "
                "two runs publish there; give each a file of its own"
            )


class WeightsFile:
    """The newest weights in a file that another process replaces.

    Parameters
    ----------
    path : path
    domains : sequence of str or int
        Domains of the reader, in any order. A file of others is refused.
    corpus : str, optional
        Identity of the reader's corpus; that of the first weights read if not given.

    Attributes
    ----------
    current : PublishedWeights
        The weights that were read last.
    """

    def __init__(
        self, path: str | os.PathLike[str], domains: Iterable[Name], *, corpus: str | None = None
    ) -> None:
        self.path, self.domains, self.corpus = Path(path), tuple(domains), corpus
        self._mark = self._marked()  # before the contents, so that a replacement is noticed
        self.current = self._read()

    def newer(self) -> PublishedWeights | None:
        """Return the file's weights if they are new, and None otherwise.

        The file is read only if its time, size or place on disk has changed, or if it was written
        so shortly before that another version may have had the same.
        """
        mark = self._marked()
        if mark is not None and mark == self._mark:
            return None
        found = self._read()
        if found != self.current:
            found.check_follows(self.current, self._where)
        self._mark = mark  # weights that are refused stay refused
        if found == self.current:
            return None
        self.current = found
        return found

    def resume(self, seen: PublishedWeights) -> None:
        """Continue as a reader that has seen these weights last."""
        seen.check_same(self.domains, self.corpus, "this state")
        self.current, self._mark = seen, None

    def _read(self) -> PublishedWeights:
        found = PublishedWeights.read(self.path)
        found.check_same(self.domains, self.corpus, self._where)
        return found

    @property
    def _where(self) -> str:
        return repr(str(self.path))

    def _marked(self) -> tuple[int, ...] | None:
        """Return what tells one version of the file from the next; None if nothing does yet."""
        now = time.time_ns()
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        if status.st_mtime_ns > now - COARSE:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


class Publisher:
    """Where a run publishes its weights.

    Parameters
    ----------
    path : path
        The file, usually ``weights.json``. A file of other domains or of another corpus is not
        replaced.
    corpus : str, optional
        Identity of the corpus, any text. With a mixture, `Steering` finds it if it is not given.
    """

    def __init__(self, path: str | os.PathLike[str], *, corpus: str | None = None) -> None:
        if corpus is not None and not isinstance(corpus, str):
            raise TypeError(f"corpus must be text that names the corpus; got {corpus!r}")
        self.path, self.corpus = Path(path), corpus

    def check(self, domains: Iterable[Name]) -> None:
        """Raise ValueError if the file belongs to other domains or to another corpus."""
        if self.path.exists():
            old = PublishedWeights.read(self.path)
            old.check_same(domains, self.corpus, repr(str(self.path)))

    def updates(self) -> int:
        """Return the number of updates behind the weights in the file; -1 if there is none."""
        return PublishedWeights.read(self.path).update if self.path.exists() else -1

    def publish(self, published: PublishedWeights) -> None:
        """Replace the file."""
        published.write(self.path)

    def __repr__(self) -> str:
        return f"Publisher({str(self.path)!r}, corpus={self.corpus!r})"


def is_of(path: Path, kind: str) -> bool:
    """Return whether a file, damaged or not, is of a format rather than some other file."""
    return f'"{kind}"'.encode() in read_regular(path)


def get_publisher(publish: Any) -> Publisher | None:
    """Make a publisher of a path."""
    if publish is None or isinstance(publish, Publisher):
        return publish
    if isinstance(publish, (str, os.PathLike)):
        return Publisher(publish)
    raise TypeError(f"publish must be a path or a Publisher; got {publish!r}")


def corpus_identity(tokens: Mapping[str, Tokens]) -> str:
    """Return a digest of a corpus: the names, sizes and checksums of its domains."""
    known = {
        str(name): [of.split, of.n_tokens, of.n_documents, of.vocab_size, of.checksums]
        for name, of in tokens.items()
    }
    text = json.dumps(known, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _knows_step(reweighter: Reweighter) -> bool:
    """Return whether the last update, if there was one, was made with a step."""
    if reweighter.updates == 0:
        return True
    if reweighter.last is None:  # its state was restored
        return reweighter.global_step > 0
    return reweighter.last.step is not None
