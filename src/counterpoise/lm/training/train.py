"""Train one model, from settings to a folder that holds everything about the run.

Each step draws a batch by the current weights, computes its loss and takes a step of AdamW. Every
so many steps, each domain's loss is measured on two held-out splits: one moves the weights, the
other is reported.
"""

from __future__ import annotations

import gc
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
from counterpoise.lm.mixture.samples import LOSS_WEIGHT
from counterpoise.lm.sealed import DamagedFile
from counterpoise.lm.steering import Steering
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training.checked_inputs import checked_inputs
from counterpoise.lm.training.domains import (
    check_corpus_splits,
    domains_of,
    make_reweighter,
    make_sampling,
    named_weights,
)
from counterpoise.lm.training.inputs import inputs_of
from counterpoise.lm.training.integrity import read_state
from counterpoise.lm.training.losses import summed_losses, token_losses
from counterpoise.lm.training.model import make_model, save_tokenizer
from counterpoise.lm.training.optimizer import learning_rate, make_optimizer
from counterpoise.lm.training.placing import place_model
from counterpoise.lm.training.ranks import Process, gradient_sync, join_ranks
from counterpoise.lm.training.run_folder import OPTIMIZER, RunFolder
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import locked
from counterpoise.torch.distributed import group_sums, reduce_sums
from counterpoise.torch.weighing import wide_dtype

logger = logging.getLogger("counterpoise")

STREAM = 1_000_003  # between the seeds of a seed's streams


def train(
    settings: Settings, out: str | os.PathLike[str] | None = None, *, progress: bool = True
) -> dict[str, Any]:
    """Train a model, or resume a run that was stopped; return ``result.json``.

    Parameters
    ----------
    settings : Settings
    out : path, optional
        Folder of the run; ``settings.out`` if None.
    progress : bool
        Show a progress bar on a terminal.

    Notes
    -----
    With several processes (torchrun), every one of them calls this function. SIGTERM and Ctrl-C
    save a checkpoint after the current step and raise `Stopped`. The same call then resumes; on a
    CPU it gives the same numbers, to the bit, as a run that was never stopped.
    """
    folder = RunFolder(Path(settings.out if out is None else out))
    with ExitStack() as stack:
        process = stack.enter_context(join_ranks(settings.train.threads, settings.train.timeout))
        asked = stack.enter_context(asked_to_stop())
        done = folder.result
        if done is not None:
            process.on_first_rank(lambda: folder.check(settings, inputs_of(settings)))
            if process.first:
                logger.info("%s: this run is finished", folder.path)
            return done
        folder.path.mkdir(parents=True, exist_ok=True)
        process.on_first_rank(lambda: stack.enter_context(locked(folder.path)))
        trainer = Trainer(settings, folder, process)
        stack.callback(trainer.close)  # before it has anything to release
        trainer.start()
        bar = TrainBar(trainer.train.tokens) if progress and process.first else None
        try:
            while trainer.step < trainer.train.steps:
                trainer.advance()
                if bar is not None:
                    bar(trainer.tokens, trainer.last_loss)
                if trainer.step < trainer.train.steps and process.any(bool(asked)):
                    trainer.save()
                    raise Stopped(
                        f"stopped after {trainer.tokens:,} tokens; run the same command to resume"
                    )
        finally:
            if bar is not None:
                bar.close()
        return trainer.finish()


