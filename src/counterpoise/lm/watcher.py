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
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import is_number
from counterpoise.common.stopping import Stopped, asked_to_stop
from counterpoise.common.toml import as_table, build
from counterpoise.lm.loss_lines import LossFile, LossLine, parse_losses
from counterpoise.lm.published import PublishedWeights, Publisher, get_publisher
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


class Watcher:
    """Weights that follow the losses in a growing file.

    Parameters
    ----------
    losses : path
        Lines ``{"step": 400, "losses": {"web": 2.9, "code": 1.4}}``, by rising step. Optional
        entries are ``counts``, ``errors`` and ``total``, as in `Reweighter.update`. A loss may be
        null.
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
        self.losses = LossFile(losses)
        self.reweighter: Reweighter | None = None
        named = [domains, self.settings.prior, self.settings.start, self.references]
        known = next((names for names in named if names and not isinstance(names, str)), None)
        if known is not None:
            self._begin(list(known))

    @property
    def state_path(self) -> Path:
        return self.publisher.path.with_suffix(".state.json")

    def start(self) -> None:
        """Continue from the state, if there is one, and publish the weights."""
        if self.state_path.exists():
            self._resume()
        if self.reweighter is not None:
            self.publisher.check(self.reweighter.domains)
            self._publish(self.reweighter)

    def advance(self, tell: Tell | None = None) -> int:
        """Read what is new in the file of losses; return the number of lines.

        The weights of the last line are published. ``tell`` is called after every update. An error
        in a line counts for nothing: the lines before it are kept.
        """
        done = 0
        try:
            for line in self.losses.pending():
                self._follow(line, tell)
                self.losses.count(line)
                done += 1
        finally:
            if done and self.reweighter is not None:
                self._save(self.reweighter)
                self._publish(self.reweighter)
        return done

    def _begin(self, domains: list[str]) -> Reweighter:
        if self.references is not None and set(self.references) != set(domains):
            raise ValueError(
                f"references name {sorted(self.references)!r}, but the domains are "
                f"{sorted(domains)!r}; give one to each"
            )
        self.reweighter = reweighter_of(self.settings, domains, None, self.references)
        if self.settings.update_at_start or self.reweighter.rule.measures:
            self.reweighter.begin_run(-1)
        return self.reweighter

    def _follow(self, line: bytes, tell: Tell | None) -> None:
        if not line.strip():
            return
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
        if reweighter.updates > before and tell is not None:
            tell(self._described(reweighter))

    def _first(self, domains: list[str]) -> Reweighter:
        """Make the reweighter of the domains that the first line names."""
        reweighter = self._begin(domains)
        self.publisher.check(domains)
        return reweighter

    def _described(self, reweighter: Reweighter) -> PublishedWeights:
        return PublishedWeights.of(reweighter, corpus=self.publisher.corpus)

    def _publish(self, reweighter: Reweighter) -> None:
        self.publisher.publish(self._described(reweighter))

    def _options(self) -> dict[str, Any]:
        """Return what must not change between two starts."""
        found = as_table(self.settings)
        return {**found, "references": self.references, "corpus": self.publisher.corpus}

    def _save(self, reweighter: Reweighter) -> None:
        # Before the weights: if the process is killed in between, the next one publishes them.
        state = {
            "format": FORMAT,
            "version": VERSION,
            "options": self._options(),
            "domains": list(reweighter.domains),
            "read": self.losses.state_dict(),
            "reweighter": reweighter.state_dict(),
        }
        write_sealed(self.state_path, state)

    def _resume(self) -> None:
        remedy = "remove it, and the watcher reads the file of losses anew"
        where = repr(str(self.state_path))
        state = read_sealed(
            self.state_path, remedy, kind=FORMAT, versions=(VERSION,), since=VERSION
        )
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
        reweighter = self._begin(state["domains"])
        self.losses.resume(state["read"])
        reweighter.load_state_dict(state["reweighter"])
        logger.info("resumed after line %d of %s", self.losses.lines, self.losses.path)


def watch(
    watcher: Watcher, *, interval: float = INTERVAL, once: bool = False, tell: Tell | None = None
) -> None:
    """Follow the file of losses until asked to stop.

    After SIGTERM or Ctrl-C, what was read is saved and `counterpoise.common.stopping.Stopped` is
    raised; the same call continues from there.

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
        reweighter.update(line.losses, line.counts, line.step, errors=line.errors, total=line.total)
    for warning in told:
        logger.warning("%s: %s", where, warning.message)
