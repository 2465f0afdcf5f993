"""Steering as a process of its own: losses come in as lines of a file, weights go out as a file.

A trainer in any language writes what it measured and reads the weights; it needs nothing of this
package. What was done is kept beside the weights, so a watcher that is killed and started again
publishes what it would have published.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from counterpoise.common.arguments import is_number
from counterpoise.common.stopping import Stopped, asked_to_stop
from counterpoise.common.toml import as_table, build
from counterpoise.lm.loss_lines import LossFile, LossLine, parse_losses
from counterpoise.lm.published import PublishedWeights, Publisher, get_publisher, is_of
from counterpoise.lm.sealed import read_sealed, write_sealed
from counterpoise.lm.training.domains import reweighter_of
from counterpoise.lm.training.settings import ReferenceSettings, ReweightSettings
from counterpoise.reweight.reweighter import Reweighter
from counterpoise.storage.files import locked

logger = logging.getLogger("counterpoise")

FORMAT = "counterpoise watcher"
VERSION = 1
INTERVAL = 1.0  # seconds between looks at the file of losses
PATIENCE = 0.1  # seconds within which a request to stop is noticed

Tell = Callable[[PublishedWeights], None]


class Progress(NamedTuple):
    """What is known after a line that was read to its end."""

    read: dict[str, int]
    reweighter: dict[str, Any]
    weights: PublishedWeights


class Watcher:
    """Weights that follow the losses in a growing file.

    Parameters
    ----------
    losses : path
        Lines ``{"step": 400, "losses": {"web": 2.9, "code": 1.4}}``, by rising step. Optional
        entries are ``counts``, ``errors``, ``pieces`` and ``total``, as in `Reweighter.update`. A
        loss may be null.
    publish : path or Publisher
        File of the weights. The watcher's state is beside it, in ``weights.state.json``.
    settings : ReweightSettings, optional
        Rule and options, as in ``[reweight]`` of a configuration.
    domains : sequence of str, optional
        Those of the prior, the start or the references if not given, and otherwise those of the
        first line of losses, before which nothing is published.
    references : mapping, optional
        Loss that each domain can be expected to reach.
    """

    def __init__(
        self,
        losses: str | os.PathLike[str],
        publish: str | os.PathLike[str] | Publisher,
        settings: ReweightSettings | None = None,
        *,
        domains: Sequence[str] | None = None,
        references: Mapping[str, float] | None = None,
    ) -> None:
        publisher = get_publisher(publish)
        if publisher is None:
            raise TypeError("publish must be a path or a Publisher; got None")
        self.publisher = publisher
        self.settings = ReweightSettings() if settings is None else settings
        if self.settings.reference_model is not None:
            raise ValueError(
                "reweight.reference_model needs the tokens of batches, which a watcher does not "
                "see; give it reference losses by domain"
            )
        self.references = None if references is None else dict(references)
        self._check_paths(Path(losses))
        named = [domains, self.settings.prior, self.settings.start, self.references]
        known = next((names for names in named if names and not isinstance(names, str)), None)
        self._domains = None if known is None else list(known)
        self._kept: Progress | None = None  # after the last whole line
        self._saved: Progress | None = None  # in the state
        self._shown: PublishedWeights | None = None  # in the file of weights
        self._begin(losses)

    @property
    def state_path(self) -> Path:
        return self.publisher.path.with_suffix(".state.json")

    def start(self) -> None:
        """Continue from the state, if there is one, and publish the weights.

        If there are losses to read, the weights are published after the last of them, because
        readers refuse weights that go back. Later weights in the file stay until a line of losses
        makes an update.
        """
        self._begin(self.losses.path)
        if self.state_path.exists():
            self._resume()
        if self.reweighter is None:
            return
        self.publisher.check(self.reweighter.domains)
        self._keep(self.reweighter)
        self._saved = self._kept
        if not self.losses.pending():
            self._publish()

    def advance(self, tell: Tell | None = None) -> int:
        """Read what is new in the file of losses; return the number of lines.

        A long file is read in parts, one a call. The weights of the last line are published when
        there are no more. ``tell`` is called after every update. An error in a line counts for
        nothing: the lines before it are kept.
        """
        before = self.losses.lines
        try:
            self._read(tell)
        except Exception:
            if self._kept is not None and not self._goes_back(self._kept.weights):
                self._publish()
            raise
        if not self.losses.behind:
            self._publish()
        return self.losses.lines - before

    def _begin(self, losses: str | os.PathLike[str]) -> None:
        """Begin with the first line and, if the domains are known, with the first weights."""
        self.losses = LossFile(losses)
        known = self._domains
        self.reweighter = None if known is None else self._made(known)
        self._kept = self._saved = None
        self._shown = None

    def _made(self, domains: list[str]) -> Reweighter:
        if self.references is not None and set(self.references) != set(domains):
            raise ValueError(
                f"references name {sorted(self.references)!r}, but the domains are "
                f"{sorted(domains)!r}; give one to each"
            )
        reweighter = reweighter_of(self.settings, domains, None, self.references)
        if self.settings.update_at_start or reweighter.rule.measures:
            reweighter.begin_run(-1)
        return reweighter

    def _read(self, tell: Tell | None) -> None:
        """Follow the pending lines; whatever happens, save how far the last whole one led."""
        try:
            for line in self.losses.pending():
                updated = self._follow(line)
                self.losses.count(line)
                if self.reweighter is not None:
                    self._keep(self.reweighter)
                if updated and tell is not None and self._kept is not None:
                    tell(self._kept.weights)
        finally:
            self._save()

    def _follow(self, line: bytes) -> bool:
        """Update the weights by a line; return whether it made an update."""
        if not line.strip():
            return False
        where = f"{str(self.losses.path)!r}, line {self.losses.lines + 1}"
        try:
            read = parse_losses(line)
        except ValueError as error:
            raise ValueError(f"{where}: {error}. Correct or remove the line") from None
        reweighter = self.reweighter or self._first(list(read.losses))
        before = reweighter.updates
        if read.step < reweighter.global_step:
            raise ValueError(
                f"{where}: step {read.step} comes after step {reweighter.global_step}. If the "
                "trainer went back to a checkpoint, remove the lines after the checkpoint's step "
                f"and the file {str(self.state_path)!r}, and start again"
            )
        try:
            _update(reweighter, read, where)
        except ValueError as error:
            raise ValueError(
                f"{where}: {error}. Correct or remove the line; write null for a domain without a "
                "loss. Other domains need another file of weights"
            ) from None
        self.reweighter = reweighter
        return reweighter.updates > before

    def _first(self, domains: list[str]) -> Reweighter:
        """Make the reweighter of the domains that the first line names."""
        reweighter = self._made(domains)
        self.publisher.check(domains)
        return reweighter

    def _keep(self, reweighter: Reweighter) -> None:
        """Note how far the lines have led; an interrupted line leaves the note as it was."""
        found = PublishedWeights.of(reweighter, corpus=self.publisher.corpus)
        weights = replace(found, from_step=found.step + 1)  # every line has a step
        self._kept = Progress(self.losses.state_dict(), reweighter.state_dict(), weights)

    def _publish(self) -> None:
        if self._kept is None or self._kept.weights == self._shown:
            return
        weights = self._kept.weights
        if weights.update == 0 and self._goes_back(weights):
            logger.warning(
                "%s holds later weights; they stay until a line of losses makes an update",
                self.publisher.path,
            )
        else:
            self.publisher.publish(weights)
        self._shown = weights

    def _goes_back(self, weights: PublishedWeights) -> bool:
        return self.publisher.updates() > weights.update

    def _check_paths(self, losses: Path) -> None:
        """Raise ValueError if the weights or the state would replace the losses."""
        publish = self.publisher.path
        for path, what in ((publish, "weights"), (self.state_path, "the watcher's state")):
            if _same_file(losses, path):
                raise ValueError(
                    f"publish={str(publish)!r} would write {what} to {str(path)!r}, which is the "
                    "file of losses; give another name"
                )

    def _options(self) -> dict[str, Any]:
        """Return what must not change between two starts."""
        found = as_table(self.settings)
        return {**found, "references": self.references, "corpus": self.publisher.corpus}

    def _save(self) -> None:
        # Before the weights: if the process is killed in between, the next one publishes them.
        kept = self._kept
        if kept is None or kept is self._saved:
            return
        state = {
            "format": FORMAT,
            "version": VERSION,
            "options": self._options(),
            "domains": list(kept.weights.domains),
            "read": kept.read,
            "reweighter": kept.reweighter,
        }
        write_sealed(self.state_path, state)
        self._saved = kept

    def _resume(self) -> None:
        remedy = "remove it, and the watcher reads the file of losses anew"
        where = repr(str(self.state_path))
        try:
            state = read_sealed(
                self.state_path, remedy, kind=FORMAT, versions=(VERSION,), since=VERSION
            )
        except ValueError:
            if is_of(self.state_path, FORMAT):
                raise
            raise ValueError(
                f"{where}, where the watcher keeps its state, is another file; give another name "
                f"than publish={str(self.publisher.path)!r}"
            ) from None
        before, now = state["options"], self._options()
        for name in [*now, *before]:
            if before.get(name) != now.get(name):
                raise ValueError(
                    f"{where} is of a watcher with {name}={before.get(name)!r}, and this one has "
                    f"{now.get(name)!r}; give the same, or remove it to read the losses anew"
                )
        named = None if self.reweighter is None else sorted(map(str, self.reweighter.domains))
        if named not in (None, sorted(state["domains"])):
            raise ValueError(
                f"{where} is of the domains {state['domains']!r}, and this watcher has {named!r}; "
                "give the same, or another file of weights"
            )
        reweighter = self._made(state["domains"])
        reweighter.load_state_dict(state["reweighter"])
        self.losses.resume(state["read"])
        self.reweighter = reweighter
        logger.info("resumed after line %d of %s", self.losses.lines, self.losses.path)


def watch(
    watcher: Watcher, *, interval: float = INTERVAL, once: bool = False, tell: Tell | None = None
) -> None:
    """Follow the file of losses until asked to stop.

    After SIGTERM or Ctrl-C, what was read is saved and `counterpoise.common.stopping.Stopped` is
    raised; the same call continues from there. A second request raises KeyboardInterrupt at once:
    the line that is being read then is not saved, and is read again.

    Parameters
    ----------
    watcher : Watcher
    interval : float, default 1.0
        Seconds between looks at the file.
    once : bool, default False
        Whether to return when all complete lines were read.
    tell : callable, optional
        Called with the `PublishedWeights` of every update.
    """
    if not is_number(interval) or not 0 < interval < float("inf"):
        raise ValueError(f"interval must be a positive number of seconds; got {interval!r}")
    path = watcher.losses.path
    with locked(watcher.publisher.path.absolute().parent), asked_to_stop() as asked:
        watcher.start()
        if once and not path.exists():
            raise FileNotFoundError(f"there is no file {str(path)!r}; check the path")
        while not asked:
            if watcher.advance(tell):
                continue
            if once:
                return
            wake = time.monotonic() + interval
            while not asked and (left := wake - time.monotonic()) > 0:
                time.sleep(min(left, PATIENCE))
    raise Stopped(
        f"stopped after line {watcher.losses.lines} of {str(path)!r}; the same command continues"
    )


def settings_of(
    table: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[ReweightSettings, dict[str, float] | None]:
    """Read ``[reweight]`` and ``[references]`` of a configuration, with changes by option."""
    given = {name: value for name, value in changes.items() if value is not None}
    losses = given.pop("references", None)
    reweight = {**table.get("reweight", {}), **given}
    found = build(ReweightSettings, reweight, "reweight")
    references = build(ReferenceSettings, dict(table.get("references", {})), "references")
    if losses is None and references.losses is None:
        for name in ("file", "model", "sizes"):
            if getattr(references, name) is not None:
                raise ValueError(
                    f"references.{name} is measured by a training run; give a watcher numbers, in "
                    "references.losses"
                )
    return found, losses or references.losses


def _update(reweighter: Reweighter, line: LossLine, where: str) -> None:
    """Update the weights; what the reweighter warns of goes to the log, with the line."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        reweighter.update(
            line.losses,
            line.counts,
            line.step,
            errors=line.errors,
            pieces=line.pieces,
            total=line.total,
        )
    for warning in told:
        logger.warning("%s: %s", where, warning.message)


def _same_file(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()
