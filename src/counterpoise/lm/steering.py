"""`Steering`: turn evaluation losses into the mixture's weights, log them and save them.

It is the only object of this package that a training loop has to call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoise.lm.logs import get_logs
from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.lm.sealed import read_sealed, seal
from counterpoise.reweight.reweighter import Reweighter
from counterpoise.storage.files import write_text
from counterpoise.torch.distributed import rank_of, reduce_checked

Array = np.ndarray

STATE_VERSION = 1


class Steering:
    """A `Reweighter` that steers a `MixtureDataset`.

    Parameters
    ----------
    reweighter : Reweighter
        Its weights become the mixture's, from the first sample on.
    mixture : MixtureDataset, optional
        Without one, the caller applies the weights.
    update_at_start : bool, default False
        Whether an evaluation at step 0, before the first batch, moves the weights, as it does in
        LLM-Shearing.
    logs : paths or Log objects, optional
        Rank 0 writes to them after every update. ``*.jsonl`` means JSON lines; any other path is
        a folder for TensorBoard.
    group : optional
        Process group of torch.distributed.

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
        reweighter: Reweighter,
        mixture: MixtureDataset | None = None,
        *,
        update_at_start: bool = False,
        logs: Any = (),
        group: Any = None,
    ) -> None:
        self.reweighter, self.mixture, self.group = reweighter, mixture, group
        self.logs = get_logs(logs)
        if mixture is not None:
            if set(mixture.domains) != set(reweighter.domains):
                raise ValueError(
                    f"the mixture has domains {mixture.domains!r}, the reweighter "
                    f"{list(reweighter.domains)!r}; use Reweighter(mixture.domains, ...)"
                )
            mixture.set_weights(reweighter.as_dict())
        if update_at_start and reweighter.updates == 0:
            reweighter.begin_run(-1)

    @property
    def weights(self) -> Array:
        return self.reweighter.weights.copy()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reweighter!r}, mixture={self.mixture!r})"

    def observe(
        self,
        losses: Any,
        counts: Any = None,
        step: int | None = None,
        *,
        absent_ok: bool = False,
    ) -> Array:
        """Update the weights from losses, pass them to the mixture and log them.

        Takes the arguments of `Reweighter.update`. Every rank must call it with the same losses;
        ranks whose weights then differ raise an error.
        """
        before = self.reweighter.updates
        weights = self.reweighter.update(losses, counts, step, absent_ok=absent_ok)
        if self.reweighter.updates == before:
            return weights
        reduce_checked(torch.zeros(1, dtype=torch.float64), weights.tobytes(), self.group)
        if self.mixture is not None:
            self.mixture.set_weights(self.reweighter.as_dict())
        if self.logs and rank_of() == 0:
            record = self.record()
            for log in self.logs:
                log.write(record)
        return weights

    def record(self) -> dict[str, Any]:
        """Describe the last update: losses, weights and what the mixture has drawn, by domain."""
        last = self.reweighter.last
        if last is None:
            raise RuntimeError("there is no update to describe yet; call observe() first")
        given: Mapping[Any, Any] = {} if self.mixture is None else self.mixture.report()
        columns = {
            "loss": last.losses,
            "reference": last.reference,
            "excess": np.where(last.present, last.excess, np.nan),
            "weight": last.weights,
        }
        return {
            "update": self.reweighter.updates,
            "step": self.reweighter.updates if last.step is None else int(last.step),
            "domains": {
                name: {**given.get(name, {}), **{k: float(v[i]) for k, v in columns.items()}}
                for i, name in enumerate(self.reweighter.domains)
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of reweighter and mixture as plain JSON, the same on all ranks."""
        mixture = None if self.mixture is None else self.mixture.state_dict()
        return {
            "version": STATE_VERSION,
            "reweighter": self.reweighter.state_dict(),
            "mixture": mixture,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; logs drop what was written after it."""
        version = state.get("version")
        if version != STATE_VERSION:
            raise ValueError(f"state has version {version!r}; this release reads {STATE_VERSION}")
        if self.mixture is not None and state["mixture"] is None:
            raise ValueError(
                "state holds no mixture, but this Steering has one; load a state that was saved "
                "with a mixture"
            )
        self.restore(state["reweighter"], state["mixture"])

    def restore(
        self, reweighter: Mapping[str, Any], mixture: Mapping[str, Any] | None = None
    ) -> None:
        """Resume from states of the reweighter and the mixture; both load, or neither."""
        old = self.reweighter.state_dict()
        self.reweighter.load_state_dict(reweighter)
        if self.mixture is not None and mixture is not None:
            try:
                self.mixture.load_state_dict(mixture)
            except BaseException:
                self.reweighter.load_state_dict(old)
                raise
        if rank_of() == 0:
            for log in self.logs:
                log.rewind(self.reweighter.updates, self.reweighter.global_step)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, whole or not at all; only rank 0 writes."""
        if rank_of() == 0:
            text = json.dumps(seal(self.state_dict()), allow_nan=False)
            write_text(Path(path), text + "\n")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Resume from a file that `save` wrote; a damaged one is refused."""
        self.load_state_dict(read_sealed(Path(path), "restore it from a copy, or use another"))
