"""One training run, from settings to a folder that tells all about it.

Each step: a batch by the weights in force, its loss, a step of AdamW. Every so many steps: the loss
of every domain on two held-out splits. The one moves the weights, the other is reported.
"""

from __future__ import annotations

import logging
import math
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from counterpoise.common.progress import TrainBar
from counterpoise.common.stopping import Stopped, asked_to_stop, ignore_signals
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.evaluate import domain_losses, held_out
from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.lm.steering import Steering
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training.domains import (
    check_splits,
    domains_of,
    make_reweighter,
    named_weights,
)
from counterpoise.lm.training.losses import summed_loss, token_losses
from counterpoise.lm.training.model import make_model, save_tokenizer
from counterpoise.lm.training.optimizer import learning_rate, make_optimizer
from counterpoise.lm.training.ranks import Place, accumulating, spread, take_place
from counterpoise.lm.training.references import inputs_of
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import locked
from counterpoise.torch.distributed import group_sums, reduce_sums

logger = logging.getLogger("counterpoise")

STREAM = 1_000_003  # between the seeds of a seed's streams


def train(
    settings: Settings, out: str | os.PathLike[str] | None = None, *, progress: bool = True
) -> dict[str, Any]:
    """Train a model, or go on with a run that was stopped; returns ``result.json``.

    Parameters
    ----------
    settings : Settings
    out : path, optional
        The run's folder; ``settings.out`` when None.
    progress : bool
        Show a bar on a terminal.

    On several processes (torchrun) every one calls it. SIGTERM and an interrupt save a checkpoint
    after the step that is under way and raise `Stopped`; the same call then goes on from there, on
    a CPU with the same numbers to the last bit.
    """
    folder = RunFolder(Path(settings.out if out is None else out))
    with ExitStack() as stack:
        place = stack.enter_context(take_place(settings.train.threads))
        asked = stack.enter_context(asked_to_stop())
        done = folder.result
        if done is not None:
            folder.check(settings, inputs_of(settings))
            if place.first:
                logger.info("%s: this run has ended already", folder.path)
            return done
        folder.path.mkdir(parents=True, exist_ok=True)
        place.first_does(lambda: stack.enter_context(locked(folder.path)))
        run = Run(settings, folder, place)
        bar = TrainBar(run.train.tokens) if progress and place.first else None
        try:
            while run.step < run.train.steps:
                run.advance()
                if bar is not None:
                    bar(run.tokens, run.last_loss)
                if run.step < run.train.steps and place.any(bool(asked)):
                    run.save()
                    raise Stopped(f"stopped after {run.tokens:,} tokens; the same call goes on")
        finally:
            if bar is not None:
                bar.close()
        return run.finish()


