"""Composer: a callback that replaces LLM-Shearing's dynamic loading callback.

Composer pins older releases of torch, so it is not installed with Counterpoise. Use this module in
an environment that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.lm.steering import Steering
from counterpoise.reweight.reweighter import Reweighter

try:
    from composer import Callback
except ImportError:
    Callback = None


class DynamicLoadingCallback(Callback or object):  # type: ignore[misc]
    """Update the weights after each evaluation and hand them to the data.

    Parameters
    ----------
    reweighter : Reweighter
        ``reference`` replaces ``target_loss``, ``start`` replaces ``proportion``, and ``domains``
        replaces ``set_names``.
    mixture : MixtureDataset, optional
        Receives the weights. Without one, ``state.train_dataloader.dataset.update_proportion``
        does, as in LLM-Shearing's streaming dataset.
    metric : str, default "{domain}_LanguageCrossEntropy"
        Name of a domain's loss among the metrics of the evaluator.
    evaluator : str, default "eval"
    update_at_start : bool, default False
        Whether an evaluation before the first batch moves the weights, as LLM-Shearing's callback
        does.
    logs : optional
        See `Steering`.
    """

    def __init__(
        self,
        reweighter: Reweighter,
        mixture: MixtureDataset | None = None,
        *,
        metric: str = "{domain}_LanguageCrossEntropy",
        evaluator: str = "eval",
        update_at_start: bool = False,
        logs: Any = (),
    ) -> None:
        if Callback is None:
            raise ImportError(
                "DynamicLoadingCallback needs MosaicML Composer: pip install mosaicml (it pins "
                "older releases of torch). Without it use the callback of another framework, or a "
                "plain loop."
            )
        self.steering = Steering(reweighter, mixture, update_at_start=update_at_start, logs=logs)
        self.metric, self.evaluator = metric, evaluator

    def fit_start(self, state: Any, logger: Any) -> None:
        self._hand_on(state)

    def eval_end(self, state: Any, logger: Any) -> None:
        metrics = state.eval_metrics[self.evaluator]
        losses = {}
        for name in self.steering.reweighter.domains:
            key = self.metric.format(domain=name)
            if key not in metrics:
                raise ValueError(
                    f"metric={self.metric!r}: evaluator {self.evaluator!r} has no {key!r}; it has "
                    f"{sorted(metrics)[:10]!r}"
                )
            losses[name] = float(metrics[key].compute())
        weights = self.steering.observe(losses, step=int(state.timestamp.batch.value))
        self._hand_on(state)
        pairs = zip(self.steering.reweighter.domains, weights.tolist(), strict=True)
        logger.log_metrics({f"metrics/train/{name}_weight": weight for name, weight in pairs})

    def state_dict(self) -> dict[str, Any]:
        return self.steering.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steering.load_state_dict(state)

    def _hand_on(self, state: Any) -> None:
        if self.steering.mixture is None:
            state.train_dataloader.dataset.update_proportion(self.steering.weights.tolist())
