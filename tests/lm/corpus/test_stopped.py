"""Preparations that are stopped, killed or damaged, and continued to the same bytes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from lm_texts import contents, crash, documents, write
from lm_tokenizer import slow_bytes
from paths import environment

from counterpoise.lm import Corpus, prepare
from counterpoise.lm.corpus import prepare as preparing
from counterpoise.lm.corpus.encoding import DocumentEncoder
from counterpoise.lm.corpus.journal import read_journal

SPLITS = {"train": 0.75, "validation": 0.25}


@pytest.fixture
def small(monkeypatch):
    """Many batches, each made safe at once."""
    monkeypatch.setattr(preparing, "BATCH_CHARACTERS", 500)
    monkeypatch.setattr(preparing, "COMMIT_SECONDS", 0.0)


RUN = """
import sys
from counterpoise.lm.corpus import prepare as preparing
from lm_texts import contents, documents, write
from lm_tokenizer import slow_bytes
if __name__ == "__main__":
    preparing.BATCH_CHARACTERS, preparing.COMMIT_SECONDS = 2000, 0.0
    preparing.prepare({"a": sys.argv[1]}, sys.argv[2], tokenizer=slow_bytes, end=256,
                      vocab_size=257, splits={"train": 0.75, "validation": 0.25},
                      workers=int(sys.argv[3]))
