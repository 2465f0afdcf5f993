"""`Steering`: turn evaluation losses into the mixture's weights, log them and save them.

It is the only object of this package that a training loop has to call.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoise.common.arguments import check_version
from counterpoise.lm.drawing import Drawing
from counterpoise.lm.evaluate import DomainLosses
from counterpoise.lm.logs import get_logs
from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.lm.published import PublishedWeights, Publisher, corpus_identity, get_publisher
from counterpoise.lm.sealed import read_sealed, seal
from counterpoise.reweight.reweighter import Reweighter
from counterpoise.reweight.sampling import Sampling
from counterpoise.reweight.tags import Tags
from counterpoise.storage.files import write_text
from counterpoise.torch.distributed import rank_of, reduce_checked

Array = np.ndarray

STATE_VERSION = 1
# First weight of all groups together that have no rows yet.
LEAST = 1e-4

logger = logging.getLogger("counterpoise")


class Steering:
    """A `Reweighter` that steers a `MixtureDataset`.

    Parameters
    ----------
    reweighter : Reweighter, optional
        Its weights become the mixture's, from the first sample on. By default, one with the rule
        ``"adaptive"`` that starts from the mixture's weights or, with tags, from equal weights of
        the tags. Its first update makes all weights equal; pass a `Reweighter` with a ``prior``
        if others are to be pulled towards.
    mixture : MixtureDataset, optional
        Without one, the caller applies the weights.
    update_at_start : bool, optional
        Whether an evaluation at step 0, before the first batch, moves the weights, as it does in
        LLM-Shearing. By default it does for rules that measure their step, such as ``"adaptive"``.
    sampling : {"weights", "fixed", "variance"} or Sampling, default "weights"
        Shares that the mixture's samples are drawn by. ``"weights"`` draws by the weights, and
        every loss counts once. With the others, every loss counts as often as the entry
        ``loss_weight`` of its batch says. ``"fixed"`` draws by the shares that the mixture has;
        `Fixed` takes others. ``"variance"`` draws by those that give the weighted loss the least
        variance, as far as `ByVariance` lets them differ from the weights.
    tags : Tags, optional
        Tags that overlap are weighed, and samples are drawn by patterns of tags: the reweighter has
        the tags, the mixture the patterns. `observe` takes losses of patterns.
    logs : paths or Log objects, optional
        Rank 0 writes to them after every update. ``*.jsonl`` means JSON lines; any other path is
        a folder for TensorBoard.
    publish : path or Publisher, optional
        File to which rank 0 writes the weights for loaders that are not ours: at once (unless it
        holds a later update, as before a resume), after every update and when a state is restored.
        Give a `Publisher` to name the corpus.
    group : optional
        Process group of torch.distributed whose ranks must hold equal weights; all ranks if None.
        Leave it out for a mixture with a mesh: tensor-parallel ranks have to agree, too.

    Examples
    --------
    >>> steering = Steering(Reweighter(["web", "code"], extrapolation=0.0, smoothing=0.0))
    >>> steering.observe({"web": 2.0, "code": 3.0}, step=100).round(3).tolist()
    [0.269, 0.731]
    >>> print(steering)
    Steering(Reweighter({'web': 0.269, 'code': 0.731}, rule='pd-kl', updates=1, global_step=100), \
mixture=None)
    """

    def __init__(
        self,
        reweighter: Reweighter | None = None,
        mixture: MixtureDataset | None = None,
        *,
        update_at_start: bool | None = None,
        sampling: str | Sampling = "weights",
        tags: Tags | None = None,
        logs: Any = (),
        publish: str | os.PathLike[str] | Publisher | None = None,
        group: Any = None,
    ) -> None:
        if reweighter is None:
            reweighter = default_reweighter(mixture, tags)
        self.reweighter, self.mixture, self.group = reweighter, mixture, group
        self.logs = get_logs(logs)
        self.drawing = Drawing(sampling, reweighter.domains, mixture, tags)
        self.drawing.apply(reweighter.weights)
        if reweighter.updates == 0:
            moves = reweighter.rule.measures if update_at_start is None else update_at_start
            reweighter.begin_run(-1 if moves else 0, quiet=update_at_start is False)
        self.publisher = get_publisher(publish)
        if self.publisher is not None:
            if self.drawing.apart:
                raise ValueError(
                    f"publish={str(self.publisher.path)!r} tells others what to draw, but with "
                    f"sampling={self.drawing.sampling.name!r} losses must be weighed as well, and "
                    "the file has no factors; use sampling='weights'"
                )
            if self.publisher.corpus is None and isinstance(mixture, MixtureDataset):
                tokens = {samples.name: samples.tokens for samples in mixture.samples}
                self.publisher = Publisher(self.publisher.path, corpus=corpus_identity(tokens))
            self.publisher.check(self.drawing.domains)
            later = self.publisher.updates()
            if later > reweighter.updates:
                # A run that resumes restores its state next; readers must not see the start again.
                logger.warning(
                    "%s holds update %d; it stays until this run is restored or makes an update",
                    self.publisher.path, later,
                )  # fmt: skip
            else:
                self._publish()

    @property
    def weights(self) -> Array:
        return self.reweighter.weights.copy()

    @property
    def loss_factors(self) -> Array:
        """What the loss of a sample of each domain counts, if drawn by the latest shares.

        Samples that were drawn before carry their own factor: the ``loss_weight`` of their batch.
        """
        return self.drawing.loss_factors.copy()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reweighter!r}, mixture={self.mixture!r})"

    def observe(
        self,
        losses: Any,
        counts: Any = None,
        step: int | None = None,
        *,
        errors: Any = None,
        pieces: Any = None,
        spreads: Any = None,
        total: float | None = None,
        absent_ok: bool = False,
    ) -> Array:
        """Update the weights from losses, pass them to the mixture and log them.

        Takes the arguments of `Reweighter.update`, or what `domain_losses` returns in place of
        losses, counts, standard errors, pieces and spreads. Every rank must call it with the same
        losses; ranks whose weights then differ raise an error.

        ``sampling="variance"`` takes the standard deviation of losses within each domain from
        standard errors and counts, or from ``spreads``: any numbers in proportion to it, or norms
        of the domains' gradients.
        """
        if isinstance(losses, DomainLosses):
            pieces = losses.pieces or None
            if spreads is None and self.drawing.sampling.measures:
                spreads = losses.spreads or None
            losses, counts, errors = losses.losses, losses.counts, losses.errors
        spreads = self.drawing.measured(errors, counts, spreads)
        if self.drawing.tags is not None:
            losses, counts, errors, pieces = self.drawing.tagged(
                losses, counts, errors, pieces, total
            )
            total = None  # tokens with several tags count several times
        before = self.reweighter.updates
        weights = self.reweighter.update(
            losses, counts, step,
            errors=errors, pieces=pieces, total=total, absent_ok=absent_ok,
        )  # fmt: skip
        if self.reweighter.updates == before:
            return weights
        self.drawing.spreads = spreads
        same = weights.tobytes() + (spreads.tobytes() if self.drawing.apart else b"")
        reduce_checked(torch.zeros(1, dtype=torch.float64), same, self.group)
        self.drawing.apply(weights)
        self._publish()
        if self.logs and rank_of() == 0:
            record = self.record()
            for log in self.logs:
                log.write(record)
        return weights

    def published(self) -> PublishedWeights:
        """Return the current weights in the form in which they are published.

        With a mixture, they are those that it draws by, from the sample that it uses them on.
        """
        weights: dict[Any, float] | None = None
        at = None
        if self.mixture is not None:
            at, values, *_ = self.mixture.state_dict()["changes"][-1]
            weights = dict(zip(self.mixture.domains, values, strict=True))
        elif self.drawing.tags is not None:
            shares = self.drawing.shares.tolist()
            weights = dict(zip(self.drawing.domains, shares, strict=True))
        corpus = None if self.publisher is None else self.publisher.corpus
        return PublishedWeights.of(self.reweighter, weights=weights, from_sample=at, corpus=corpus)

    def _publish(self) -> None:
        if self.publisher is not None and rank_of() == 0:
            self.publisher.publish(self.published())

    def record(self) -> dict[str, Any]:
        """Describe the last update: losses, weights and what the mixture has drawn, by domain."""
        last = self.reweighter.last
        if last is None:
            raise RuntimeError("there is no update to describe yet; call observe() first")
        drawn = self.drawing.report()
        given = drawn if self.drawing.tags is None else {}
        columns = {
            "loss": last.losses,
            "reference": last.reference,
            "excess": np.where(last.present, last.excess, np.nan),
            "weight": last.weights,
        }
        if last.errors is not None:
            columns["error"] = last.errors
        record: dict[str, Any] = {
            "update": self.reweighter.updates,
            "step": self.reweighter.updates if last.step is None else int(last.step),
            "domains": {
                name: {**given.get(name, {}), **{k: float(v[i]) for k, v in columns.items()}}
                for i, name in enumerate(self.reweighter.domains)
            },
        }
        if self.drawing.tags is not None:
            record["patterns"] = drawn
        if self.drawing.apart:
            record["sampling"] = self.drawing.record()
        if self.reweighter.certifies:
            found = self.reweighter.certificate()
            record["certificate"] = {**found.as_dict(), "says": found.sentences()}
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return the state of reweighter and mixture as plain JSON, the same on all ranks."""
        mixture = None if self.mixture is None else self.mixture.state_dict()
        sampling = self.drawing.state_dict()
        return {
            "version": STATE_VERSION,
            "reweighter": self.reweighter.state_dict(),
            "mixture": mixture,
            **({} if sampling is None else {"sampling": sampling}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; logs drop what was written after it."""
        check_version(state, STATE_VERSION)
        if self.mixture is not None and state["mixture"] is None:
            raise ValueError(
                "state holds no mixture, but this Steering has one; load a state that was saved "
                "with a mixture"
            )
        self.restore(state["reweighter"], state["mixture"], state.get("sampling"))

    def restore(
        self,
        reweighter: Mapping[str, Any],
        mixture: Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        """Resume from states of the reweighter and the mixture; both load, or neither.

        ``sampling`` is there if samples were not drawn by the weights.
        """
        weighed = self.drawing.check_state(mixture, sampling)
        old = self.reweighter.state_dict()
        self.reweighter.load_state_dict(reweighter)
        if self.mixture is not None and mixture is not None:
            try:
                self.mixture.load_state_dict(mixture)
            except BaseException:
                self.reweighter.load_state_dict(old)
                raise
        self.drawing.restore(sampling, self.reweighter.weights, weighed)
        if rank_of() == 0:
            for log in self.logs:
                log.rewind(self.reweighter.updates, self.reweighter.global_step)
        self._publish()
        if self.publisher is not None:  # no rank reads before the first one has written
            reduce_checked(torch.zeros(1, dtype=torch.float64), b"", self.group)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, whole or not at all; only rank 0 writes."""
        if rank_of() == 0:
            text = json.dumps(seal(self.state_dict()), allow_nan=False)
            write_text(Path(path), text + "\n")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Resume from a file that `save` wrote; a damaged one is refused."""
        self.load_state_dict(read_sealed(Path(path), "restore it from a copy, or use another"))


def default_reweighter(mixture: MixtureDataset | None, tags: Tags | None = None) -> Reweighter:
    """Make the reweighter of a mixture that was given none."""
    if tags is not None:
        return Reweighter(tags.tags, "adaptive")
    if mixture is None:
        raise ValueError(
            "give a reweighter, Reweighter(names_of_the_domains, 'adaptive'), or a mixture to make "
            "one for"
        )
    start = mixture.weights
    if not start.all():
        if isinstance(mixture, MixtureDataset):
            off = mixture.domains[int(start.argmin())]
            raise ValueError(
                f"weights of the mixture: that of {off!r} is zero, and steering would draw it; "
                "leave the domain out (domains=), or pass a Reweighter with the weights to start "
                "from"
            )
        start = (1.0 - LEAST) * start + LEAST / len(start)  # groups that are empty for now
    return Reweighter(mixture.domains, "adaptive", start=start)
