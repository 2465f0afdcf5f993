"""How much memory there is."""

from __future__ import annotations

import math
import os

import pytest

from counterpoise.common import machine


@pytest.fixture
def limits(tmp_path, monkeypatch):
    """Files of a container's limits, which do not exist yet."""
    files = (tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes")
    monkeypatch.setattr(machine, "LIMITS", files)
    monkeypatch.setattr(machine, "physical", lambda: 1e9)
    return files


def test_without_a_container_it_is_the_memory_built_in(limits):
    assert machine.memory() == 1e9


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("text", "expected"),
    [("500000\n", 5e5), ("9223372036854771712\n", 1e9), ("max\n", 1e9), ("", 1e9), ("0\n", 1e9)],
)
def test_a_container_may_allow_less(at, text, expected, limits):
    limits[at].write_text(text)
    assert machine.memory() == expected


def test_the_smaller_limit_counts(limits, monkeypatch):
    limits[0].write_text("700\n")
    limits[1].write_text("600\n")
    assert machine.memory() == 600
    monkeypatch.setattr(machine, "physical", lambda: None)
    assert machine.memory() == 600


def test_nothing_is_told_where_nothing_is_known(limits, monkeypatch):
    monkeypatch.setattr(machine, "physical", lambda: None)
    assert machine.memory() is None


def test_the_memory_built_in(monkeypatch):
    assert machine.physical() == float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert machine.physical() is None


def test_what_is_left_is_the_least_of_the_machine_the_container_and_the_shell(
    limits, tmp_path, monkeypatch
):
    taken, memory = tmp_path / "memory.current", tmp_path / "meminfo"
    monkeypatch.setattr(machine, "TAKEN", (taken, tmp_path / "missing"))
    monkeypatch.setattr(machine, "MEMORY", memory)
    monkeypatch.setattr(machine, "address_space_left", lambda: math.inf)
    assert machine.memory_left() == math.inf  # nothing is reported
    memory.write_text("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:      5 kB\n")
    assert machine.memory_left() == 5 * 1024
    limits[0].write_text("4000\n")
    assert machine.memory_left() == 5 * 1024  # nothing says how much of it is taken
    taken.write_text("1500\n")
    assert machine.memory_left() == 2500
    (tmp_path / "memory.stat").write_text("anon 900\nfile 500\ninactive_file 400\n")
    assert machine.memory_left() == 2900  # what caches of files take is free
    taken.write_text("4100\n")
    assert machine.memory_left() == 300
    (tmp_path / "memory.stat").write_text("total_inactive_file 50\n")
    assert machine.memory_left() == 0
    (tmp_path / "memory.stat").unlink()
    taken.write_text("1500\n")
    monkeypatch.setattr(machine, "address_space_left", lambda: 77.0)
    assert machine.memory_left() == 77
    memory.write_text("MemAvailable: much\n")
    assert machine.memory_left() == 77


def test_something_is_left_here():
    assert machine.memory_left() > 0
