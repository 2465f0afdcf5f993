"""Train the runs of a comparison in processes, several at a time; stop and resume them."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.common.progress import StatusLine
from counterpoise.common.stopping import STOPPED, Stopped, asked_to_stop
from counterpoise.common.text import count
from counterpoise.common.toml import to_toml
from counterpoise.lm.compare.plan import PlannedRun, plan
from counterpoise.lm.training.inputs import inputs_of
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import write_text

logger = logging.getLogger("counterpoise")

POLL_SECONDS = 0.2
STOP_SECONDS = 60.0


class RunsFailed(RuntimeError):
    """Some runs of a comparison failed."""


@dataclass
class Job:
    """A run in a process of its own."""

    item: PlannedRun
    process: subprocess.Popen[bytes]
    log: Path
    began: float


def run_all(
    settings: Settings,
    *,
    jobs: int = 1,
    only: list[str] | None = None,
    seeds: list[int] | None = None,
    minutes: float | None = None,
    progress: bool = True,
) -> list[PlannedRun]:
    """Train the unfinished runs of a comparison; return the finished ones.

    Parameters
    ----------
    settings : Settings
        With ``[compare]``.
    jobs : int
        Runs at the same time, each in a process of its own.
    only, seeds : lists, optional
        Only these runs, with those they need; only these seeds.
    minutes : float, optional
        Start no new run after this many minutes.
    """
    check_whole("jobs", jobs, 1)
    items = plan(settings, only, seeds)
    waiting = [item for item in items if not item.done]
    for item in waiting:  # find missing inputs before any run starts
        if item.ready:
            inputs_of(item.settings())
    total, began = len(waiting), time.monotonic()
    logger.info("%s, %d finished before", count(len(items), "run"), len(items) - total)
    status = StatusLine(every=1.0)
    running: list[Job] = []
    failed: list[Job] = []
    with ExitStack() as stack:
        asked = stack.enter_context(asked_to_stop())
        stack.callback(_stop, running)
        stack.callback(status.close)
        while (waiting or running) and not asked:
            late = minutes is not None and time.monotonic() - began >= 60 * minutes
            while not late and len(running) < jobs:
                ready = next((item for item in waiting if item.ready), None)
                if ready is None:
                    break
                waiting.remove(ready)
                running.append(_begin(ready, settings))
            if not running:
                break
            time.sleep(POLL_SECONDS)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                (failed if _ended(job) else []).append(job)
            if progress:
                left = len(waiting) + len(running)
                names = "; ".join(job.item.title for job in running)
                status.draw(f"{count(left, 'run')} left; now {names}", 1 - left / total)
    if asked:
        rest = count(len(waiting) + len(running), "run")
        raise Stopped(f"stopped with {rest} left; run the same command to resume")
    if failed:
        tail = "\n".join(
            failed[0].log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        )
        raise RunsFailed(
            f"{count(len(failed), 'run')} failed: {', '.join(j.item.title for j in failed)}. The "
            f"log of the first ({failed[0].log}) ends:\n{tail}\nFix the cause and run the same "
            "command; finished runs are kept"
        )
    if waiting:
        logger.info("%s left; run the same command to resume", count(len(waiting), "run"))
    return [item for item in items if item.done]


def measure_all(items: list[PlannedRun]) -> None:
    """Measure every kept checkpoint of finished runs as ``[evaluate]`` says, each only once.

    Raises `TasksFailed` at the end, if some tasks could not be scored.
    """
    from counterpoise.lm.tasks.scores import TasksFailed
    from counterpoise.lm.training.measure import measure_run

    failures: dict[str, str] = {}
    for item in items:
        if not item.run.stage:
            logger.info("measuring %s", item.title)
            try:
                measure_run(item.folder, item.settings(), all_checkpoints=True)
            except TasksFailed as error:
                failures |= error.failures
    if failures:
        raise TasksFailed(failures)


def _begin(item: PlannedRun, settings: Settings) -> Job:
    name = f"{item.run.name}-seed-{item.seed}"
    file = Path(settings.out, "plans", f"{name}.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, to_toml(item.settings().table))
    log = Path(settings.out, "logs", f"{name}.txt")
    log.parent.mkdir(parents=True, exist_ok=True)
    launcher = list(settings.compare.launcher) or [sys.executable, "-m", "counterpoise"]
    command = [*launcher, "lm", "train", str(file), "--out", str(item.folder.path)]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches it once, through us
        )
    return Job(item, process, log, time.monotonic())


def _ended(job: Job) -> bool:
    """Log how a job ended; return whether it failed."""
    result: dict[str, Any] | None = job.item.folder.result
    if job.process.returncode == STOPPED:
        logger.info("%s was stopped; run the same command to resume it", job.item.title)
        return False
    if job.process.returncode or result is None:
        logger.error("%s failed; see %s", job.item.title, job.log)
        return True
    logger.info(
        "%s: average loss %.4f, worst %.4f, %.0f s",
        job.item.title, result["average_loss"], result["worst_loss"],
        time.monotonic() - job.began,
    )  # fmt: skip
    return False


def _stop(running: list[Job]) -> None:
    """Ask runs to save a checkpoint and end; kill those that do not."""
    for job in running:
        job.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for job in running:
        try:
            job.process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            job.process.kill()
