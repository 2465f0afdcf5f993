"""Register attacks, repeat each of them, and count what fails."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Prepare = Callable[[Path], Any]
ATTACKS: dict[str, Attack] = {}


@dataclass(frozen=True)
class Trial:
    """One try of an attack.

    Attributes
    ----------
    number : int
        Counts from 0.
    rng : numpy.random.Generator
        Depends on the seed, the attack and the number alone.
    folder : Path
        Empty, and removed after the try.
    prepared : object
        What ``prepare`` of the attack returned; made once, so a try must not change it.
    """

    number: int
    rng: np.random.Generator
    folder: Path
    prepared: Any


@dataclass(frozen=True)
class Attack:
    """A named attack: ``act`` returns None if the product held, else a sentence on what fell."""

    name: str
    target: str
    tries: int
    act: Callable[[Trial], str | None]
    prepare: Prepare | None = None


@dataclass
class Outcome:
    """What an attack found; ``failures`` has a sentence for each try that fell."""

    name: str
    target: str
    tries: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def attack(
    name: str, *, tries: int, prepare: Prepare | None = None
) -> Callable[[Callable[[Trial], str | None]], Callable[[Trial], str | None]]:
    """Register a function as an attack; its module is the target.

    ``prepare(folder)`` makes once what all tries start from, in a folder of its own.
    """

    def register(act: Callable[[Trial], str | None]) -> Callable[[Trial], str | None]:
        if name in ATTACKS:
            raise ValueError(f"two attacks are called {name!r}")
        target = act.__module__.rpartition(".")[2]
        ATTACKS[name] = Attack(name, target, tries, act, prepare)
        return act

    return register


def load() -> dict[str, Attack]:
    """Import every module of attacks."""
    from experiments.torture import attacks

    for found in pkgutil.iter_modules(attacks.__path__):
        importlib.import_module(f"{attacks.__name__}.{found.name}")
    return ATTACKS


def run(plan: list[Attack], *, seed: int = 0, share: float = 1.0) -> Iterator[Outcome]:
    """Carry out attacks; ``share`` scales the number of tries, of which each has at least one."""
    for one in plan:
        yield _repeat(one, seed, max(1, round(share * one.tries)))


def _repeat(one: Attack, seed: int, tries: int) -> Outcome:
    outcome, began = Outcome(one.name, one.target), time.perf_counter()
    base = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        common = base / "prepared"
        common.mkdir()
        prepared = None if one.prepare is None else one.prepare(common)
        for number in range(tries):
            folder = base / f"try-{number}"
            folder.mkdir()
            rng = np.random.default_rng([seed, zlib.crc32(one.name.encode()), number])
            outcome.tries += 1
            try:
                fault = one.act(Trial(number, rng, folder, prepared))
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                fault = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
            if fault is not None:
                outcome.failures.append(f"try {number}: {fault}")
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    outcome.seconds = time.perf_counter() - began
    return outcome


def write(path: Path, outcomes: list[Outcome]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")


def read(path: Path) -> dict[str, Outcome]:
    return {value["name"]: Outcome(**value) for value in json.loads(path.read_text())}