"""


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.slow
def test_a_killed_preparation_goes_on_to_the_same_bytes(tmp_path):
    """Killed for good, in the middle, with a worker; which must not live on by itself."""
    (tmp_path / "in").mkdir()
    (tmp_path / "workers").mkdir()
    for i in range(3):
        write(tmp_path / f"in/{i}.jsonl", documents(300, i))
    (tmp_path / "run.py").write_text(RUN)
    process = subprocess.Popen(
        [
            sys.executable,
            str(tmp_path / "run.py"),
            str(tmp_path / "in"),
            str(tmp_path / "out"),
            "1",
        ],
        env=environment(TEST_WORKERS=str(tmp_path / "workers")),
    )
    journal = tmp_path / "out/a/progress.jsonl"
    try:
        wait_for(lambda: process.poll() is not None
                 or (journal.is_file() and journal.read_bytes().count(b"\n") > 4))  # fmt: skip
        with pytest.raises(RuntimeError, match=rf"another process \({process.pid}\) is writing to"):
            prepare({"a": tmp_path / "in"}, tmp_path / "out", tokenizer="bytes")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    pids = {int(path.name) for path in (tmp_path / "workers").iterdir()} - {process.pid}
    assert pids, "the work was done by another process"
    wait_for(lambda: not any(map(alive, pids)))
    assert not (tmp_path / "out/a/index.json").exists()
    read = json.loads(journal.read_text().splitlines()[-1])["rows"]
    assert 0 < read < 900

    options = dict(tokenizer=slow_bytes, end=256, vocab_size=257, splits=SPLITS, workers=0)
    prepare({"a": tmp_path / "in"}, tmp_path / "out", **options)
    prepare({"a": tmp_path / "in"}, tmp_path / "whole", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_wherever_it_stops_the_bytes_are_the_same(tmp_path, small):
    (tmp_path / "in").mkdir()
    for i, texts in enumerate((documents(40), ["", " "], documents(40, 1), [""])):
        write(tmp_path / f"in/{i}.jsonl", texts)
    sources = {"a": tmp_path / "in"}
    prepare(sources, tmp_path / "whole", tokenizer="bytes", splits=SPLITS)
    for stop in range(0, 14, 2):
        out = tmp_path / str(stop)
        for more in (stop, 2):
            crash(more, sources, out, tokenizer="bytes", splits=SPLITS)
        prepare(sources, out, tokenizer="bytes", splits=SPLITS)
        assert contents(out) == contents(tmp_path / "whole")


@pytest.fixture
def stopped(tmp_path, small, monkeypatch):
    """A preparation that stopped after five batches, its journal, and how it is continued."""
    path = write(tmp_path / "a.jsonl", documents(100))
    options = dict(tokenizer="bytes", splits=SPLITS)
    prepare({"a": path}, tmp_path / "whole", **options)
    crash(5, {"a": path}, tmp_path / "out", **options)
    folder = tmp_path / "out/a"
    assert len((folder / "progress.jsonl").read_text().splitlines()) == 6
    with pytest.raises(FileNotFoundError, match=r"has no corpus .*prepare it, or continue"):
        Corpus.open(tmp_path / "out")

    def again(**changed):
        read = []
        real = DocumentEncoder.encode
        monkeypatch.setattr(
            DocumentEncoder, "encode", lambda s, texts: (read.extend(texts), real(s, texts))[1]
        )
        prepare({"a": path}, tmp_path / "out", **options | changed)
        assert contents(tmp_path / "out") == contents(tmp_path / "whole")
        return len(read)

    return folder, again


def test_what_is_done_is_not_done_again(stopped):
    folder, again = stopped
    done = json.loads((folder / "progress.jsonl").read_text().splitlines()[-1])["rows"]
    assert again() == 100 - done < 90


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_torn_lines_of_the_journal_do_not_count(stopped, cut):
    folder, again = stopped
    journal = folder / "progress.jsonl"
    lines = journal.read_bytes().splitlines()
    journal.write_bytes(journal.read_bytes()[:-cut])
    assert again() == 100 - json.loads(lines[-2])["rows"]


def test_tokens_after_the_last_line_do_not_count(stopped):
    folder, again = stopped
    for path in folder.glob("*.bin"):
        with path.open("ab") as file:
            file.write(b"torn, odd" * 10_000)
    assert again() < 100


def test_a_journal_that_says_more_than_the_files_hold_is_not_believed(stopped):
    folder, again = stopped
    states = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()[1:]]
    os.truncate(folder / "train.bin", 2 * states[2]["tokens"][0])
    assert again() == 100 - states[2]["rows"]


def test_all_files_lost_is_a_new_beginning(stopped):
    folder, again = stopped
    (folder / "train.bin").unlink()
    assert again() == 100


def test_a_journal_left_over_by_a_finished_domain_goes_away(stopped):
    folder, again = stopped
    journal = (folder / "progress.jsonl").read_bytes()
    again()
    (folder / "progress.jsonl").write_bytes(journal)
    assert again() == 0


# -- damage, full disks, signals -----------------------------------------------------------


def test_tokens_that_changed_before_the_rest_was_written_are_written_again(stopped):
    """The journal knows the checksums of what it vouches for, line by line."""
    folder, again = stopped
    states = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()[1:]]
    with open(folder / "train.bin", "r+b") as file:
        file.seek(2 * states[1]["tokens"][0] + 2)  # written after the second line
        file.write(b"\x07\x07")
    assert again() == 100 - states[1]["rows"]


def test_every_changed_byte_of_the_journal_is_found(stopped):
    folder, again = stopped
    journal = folder / "progress.jsonl"
    whole = journal.read_bytes()
    rng = np.random.default_rng(0)
    sound = [entry.rows for entry in read_journal(folder)[1]]
    for at in rng.choice(len(whole), 200, replace=False).tolist():
        data = bytearray(whole)
        data[at] ^= 1 << int(rng.integers(8))
        journal.write_bytes(data)
        if at <= whole.index(b"\n"):
            with pytest.raises(ValueError, match=r"progress\.jsonl' is damaged or was not written"):
                read_journal(folder)
        else:
            found = [entry.rows for entry in read_journal(folder)[1]]
            assert found == sound[: len(found)]
    journal.write_bytes(whole)
    again()


def test_drafts_of_killed_processes_are_swept(tmp_path):
    path, out = write(tmp_path / "a.jsonl", ["a"]), tmp_path / "out"
    prepare({"a": path}, out, tokenizer="bytes")
    drafts = [out / ".corpus.json.0123abcd.new", out / "a/.index.json.89abcdef.new"]
    for draft in drafts:
        draft.write_text("{")
    (out / ".mine.new").write_text("kept")
    prepare({"a": path}, out, tokenizer="bytes")
    assert not any(draft.exists() for draft in drafts)
    assert (out / ".mine.new").read_text() == "kept"


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
@pytest.mark.slow
def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path):
    write(tmp_path / "a.jsonl", documents(3000))
    prepare({"a": tmp_path / "a.jsonl"}, tmp_path / "whole", tokenizer="bytes")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, -1)); "
        "from counterpoise.lm import prepare; from counterpoise.lm.corpus import prepare as p; "
        "p.BATCH_CHARACTERS, p.COMMIT_SECONDS = 5000, 0.0; "
        "prepare({'a': sys.argv[1]}, sys.argv[2], tokenizer='bytes')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.jsonl"), str(tmp_path / "out")],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    *_, last = ended.stderr.strip().splitlines()
    assert re.search(r"finished work is kept.*train\.bin'", last)
    assert read_journal(tmp_path / "out/a")[1][-1].rows > 100
    prepare({"a": tmp_path / "a.jsonl"}, tmp_path / "out", tokenizer="bytes")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.slow
def test_it_stops_when_it_is_asked_to(tmp_path, workers):
    (tmp_path / "workers").mkdir()
    write(tmp_path / "a.jsonl", documents(900))
    (tmp_path / "run.py").write_text(RUN)
    words = [str(tmp_path / "run.py"), str(tmp_path / "a.jsonl"), str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, *words, str(workers)], start_new_session=True, stderr=subprocess.PIPE,
        text=True, env=environment(TEST_WORKERS=str(tmp_path / "workers")),
    )  # fmt: skip
    journal = tmp_path / "out/a/progress.jsonl"
    try:
        wait_for(lambda: process.poll() is not None
                 or (journal.is_file() and journal.read_bytes().count(b"\n") > 2))  # fmt: skip
        os.killpg(process.pid, signal.SIGTERM)  # its workers, too
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert (
        said.strip()
        .splitlines()[-1]
        .endswith("finished work is kept, and the same command resumes")
    )
    options = dict(tokenizer=slow_bytes, end=256, vocab_size=257, splits=SPLITS, workers=0)
    prepare({"a": tmp_path / "a.jsonl"}, tmp_path / "out", **options)
    prepare({"a": tmp_path / "a.jsonl"}, tmp_path / "whole", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


# -- a part of the text --------------------------------------------------------------------


def test_a_domain_takes_no_more_than_it_may(tmp_path, small):
    (tmp_path / "in").mkdir()
    for i in range(3):
        write(tmp_path / f"in/{i}.jsonl", documents(50, i))
    sources, options = {"a": tmp_path / "in"}, dict(tokenizer="bytes", splits=SPLITS)
    everything = sum(prepare(sources, tmp_path / "all", **options).sizes(s)["a"] for s in SPLITS)
    options["max_bytes"] = 2000
    made = prepare(sources, tmp_path / "whole", **options)
    parts = [made.tokens("a", split) for split in SPLITS]
    taken = sum(part.n_tokens - part.n_documents for part in parts)
    assert 1800 < taken <= 2000 < everything
    for stop in (1, 2):
        crash(stop, sources, tmp_path / "out", **options)
    prepare(sources, tmp_path / "out", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    with pytest.raises(ValueError, match=r"another max_bytes \(2000, now 3000\)"):
        prepare(sources, tmp_path / "out", **options | {"max_bytes": 3000})
    with pytest.raises(ValueError, match=r"another max_bytes \(2000, now None\)"):
        prepare(sources, tmp_path / "out", tokenizer="bytes", splits=SPLITS)
    with pytest.raises(ValueError, match="max_bytes must be a whole number"):
        prepare(sources, tmp_path / "out", **options | {"max_bytes": 0})
