"""`Steering`: evaluation losses in, weights to the mixture out, the whole of it logged and saved.

The one thing that a training loop, whoever owns it, has to call.
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
        Its weights are the mixture's from the first sample on.
    mixture : MixtureDataset, optional
        Without one, weights are for the caller to use.
    logs : paths or Log objects, optional
        Written by rank 0 after every update; ``*.jsonl`` is JSON lines, any other path a folder
        for TensorBoard.
    group : optional
        Process group of torch.distributed.
    """

    def __init__(
        self,
        reweighter: Reweighter,
        mixture: MixtureDataset | None = None,
        *,
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

    @property
    def weights(self) -> Array:
        return self.reweighter.weights

    def observe(
        self,
        losses: Any,
        counts: Any = None,
        step: int | None = None,
        *,
        absent_ok: bool = False,
    ) -> Array:
        """Update the weights from losses of this step, hand them to the mixture, log them.

        Arguments are those of `Reweighter.update`. Every rank calls it with the same losses; that
        all have the same weights afterwards is checked.
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
        """The last update, domain by domain, and what the mixture has given."""
        last = self.reweighter.last
        if last is None:
            raise RuntimeError("nothing has been observed yet; call observe() first")
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
        """State of the reweighter and of the mixture, plain JSON, the same on all ranks."""
        mixture = None if self.mixture is None else self.mixture.state_dict()
        return {
            "version": STATE_VERSION,
            "reweighter": self.reweighter.state_dict(),
            "mixture": mixture,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; JSON lines and TensorBoard forget what came after it."""
        version = state.get("version")
        if version != STATE_VERSION:
            raise ValueError(f"state has version {version!r}; this release reads {STATE_VERSION}")
        if self.mixture is not None and state["mixture"] is None:
            raise ValueError("state holds no mixture, and this Steering has one")
        old = self.reweighter.state_dict()
        self.reweighter.load_state_dict(state["reweighter"])
        if self.mixture is not None:
            try:
                self.mixture.load_state_dict(state["mixture"])
            except BaseException:
                self.reweighter.load_state_dict(old)
                raise
        if rank_of() == 0:
            for log in self.logs:
                log.rewind(self.reweighter.updates, self.reweighter.global_step)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, by rank 0, all or nothing."""
        if rank_of() == 0:
            write_text(Path(path), json.dumps(self.state_dict(), allow_nan=False) + "\n")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that `save` wrote."""
        self.load_state_dict(json.loads(Path(path).read_text(encoding="utf-8")))