class Trainer:
    """The model, optimizer, data and weights of a run, and the step they have reached.

    `start` makes them; `close` releases them, however far `start` came.
    """

    def __init__(self, settings: Settings, folder: RunFolder, process: Process) -> None:
        self.settings, self.folder, self.process = settings, folder, process
        self.train = settings.train
        self.step, self.seconds, self.last_loss = 0, 0.0, math.nan

    def start(self) -> None:
        """Check the settings, make everything, resume if there is a checkpoint, or evaluate."""
        settings, folder, process = self.settings, self.folder, self.process
        corpus = self.corpus = Corpus.open(settings.corpus.folder)
        domains = domains_of(settings, corpus)
        check_corpus_splits(settings, corpus)
        self.micro_batches, micro = self.train.micro_batches(process.world)
        inputs = checked_inputs(settings, corpus, domains, process)
        reweighter = make_reweighter(settings, domains, corpus, inputs["references"])
        self.mixture = MixtureDataset(
            corpus,
            self.train.length,
            weights=named_weights(settings.reweight.prior, domains, corpus),
            domains=domains,
            seed=self.train.seed + STREAM * self.train.stream,
            rank=process.rank,
            world_size=process.world,
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
        # All settings but the model's have been checked by now.
        running_on = {
            "ranks": process.world,
            "device": process.device.type,
            "threads": torch.get_num_threads(),
        }
        process.on_first_rank(lambda: folder.open(settings, inputs, running_on))
        self.resumed = checkpoints.latest(folder.checkpoints)
        process.on_first_rank(self._restore_logs)
        self.model = place_model(settings, corpus, process)
        torch.manual_seed(STREAM * self.train.seed + process.rank)  # for dropout
        self.optimizer = make_optimizer(self.model, self.train, process)
        self.reference = _reference_model(settings, corpus, process)
        self.steering = Steering(
            reweighter,
            self.mixture,
            update_at_start=settings.reweight.update_at_start or None,
            sampling=make_sampling(settings),
            logs=[folder.weights],
        )
        workers = self.train.workers
        self.loader = self.mixture.loader(
            micro, num_workers=workers, worker_init_fn=ignore_signals if workers else None
        )
        self._resume()
        if self.step == 0:
            self.evaluate()  # weights that move here hold from the first sample on
        self.batches = iter(self.loader)

    def close(self) -> None:
        """Release the model, its optimizer and its batches before the process group ends."""
        for name in ("batches", "loader", "optimizer", "model"):
            self.__dict__.pop(name, None)
        if self.process.world > 1:
            gc.collect()

    @property
    def tokens(self) -> int:
        return self.step * self.train.step_tokens

    def advance(self) -> None:
        """Take one step; evaluate and save when that is due."""
        began = time.perf_counter()
        rate = learning_rate(self.train, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        table, loss = self._gradients()
        clipped = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip)
        norm = float(clipped.full_tensor() if hasattr(clipped, "full_tensor") else clipped)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        table = reduce_sums(torch.cat([table, torch.stack([loss, loss]).reshape(2, 1)], dim=1))
        self.last_loss = float(table[0, -1]) / self.process.world
        if not (math.isfinite(self.last_loss) and math.isfinite(norm)):
            raise FloatingPointError(
                f"the loss is {self.last_loss} and the gradient norm {norm} at step {self.step}; "
                "lower train.learning_rate or check the data. The last checkpoint is kept."
            )
        if self.settings.reweight.losses == "batches":
            sums, counts = table[0, :-1].cpu().numpy(), table[1, :-1].cpu().numpy()
            losses = [s / n if n else math.nan for s, n in zip(sums, counts, strict=True)]
            tokens = self.train.batch * (self.train.length - 1)
            self.steering.observe(losses, counts, self.step, total=tokens, absent_ok=True)
        self.seconds += time.perf_counter() - began
        if self.process.first:
            measured = {"loss": self.last_loss, "rate": rate, "norm": norm}
            self.folder.steps.append({"step": self.step, "tokens": self.tokens, **measured})
        due = self.step % self.train.evaluate_steps == 0
        if due or self.step == self.train.steps:
            self.evaluate(moving=due)
        if self.step % self.train.checkpoint_steps == 0 and self.step < self.train.steps:
            self.save()

    def _gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute gradients of a batch's loss.

        Returns each domain's sum and count of losses on this rank, and the mean loss.
        """
        K = len(self.mixture.domains)
        device = self.process.device
        table = torch.zeros(2, K, dtype=torch.float64, device=device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for number in range(1, self.micro_batches + 1):
            batch = {k: v.to(device) for k, v in next(self.batches).items()}
            ids, domain = batch["input_ids"], batch["domain"]
            with gradient_sync(self.model, last=number == self.micro_batches):
                with self.process.autocast(self.train.precision):
                    losses = token_losses(self.model, ids)
                weighed = losses.mean(1)
                if LOSS_WEIGHT in batch:
                    weighed = weighed.to(wide_dtype(weighed)) * batch[LOSS_WEIGHT]
                (weighed.mean() / self.micro_batches).backward()
            total += losses.detach().double().mean() / self.micro_batches
            table += torch.stack(group_sums(self._shown(losses.detach(), ids), domain, K))
        return table, total

    def _shown(self, losses: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the losses that move the weights: the batch's, or their excess over others."""
        if self.reference is None:
            return losses
        with torch.no_grad(), self.process.autocast(self.train.precision):
            return (losses - token_losses(self.reference, ids)).clamp(min=0)

    def evaluate(self, moving: bool = True) -> None:
        """Measure both splits, move the weights by one of them, and record everything."""
        with self.process.autocast(self.train.precision):
            found = domain_losses(
                self.model,
                self.held_out,
                batch_size=self.settings.evaluate.batch,
                loss=summed_losses,
                device=self.process.device,
            )
        if not all(map(math.isfinite, found.losses.values())):
            raise FloatingPointError(
                f"the held-out losses are {found.losses} after step {self.step}; lower "
                "train.learning_rate or check the data. The last checkpoint is kept."
            )
        chosen = self.settings.evaluate
        by_split = {
            split: found.only({key: key[1] for key in found.losses if key[0] == split})
            for split in (chosen.driving, chosen.report)
        }
        if moving and self._moved_by_evaluations():
            self.steering.observe(by_split[chosen.driving], step=self.step)
        if self.process.first:
            report = self.mixture.report()
            record = {
                "step": self.step,
                "tokens": self.tokens,
                "seconds": round(self.seconds, 3),
                "report": by_split[chosen.report].losses,
                "driving": by_split[chosen.driving].losses,
                "driving_errors": by_split[chosen.driving].errors,
                "driving_pieces": by_split[chosen.driving].pieces,
                "driving_spreads": by_split[chosen.driving].spreads,
                "weights": self.steering.reweighter.as_dict(),
                "shares": {name: values["share"] for name, values in report.items()},
                "epochs": {name: values["epochs"] for name, values in report.items()},
            }
            self.folder.evaluations.append(record)

    def _moved_by_evaluations(self) -> bool:
        """Return whether an evaluation at this step moves the weights."""
        counts = self.steering.reweighter.counts_step(self.step)
        return counts and self.settings.reweight.losses == "evaluation"

    def save(self) -> Path:
        """Write a checkpoint of this step."""
        state = {
            "identity": self.settings.identity,
            "seconds": self.seconds,
            "reweighter": self.steering.reweighter.state_dict(),
            "mixture": self.mixture.state_dict(),
            "sampling": self.steering.drawing.state_dict(),
        }
        ends = self.step >= self.train.steps
        return checkpoints.save(
            self.folder.checkpoints,
            self.step,
            self.model,
            self.optimizer,
            state,
            self.process,
            keep=self.train.keep,
            regular=ends or self.step % self.train.checkpoint_steps == 0,
            keep_optimizers=self.train.keep_optimizers,
            with_optimizer=self.train.save_optimizer or not ends,
            beside=self._save_beside,
        )

    def _save_beside(self, draft: Path) -> None:
        save_tokenizer(self.settings, self.corpus, draft)
        self.folder.copy_logs(draft)

    def _restore_logs(self) -> None:
        """Verify the latest checkpoint, if there is one, and return the logs to its step."""
        step = -1 if self.resumed is None else int(checkpoints.check(self.resumed)["step"])
        self.folder.restore_logs(self.resumed, step)

    def _resume(self) -> None:
        """Restore the latest checkpoint, if there is one."""
        path = self.resumed
        if path is None:
            return
        step = int(read_state(path)["step"])
        if step < self.train.steps and not (path / OPTIMIZER).is_file():
            raise ValueError(
                f"{str(path)!r} holds no optimizer, so training cannot resume from it; start in "
                "another folder"
            )
        try:
            state = checkpoints.restore(path, self.model, self.optimizer, self.process)
            self.step, self.seconds = step, float(state["seconds"])
            self.steering.restore(state["reweighter"], state["mixture"], state.get("sampling"))
        except (KeyError, TypeError, ValueError) as error:  # checkpoints before version 3
            if isinstance(error, DamagedFile):
                raise
            raise DamagedFile(
                f"{str(path)!r} does not fit this run: {error}; {checkpoints.instead(path)}"
            ) from error
        logger.info("resuming after %s tokens", f"{self.tokens:,}")
        self.process.wait()

    def finish(self) -> dict[str, Any]:
        """Save the finished model, write ``result.json`` and return it."""
        path = self.save()
        self.process.on_first_rank(lambda: self.folder.finish(self._result(path)))
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


def _reference_model(settings: Settings, corpus: Corpus, process: Process) -> Any:
    """Load the model whose token losses are subtracted from a proxy's."""
    if settings.reweight.reference_model is None:
        return None
    changes = {
        "model": {"checkpoint": settings.reweight.reference_model},
        "reweight.reference_model": None,
        "train.activation_checkpointing": False,
    }
    try:
        model = make_model(settings.changed(changes), corpus).to(process.device)
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(f"reweight.reference_model: {error}") from None
    return model.eval().requires_grad_(False)
