"""What is said while one waits: the bar of a pass, and the announcement of compilation."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from problems import neuron_data

from counterpoise import Chunks, GroupDRONeuron, Npy, solve
from counterpoise.common.progress import WIDTH, PassBar, StatusHandler, TrainBar, stage
from counterpoise.rows import compilation
from counterpoise.rows.compilation import MESSAGE, ready


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def drawn(self):
        """The lines in the order they were drawn over each other."""
        return [line.removesuffix("\x1b[K") for line in self.getvalue().split("\r")[1:]]


# -- the line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((1, 0, 1000, 0.0), "pass 1 [" + 24 * "." + "]   0 %  0 rows"),
        ((3, 500, 1000, 2.0), "pass 3 [" + 12 * "#" + 12 * "." + "]  50 %  500 rows, 250 rows/s"),
        ((9, 1000, 1000, 0.5), "pass 9 [" + 24 * "#" + "] 100 %  1,000 rows, 2,000 rows/s"),
        ((2, 1500, 1000, 1.0), "pass 2 [" + 24 * "#" + "] 100 %  1,500 rows, 1,500 rows/s"),
        ((2, 1_234_567, None, 2.0), "pass 2  1,234,567 rows, 617,284 rows/s"),
        ((2, 10, None, 0.0), "pass 2  10 rows"),
        ((2, 0, 0, 1.0), "pass 2  0 rows, 0 rows/s"),
    ],
)
def test_the_line(given, expected):
    assert PassBar.line(*given) == expected


def test_the_bar_grows_with_the_rows_and_keeps_its_width():
    filled = []
    for rows in range(0, 1001, 10):
        bar = re.search(r"\[(#*)(\.*)\]", PassBar.line(1, rows, 1000, 1.0))
        assert len(bar[1]) + len(bar[2]) == WIDTH
        filled.append(len(bar[1]))
    assert filled == sorted(filled)
    assert set(filled) == set(range(WIDTH + 1))


# -- on a terminal -------------------------------------------------------------------------


def test_a_terminal_has_one_line_redrawn():
    screen = Terminal()
    bar = PassBar(screen, every=0.0)
    for rows in (250, 500, 1000):
        bar(1, rows, 1000)
    bar(2, 250, 1000)
    lines = screen.drawn()
    assert [line.split(" rows")[0].split()[-1] for line in lines] == ["250", "500", "1,000", "250"]
    assert [line.split(" [")[0] for line in lines] == ["pass 1"] * 3 + ["pass 2"]
    assert screen.getvalue().count("\x1b[K") == 4, "what is left of a longer line is wiped"
    assert "\n" not in screen.getvalue()


def test_the_line_is_not_drawn_more_often_than_asked():
    screen = Terminal()
    bar = PassBar(screen, every=60.0)
    for rows in range(1, 1000):
        bar(1, rows, 1000)
    assert len(screen.drawn()) <= 1
    bar(1, 1000, 1000)
    assert "100 %" in screen.drawn()[-1], "the end of a pass is always drawn"


def test_the_speed_is_that_of_this_pass():
    screen = Terminal()
    bar = PassBar(screen, every=0.0)
    bar(1, 100, 100)
    bar(2, 0, 100)
    time.sleep(0.2)
    bar(2, 100, 100)
    speed = float(re.search(r", ([\d,]+) rows/s", screen.drawn()[-1])[1].replace(",", ""))
    assert 0 < speed <= 500


def test_closing_leaves_a_clean_line():
    screen = Terminal()
    bar = PassBar(screen, every=0.0)
    bar.close()
    assert screen.getvalue() == "", "nothing was drawn, nothing is wiped"
    bar(1, 5, 10)
    bar.close()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_by_default_the_bar_goes_to_standard_error(capsys):
    bar = PassBar()
    assert bar.stream is sys.stderr
    bar(1, 10, 10)
    bar.close()
    assert capsys.readouterr() == ("", ""), "no terminal here: nothing is drawn"


# -- elsewhere -----------------------------------------------------------------------------


def test_elsewhere_finished_passes_are_logged(caplog):
    stream = io.StringIO()
    bar = PassBar(stream)
    with caplog.at_level(logging.INFO, logger="counterpoise"):
        for number in (1, 2):
            for rows in (400, 800, 1200):
                bar(number, rows, 1200)
        bar.close()
    assert stream.getvalue() == ""
    assert [r.levelname for r in caplog.records] == ["INFO", "INFO"]
    for number, record in enumerate(caplog.records, start=1):
        assert re.fullmatch(rf"pass {number}: 1,200 rows in \d+\.\d s", record.getMessage())


def test_passes_of_unknown_length_are_not_logged_as_finished(caplog):
    with caplog.at_level(logging.INFO, logger="counterpoise"):
        PassBar(io.StringIO())(1, 400, None)
    assert not caplog.records


# -- in a fit ------------------------------------------------------------------------------


def chunks(columns, size=100):
    return [tuple(c[lo : lo + size] for c in columns) for lo in range(0, len(columns[1]), size)]


@pytest.mark.parametrize("known", [True, False])
def test_every_chunk_of_every_pass_is_told(known):
    columns = neuron_data(K=3, n=100, d=3)
    source = Npy(*columns, chunk_rows=100) if known else Chunks(chunks(columns))
    told = []
    found = solve(source, nu=0.1, progress=lambda *now: told.append(now))
    first = 300 if known else None
    expected = [(p, 100 * i, first if p == 1 else 300)
                for p in range(1, found.n_passes + 1) for i in range(4)]  # fmt: skip
    assert told == expected


def test_a_verbose_fit_logs_its_passes(caplog):
    columns = neuron_data(K=3, n=100, d=3)
    with caplog.at_level(logging.INFO, logger="counterpoise"):
        model = GroupDRONeuron(nu=0.1, verbose=1).fit(Npy(*columns, chunk_rows=100))
    passes = [r.getMessage() for r in caplog.records if r.getMessage().startswith("pass ")]
    assert len(passes) == model.n_passes_
    assert passes[-1].startswith(f"pass {model.n_passes_}: 300 rows in ")


def test_the_time_of_a_pass_is_that_of_all_its_chunks(caplog):
    X, y, g = neuron_data(K=3, n=100, d=3, activation="identity")

    def slowly():
        time.sleep(0.3)
        yield X, y, g

    with caplog.at_level(logging.INFO, logger="counterpoise"):
        GroupDRONeuron("identity", nu=0.1, verbose=1).fit(Chunks(slowly))
    found = [re.search(r"300 rows in (\S+) s", r.getMessage()) for r in caplog.records]
    seconds = [float(match[1]) for match in found if match]
    assert len(seconds) >= 3
    assert min(seconds) >= 0.3


def test_rows_of_no_weight_are_read_as_well(caplog):
    """The first pass is finished like the others, whatever share of its rows counts."""
    X, y, g = neuron_data(K=3, n=100, d=3)
    w = np.ones(300)
    w[::3] = 0.0
    with caplog.at_level(logging.INFO, logger="counterpoise"):
        model = GroupDRONeuron(nu=0.1, verbose=1).fit(Npy(X, y, g, w, chunk_rows=100))
    passes = [r.getMessage() for r in caplog.records if r.getMessage().startswith("pass ")]
    assert len(passes) == model.n_passes_


def test_a_quiet_fit_says_nothing(capfd, caplog):
    columns = neuron_data(K=3, n=100, d=3)
    with caplog.at_level(logging.WARNING, logger="counterpoise"):
        GroupDRONeuron(nu=0.1).fit(Chunks(chunks(columns)))
    assert not [r for r in caplog.records if r.getMessage() != MESSAGE]
    assert capfd.readouterr().out == ""


IN_A_TERMINAL = """
import numpy as np
from counterpoise import GroupDRONeuron, Npy
rng = np.random.default_rng(0)
X = rng.normal(size=(600, 2))
GroupDRONeuron("identity", nu=0.1, verbose=1).fit(Npy(X, X[:, 0], rng.integers(0, 2, 600)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_real_terminal_shows_a_bar_and_is_left_clean():
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", IN_A_TERMINAL], stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    text = shown.decode()
    assert re.search(r"\rpass 2 \[#{24}\] 100 %  600 rows.*?\x1b\[K", text)
    assert text.endswith("\r\x1b[K"), "nothing is left of the bar"


# -- compilation ---------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch, caplog):
    """As in a process that has compiled nothing yet."""
    monkeypatch.setattr(compilation, "_ready", set())
    monkeypatch.setattr(compilation, "PATIENCE_SECONDS", 0.05)
    caplog.set_level(logging.INFO, logger="counterpoise")
    return caplog


def test_slow_compilation_is_announced_once(fresh):
    for key in ("one", "two"):
        ready(key, lambda lo, hi: time.sleep(0.3))
    assert [(r.levelname, r.getMessage()) for r in fresh.records] == [("WARNING", MESSAGE)]


def test_it_is_announced_while_one_waits(fresh):
    said = []

    def work(lo, hi):
        deadline = time.monotonic() + 5
        while not fresh.records and time.monotonic() < deadline:
            time.sleep(0.01)
        said.extend(fresh.records)

    ready("slow", work)
    assert len(said) == 1


def test_fast_compilation_is_not_announced(fresh, monkeypatch):
    monkeypatch.setattr(compilation, "PATIENCE_SECONDS", 0.2)
    ready("fast", lambda lo, hi: None)
    time.sleep(0.4)
    assert not fresh.records


def test_a_kernel_is_compiled_once_and_on_no_rows(fresh):
    calls = []
    for key in ("a", "b", "a", ("a", np.dtype("f4")), ("a", np.dtype("f4"))):
        ready(key, lambda lo, hi, key=key: calls.append((key, lo, hi)))
    assert calls == [("a", 0, 0), ("b", 0, 0), (("a", np.dtype("f4")), 0, 0)]


def test_a_compilation_that_fails_is_tried_again(fresh):
    def fail(lo, hi):
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        ready("kernel", fail)
    calls = []
    ready("kernel", lambda lo, hi: calls.append((lo, hi)))
    assert calls == [(0, 0)]
    time.sleep(0.15)
    assert not fresh.records, "the timer of a failed compilation is stopped"


def test_compiling_on_no_rows_changes_no_answer(fresh):
    X, y, g = neuron_data(K=3, n=300, d=3)
    first = solve(X, y, g, nu=0.1)
    assert any("evaluate_dense" in key for key in compilation._ready if isinstance(key, tuple))
    assert solve(X, y, g, nu=0.1).coef.tobytes() == first.coef.tobytes()


class TestTrainBar:
    def test_speed_is_that_after_the_first_step(self, monkeypatch):
        """The first step compiles and fills caches."""
        now = [0.0]
        monkeypatch.setattr("counterpoise.common.progress.time.monotonic", lambda: now[0])
        screen = Terminal()
        bar = TrainBar(1000, screen, every=0.0)
        now[0] = 50.0
        bar(100, 9.0)
        assert "tokens/s" not in screen.getvalue()
        now[0] = 54.0
        bar(500, 4.25)
        assert "500 tokens, loss 4.250, 100 tokens/s, 0:05 left" in screen.getvalue()
        bar.close()

    def test_elsewhere_it_is_logged_every_minute(self, monkeypatch, caplog):
        now = [0.0]
        monkeypatch.setattr("counterpoise.common.progress.time.monotonic", lambda: now[0])
        bar = TrainBar(1000, io.StringIO())
        with caplog.at_level("INFO", "counterpoise"):
            for step in range(1, 10):
                now[0] = 20.0 * step
                bar(100 * step, 4.0)
        assert len(caplog.records) == 3


@pytest.fixture
def handled():
    """The library's log, shown by a handler on a made-up terminal."""
    logger = logging.getLogger("counterpoise")
    before, level = logger.handlers, logger.level
    handler = StatusHandler(Terminal(), least=logging.WARNING)
    handler.line.every = 0.0
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG)
    yield logger, handler
    handler.close()
    logger.handlers = before
    logger.setLevel(level)


def test_what_is_under_way_shows_on_one_line(handled):
    logger, handler = handled
    stream = handler.line.stream
    stage("fold 2 of 4", 0.25)
    logger.debug("iteration %d", 7)
    assert stream.getvalue().split("\r")[-1] == (
        "[######..................]  25 %  fold 2 of 4  iteration 7\x1b[K"
    )
    logger.warning("look out")
    assert stream.getvalue().endswith("\r\x1b[Klook out\n")  # above the line, which is cleared
    logger.debug("iteration 8")
    stage(None)
    assert stream.getvalue().endswith("\r\x1b[K")
    logger.debug("iteration 9")  # of no stage
    assert stream.getvalue().split("\r")[-1] == "iteration 9\x1b[K"


def test_elsewhere_only_messages_are_written(handled):
    logger, handler = handled
    plain = io.StringIO()
    handler.line.stream = plain
    stage("fold 1 of 4", 0.0)
    logger.debug("iteration 1")
    logger.warning("look out")
    assert plain.getvalue() == "look out\n"
