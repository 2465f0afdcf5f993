"""Time one solver on one problem, inside the solver's own environment.

    python benchmarks/worker.py REQUEST.json

The request names the rows (.npz), the model, ``nu``, the solver, its time limit and where
to write. The answer is JSON with one entry per run; a run is a list of points (wall seconds,
CPU seconds, risk). It is rewritten after every run, so one stopped from outside loses only itself.

Imports, compilation and scoring are outside the clock. A run over its limit ends the process
(a timer of the interpreter itself, since a solver in C holds its lock); the answer then still
says what was running.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import sys
import time
import warnings
from pathlib import Path

import solvers
from objectives.risk import risk
from problem import load_problem

SPACING = 1.1  # points of an iterative run lie this factor apart in time
REACHED = 1e-7  # close enough to the best known risk to stop soon
MANY = 10_000  # rows beyond which settings are compared on a part
GRACE = 5.0  # seconds beyond the limit before the process is ended


class Finished(Exception):
    """Raised inside an iterative solver to end it."""


class Stopwatch:
    """Wall and CPU seconds (all threads) that can be paused."""

    def __init__(self):
        self.wall = self.cpu = 0.0
        self.resume()

    def resume(self):
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def pause(self):
        self.wall += time.perf_counter() - self._wall
        self.cpu += time.process_time() - self._cpu


class Recorder:
    """What an iterative solver calls after every step; keeps points and decides when to stop."""

    def __init__(self, problem, score, limit, target):
        self.problem, self.score, self.limit, self.target = problem, score, limit, target
        self.points, self.ended = [], "returned"
        self.best, self.best_wall, self.next = math.inf, 0.0, 0.0
        self.enough = math.inf
        self.watch = Stopwatch()

    def __call__(self, *candidates):
        self.watch.pause()
        wall = self.watch.wall
        if wall >= self.next or wall >= self.limit:
            self.next = wall * SPACING
            self._keep(wall, min(self.score(self.problem, w()) for w in candidates))
        self.watch.resume()

    def _keep(self, wall, value):
        self.points.append({"wall": wall, "cpu": self.watch.cpu, "risk": value})
        if value < self.best * (1.0 - 1e-6):
            self.best, self.best_wall = value, wall
        if self.target is not None and value <= self.target * (1.0 + REACHED):
            # As long again: a better minimum than the best known may still turn up.
            self.enough = min(self.enough, 2.0 * wall)
        if not math.isfinite(value) or (wall > 1.0 and wall > 3.0 * self.best_wall):
            self._finish("stalled")
        if wall >= self.enough:
            self._finish("reached")
        if wall >= self.limit:
            self._finish("limit")

    def _finish(self, how):
        self.ended = how
        raise Finished


class Answer:
    """The file that is written: runs so far, and the one under way."""

    def __init__(self, path, about):
        self.path, self.content = Path(path), {**about, "runs": [], "running": None, "done": False}

    def write(self, **changes):
        self.content.update(changes)
        scratch = self.path.with_suffix(".part")
        scratch.write_text(json.dumps(self.content))
        scratch.replace(self.path)

    def add(self, label, points, ended):
        self.content["runs"].append({"label": label, "ended": ended, "points": points})
        self.write(running=None)


def repeats(wall):
    """Fast runs are repeated, slow ones are not."""
    return 5 if wall < 1.0 else 3 if wall < 4.0 else 1


def climb(solver, problem, answer, limit, target):
    """A black box at every level of accuracy; stops once the best known risk is met."""
    score = getattr(solver, "score", risk)
    for level in solver.LEVELS:
        done, times = 0, 1
        while done < times:
            answer.write(running={"label": level, "limit": limit})
            faulthandler.dump_traceback_later(limit + GRACE, exit=True)
            watch = Stopwatch()
            model = solver.fit(problem, **level)
            watch.pause()
            faulthandler.cancel_dump_traceback_later()
            value = score(problem, model)
            point = {"wall": watch.wall, "cpu": watch.cpu, "risk": value}
            answer.add(level, [point], "limit" if watch.wall > limit else "returned")
            done, times = done + 1, repeats(watch.wall) if not done else times
        slow = watch.wall > limit
        if slow or (target is not None and value <= target * (1.0 + 1e-7)):
            break


def trace(solver, problem, answer, limit, target):
    """An iterative method: all settings briefly, then the best of them at length.

    On many rows the settings are compared on a part of them, where steps are cheap; two can
    then be best, after as many steps as the time allows on all rows, and in the end.
    """
    share, part, horizon = limit / len(solver.SETTINGS), problem, math.inf
    if len(problem.y) > MANY:
        part = problem.small(MANY // problem.n_groups)
        horizon = limit * len(part.y) / len(problem.y)
        share = max(share, horizon)
    records = []
    for setting in solver.SETTINGS:
        whole = part is problem
        kept, known = (answer, target) if whole else (None, None)
        records.append(once(solver, part, kept, setting, share, known))
    chosen = list(dict.fromkeys((quickest(records, horizon), quickest(records, math.inf))))
    for index in chosen:
        setting, done, times = solver.SETTINGS[index], 0, 1
        while done < times:
            record = once(solver, problem, answer, setting, limit, target)
            times = times if done or record.ended == "limit" else repeats(record.best_wall)
            done += 1


def quickest(records, horizon):
    """Which run was lowest by then; among equals, which was there first."""
    found = []
    for index, record in enumerate(records):
        before = [point for point in record.points if point["wall"] <= horizon] or record.points
        low = min(before, key=lambda point: point["risk"])
        found.append((low["risk"], low["wall"], index))
    floor = min(found)[0]
    return min((e for e in found if e[0] <= floor * (1.0 + REACHED)), key=lambda e: e[1])[-1]


def once(solver, problem, answer, setting, limit, target):
    """One run of an iterative method, kept if there is an answer to keep it in."""
    if answer:
        answer.write(running={"label": setting, "limit": limit})
    # Scoring is outside the clock but inside this timer, hence the margin.
    faulthandler.dump_traceback_later(3 * limit + 60, exit=True)
    record = Recorder(problem, getattr(solver, "score", risk), limit, target)
    with contextlib.suppress(Finished):
        solver.run(problem, record, **setting)
    faulthandler.cancel_dump_traceback_later()
    if answer:
        answer.add(setting, record.points, record.ended)
    return record


def warm_up(solver, problem):
    """A small untimed fit, so that nothing is imported or compiled under the clock."""
    small = problem.small()
    if hasattr(solver, "fit"):
        getattr(solver, "score", risk)(small, solver.fit(small, **solver.LEVELS[0]))
        return
    with contextlib.suppress(Finished):
        solver.run(small, Recorder(small, risk, 0.1, None), **solver.SETTINGS[0])


def main(path):
    request = json.loads(Path(path).read_text())
    warnings.simplefilter("ignore")
    solver = solvers.get(request["solver"])
    problem = load_problem(Path(request["rows"]), request["model"], request["nu"])
    answer = Answer(request["answer"], request["about"])
    warm_up(solver, problem)
    time_it = climb if hasattr(solver, "fit") else trace
    time_it(solver, problem, answer, request["limit"], request["target"])
    answer.write(running=None, done=True)


if __name__ == "__main__":
    main(sys.argv[1])
