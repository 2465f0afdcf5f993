"""Progress of long work on a terminal and elsewhere, and the announcement of compilation."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from problems import neuron_data

from counterpoise import Chunks, GroupDRONeuron, Npy, solve
from counterpoise.common.progress import (
    CorpusBar,
    PassBar,
    StatusHandler,
    StatusLine,
    TrainBar,
    stage,
)
from counterpoise.rows import compilation
from counterpoise.rows.compilation import MESSAGE, ready


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def drawn(self):
        """What was drawn on the line, one after another; cleared lines are left out."""
        texts = re.split(r"[\r\n]", self.getvalue())
        return [text.rstrip() for text in texts if text.strip()]

    def screen(self):
        """What a terminal shows in the end, line by line."""
        lines = []
        for line in self.getvalue().split("\n"):
            shown = ""
            for text in line.split("\r"):
                shown = text + shown[len(text) :]
            lines.append(shown.rstrip())
        return lines


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it, for us and for tqdm."""
    now = [1000.0]
    monkeypatch.setattr("counterpoise.common.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


# -- on a terminal -------------------------------------------------------------------------


def test_passes_show_rows_and_the_speed_of_their_own(clock):
    screen = Terminal()
    bar = PassBar(screen, every=0.0)
    for rows in (0, 250, 1000):
        bar(1, rows, 1000)
        clock[0] += 1.0
    bar(2, 0, 1000)
    clock[0] += 10.0
    bar(2, 500, 1000)
    drawn = screen.drawn()
    assert any(re.search(r"pass 1: +25%.*250/1.00k .*250 rows/s", line) for line in drawn)
    assert any(re.search(r"pass 1: +100%.*500 rows/s", line) for line in drawn)
    assert re.search(r"pass 2: +50%.*500/1.00k \[00:10<00:10, 50.0 rows/s\]", drawn[-1])
    assert "\n" not in screen.getvalue()
    bar.close()
    assert screen.screen() == [""], "the terminal is left clean"


def test_passes_of_unknown_length_have_no_bar(clock):
    screen = Terminal()
    bar = PassBar(screen, every=0.0)
    bar(1, 0, None)
    clock[0] += 2.0
    bar(1, 1_234_567, None)
    assert re.search(r"pass 1: 1.23M rows \[00:02, 617k rows/s\]", screen.drawn()[-1])
    bar.close()


def test_the_line_is_not_drawn_more_often_than_asked(clock):
    screen = Terminal()
    bar = PassBar(screen, every=60.0)
    for rows in range(1000):
        bar(1, rows, 1000)
    assert len(screen.drawn()) == 1
    bar(1, 1000, 1000)
    assert "100%" in screen.drawn()[-1], "the end of a pass is always drawn"
    bar.close()


def test_training_shows_loss_and_the_speed_after_the_first_step(clock):
    screen = Terminal()
    bar = TrainBar(1000, screen, every=0.0)
    clock[0] += 50.0  # the first step compiles
    bar(100, 9.0)
    clock[0] += 4.0
    bar(500, 4.25)
    assert re.search(
        r"50%.*500/1.00k \[00:04<00:05, 100 tokens/s, loss 4.250\]", screen.drawn()[-1]
    )
    bar.close()
    assert screen.screen() == [""]


def test_domains_show_documents_tokens_and_the_speed_of_this_run(clock):
    screen = Terminal()
    bar = CorpusBar(screen, every=0.0)
    bar("a", 10, 1_000_000, None)  # from an earlier run
    clock[0] += 2.0
    bar("a", 11, 1_000_500, 0.5)
    shown = r"a: +50%.*1.00M/2.00M \[.*250 tokens/s, 11 documents\]"
    assert re.search(shown, screen.drawn()[-1])
    bar("b", 1, 5, None)
    assert screen.drawn()[-1].startswith("b: 5.00 tokens")
    bar.close()
    assert screen.screen() == [""]


def test_a_status_line_shows_text_and_share():
    screen = Terminal()
    line = StatusLine(screen, every=0.0)
    line.draw("two runs left", 0.5)
    line.draw("{braces} are text")
    assert screen.drawn()[-2:] == [f" 50%|{12 * '#'}{12 * ' '}| two runs left", "{braces} are text"]
    line.close()
    assert screen.screen() == [""]
    line.close()


# -- elsewhere -----------------------------------------------------------------------------


def test_elsewhere_nothing_is_drawn_and_ends_and_minutes_are_logged(clock, caplog):
    stream = io.StringIO()
    with caplog.at_level(logging.INFO, logger="counterpoise"):
        passes, corpus, train = PassBar(stream), CorpusBar(stream), TrainBar(1000, stream)
        StatusLine(stream).draw("unseen", 0.5)
        passes(1, 400, None)
        for number in (1, 2):
            for rows in (400, 1200):
                clock[0] += 0.5
                passes(number, rows, 1200)
        assert [r.getMessage() for r in caplog.records] == [
            "pass 1: 1,200 rows in 1.0 s",
            "pass 2: 1,200 rows in 0.5 s",
        ]
        caplog.clear()
        for step in range(1, 10):
            clock[0] += 20.0
            train(100 * step, 4.0)
            corpus("a", step, 10 * step, 0.25)
        corpus("a", 10, 100, 1.0, done=True)
    assert [r.getMessage() for r in caplog.records] == [
        "300 of 1,000 tokens (30%), loss 4.000, 5 tokens/s, 0:02:20 left",
        "domain a: 4 documents, 40 tokens, 25% read",
        "600 of 1,000 tokens (60%), loss 4.000, 5 tokens/s, 0:01:20 left",
        "domain a: 7 documents, 70 tokens, 25% read",
        "900 of 1,000 tokens (90%), loss 4.000, 5 tokens/s, 0:00:20 left",
        "domain a: 10 documents, 100 tokens",
    ]
    assert stream.getvalue() == ""


def test_by_default_bars_use_standard_error(capsys):
    bar = PassBar()
    assert bar.stream is sys.stderr
    bar(1, 10, 10)
    bar.close()
    assert capsys.readouterr() == ("", ""), "no terminal here: nothing is drawn"


# -- the log as a status line --------------------------------------------------------------


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


def test_messages_stay_above_the_status_line_and_do_not_tear_bars(handled):
    logger, handler = handled
    screen = handler.line.stream
    stage("fold 2 of 4", 0.25)
    logger.debug("iteration %d", 7)
    assert screen.screen() == [f" 25%|{6 * '#'}{18 * ' '}| fold 2 of 4  iteration 7"]
    logger.warning("look out")
    status = f" 25%|{6 * '#'}{18 * ' '}| fold 2 of 4  iteration 7"
    assert screen.screen() == ["look out", status]
    stage(None)
    assert screen.screen() == ["look out", ""]
    bar = PassBar(screen, every=0.0)
    bar(1, 10, 20)
    logger.warning("again")
    above, below = screen.screen()[1:]
    assert above == "again"
    assert below.startswith("pass 1:  50%")
    bar.close()
    logger.debug("iteration 9")  # in no stage
    assert screen.screen() == ["look out", "again", "iteration 9"]


def test_elsewhere_only_messages_are_written(handled):
    logger, handler = handled
    handler.line.stream = plain = io.StringIO()
    stage("fold 1 of 4", 0.0)
    logger.debug("iteration 1")
    logger.warning("look out")
    assert plain.getvalue() == "look out\n"


def test_bars_start_no_thread():
    """A thread of tqdm's would be inherited by forks."""
    before = threading.active_count()
    bar = PassBar(Terminal(), every=0.0)
    bar(1, 5, 10)
    assert threading.active_count() == before
    bar.close()


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    screen = Terminal(newline="")
    screen.write(shown.decode().replace("\r\n", "\n").replace("\x1b[K", ""))
    assert any(line.startswith("pass 2: 100%") for line in screen.drawn())
    assert screen.screen()[-1] == "", "nothing is left of the bar"


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