class Run:
    """A model on its way through the steps."""

    def __init__(self, settings: Settings, folder: RunFolder, place: Place) -> None:
        self.settings, self.folder, self.place = settings, folder, place
        self.train = settings.train
        corpus = self.corpus = Corpus.open(settings.corpus.folder)
        domains = domains_of(settings, corpus)
        check_splits(settings, corpus)
        self.parts, micro = self.train.parts_of(place.world)
        inputs = inputs_of(settings)
        reweighter = make_reweighter(settings, domains, corpus, inputs["references"])
        self.by_loss = settings.reweight.weigh == "loss"
        self.mixture = MixtureDataset(
            corpus,
            self.train.length,
            weights=named_weights(settings.reweight.prior, domains, corpus),
            domains=domains,
            seed=self.train.seed + STREAM * self.train.stream,
            rank=place.rank,
            world_size=place.world,
        )
        self.held_out = {
            (split, name): samples
            for split in (settings.evaluate.driving, settings.evaluate.report)
            for name, samples in held_out(
                corpus,
                self.train.length,
                split=split,
                domains=domains,
                limit=settings.evaluate.sequences or None,
            ).items()
        }
        # Everything that can be wrong with the settings has been found by now, the model apart.
        surroundings = {
            "ranks": place.world,
            "device": place.device.type,
            "threads": torch.get_num_threads(),
        }
        place.first_does(lambda: folder.open(settings, inputs, surroundings))
        self.model = spread(make_model(settings, corpus), place, self.train)
        torch.manual_seed(STREAM * self.train.seed + place.rank)  # of dropout, where there is any
        self.optimizer = make_optimizer(self.model, self.train, place)
        self.proxy_of = _reference_model(settings, corpus, place)
        steered = None if self.by_loss else self.mixture
        self.steering = Steering(reweighter, steered, logs=[folder.weights])
        workers = self.train.workers
        self.loader = self.mixture.loader(
            micro, num_workers=workers, worker_init_fn=ignore_signals if workers else None
        )
        self.step, self.seconds, self.last_loss = 0, 0.0, math.nan
        self._resume()
        self.batches = iter(self.loader)
        if self.step == 0:
            self.evaluate()

    @property
    def tokens(self) -> int:
        return self.step * self.train.step_tokens

    def advance(self) -> None:
        """One step, and what is due after it."""
        began = time.perf_counter()
        rate = learning_rate(self.train, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        table, loss = self._gradients()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        table = reduce_sums(torch.cat([table, torch.stack([loss, loss]).reshape(2, 1)], dim=1))
        self.last_loss = float(table[0, -1]) / self.place.world
        if not (math.isfinite(self.last_loss) and math.isfinite(norm)):
            raise FloatingPointError(
                f"the loss is {self.last_loss} and the gradient's norm {norm} at step {self.step}; "
                "lower train.learning_rate, or look at the data. The last checkpoint stays."
            )
        if self.settings.reweight.losses == "batches":
            sums, counts = table[0, :-1].cpu().numpy(), table[1, :-1].cpu().numpy()
            losses = [s / n if n else math.nan for s, n in zip(sums, counts, strict=True)]
            self.steering.observe(losses, counts, self.step, absent_ok=True)
        self.seconds += time.perf_counter() - began
        if self.place.first:
            measured = {"loss": self.last_loss, "rate": rate, "norm": norm}
            self.folder.steps.append({"step": self.step, "tokens": self.tokens, **measured})
        due = self.step % self.train.evaluate_steps == 0
        if due or self.step == self.train.steps:
            self.evaluate(moving=due)
        if self.step % self.train.checkpoint_steps == 0 and self.step < self.train.steps:
            self.save()

    def _gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of a batch's loss; sums and counts of each domain's losses on this rank, and
        the mean loss."""
        K = len(self.mixture.domains)
        device = self.place.device
        table = torch.zeros(2, K, dtype=torch.float64, device=device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for part in range(self.parts):
            batch = {k: v.to(device) for k, v in next(self.batches).items()}
            ids, domain = batch["input_ids"], batch["domain"]
            with accumulating(self.model, part == self.parts - 1):
                with self.place.precise(self.train.precision):
                    losses = token_losses(self.model, ids)
                weighed = losses.mean(1)
                if self.by_loss:
                    ratio = self.steering.weights / self.mixture.weights
                    weighed = weighed * torch.as_tensor(ratio, device=device).float()[domain]
                (weighed.mean() / self.parts).backward()
            total += losses.detach().double().mean() / self.parts
            table += torch.stack(group_sums(self._shown(losses.detach(), ids), domain, K))
        return table, total

    def _shown(self, losses: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """What the rule is shown of a batch: losses, or by how much they exceed the model's that
        was trained before."""
        if self.proxy_of is None:
            return losses
        with torch.no_grad(), self.place.precise(self.train.precision):
            return (losses - token_losses(self.proxy_of, ids)).clamp(min=0)

    def evaluate(self, moving: bool = True) -> None:
        """Losses of both splits; the one moves the weights, the other is written down with it."""
        with self.place.precise(self.train.precision):
            found = domain_losses(
                self.model,
                self.held_out,
                batch_size=self.settings.evaluate.batch,
                loss=summed_loss,
                device=self.place.device,
            )
        if not all(map(math.isfinite, found.losses.values())):
            raise FloatingPointError(
                f"the held-out losses are {found.losses} after step {self.step}; lower "
                "train.learning_rate, or look at the data. The last checkpoint stays."
            )
        chosen = self.settings.evaluate
        by_split: dict[str, dict[str, float]] = {chosen.driving: {}, chosen.report: {}}
        for (split, name), loss in found.losses.items():
            by_split[split][name] = loss
        if moving and self.settings.reweight.losses == "evaluation":
            self.steering.observe(by_split[chosen.driving], step=self.step)
        if self.place.first:
            report = self.mixture.report()
            record = {
                "step": self.step,
                "tokens": self.tokens,
                "seconds": round(self.seconds, 3),
                "report": by_split[chosen.report],
                "driving": by_split[chosen.driving],
                "weights": self.steering.reweighter.as_dict(),
                "shares": {name: values["share"] for name, values in report.items()},
                "epochs": {name: values["epochs"] for name, values in report.items()},
            }
            self.folder.evaluations.append(record)

    def save(self) -> Path:
        state = {
            "identity": self.settings.identity,
            "seconds": self.seconds,
            "steering": self.steering.state_dict(),
            "mixture": self.mixture.state_dict(),
        }
        ends = self.step >= self.train.steps
        return checkpoints.save(
            self.folder.checkpoints,
            self.step,
            self.model,
            self.optimizer,
            state,
            self.place,
            keep=self.train.keep,
            regular=ends or self.step % self.train.checkpoint_steps == 0,
            keep_optimizers=self.train.keep_optimizers,
            with_optimizer=self.train.save_optimizer or not ends,
            beside=lambda draft: save_tokenizer(self.settings, self.corpus, draft),
        )

    def _resume(self) -> None:
        """Go on from the latest checkpoint, if there is one."""
        there = checkpoints.found(self.folder.checkpoints)
        if there:
            state = checkpoints.restore(there[-1], self.model, self.optimizer, self.place)
            self.step, self.seconds = int(state["step"]), float(state["seconds"])
            whole = (there[-1] / checkpoints.OPTIMIZER).is_file()
            if not whole and self.step < self.train.steps:
                raise ValueError(f"{str(there[-1])!r} holds no optimizer, so it cannot go on")
            self.steering.load_state_dict(state["steering"])
            self.mixture.load_state_dict(state["mixture"])
            logger.info("goes on after %s tokens", f"{self.tokens:,}")
        if self.place.first:
            self.folder.rewind(self.step if there else -1)
            for log in () if there else self.steering.logs:
                log.rewind(0, 0)
        self.place.wait()

    def finish(self) -> dict[str, Any]:
        """Save the model and say what the run ended with."""
        path = self.save()
        self.place.first_does(lambda: self.folder.finish(self._result(path)))
        return self.folder.result or {}

    def _result(self, path: Path) -> dict[str, Any]:
        last = self.folder.evaluations.read()[-1]
        reweighter = self.steering.reweighter
        average = dict(zip(reweighter.domains, reweighter.average_weights.tolist(), strict=True))
        return {
            "model": path.relative_to(self.folder.path).as_posix(),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "steps": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "tokens_per_second": round(self.tokens / max(self.seconds, 1e-9), 1),
            "losses": last["report"],
            "driving_losses": last["driving"],
            "average_loss": sum(last["report"].values()) / len(last["report"]),
            "worst_loss": max(last["report"].values()),
            "weights": last["weights"],
            "average_weights": average,
            "projections": reweighter.projections,
        }


def _reference_model(settings: Settings, corpus: Corpus, place: Place) -> Any:
    """The model whose token losses a proxy's are compared with."""
    if settings.reweight.reference_model is None:
        return None
    changes = {
        "model": {"checkpoint": settings.reweight.reference_model},
        "reweight.reference_model": None,
        "train.activation_checkpointing": False,
    }
    try:
        model = make_model(settings.changed(changes), corpus).to(place.device)
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(f"reweight.reference_model: {error}") from None
    return model.eval().requires_grad_(False)
