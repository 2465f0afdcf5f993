"""The watcher: the same weights as a Reweighter's, however often it is killed."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import time
from functools import partial

import numpy as np
import pytest
from paths import environment
from ranks import start

from counterpoise import Reweighter
from counterpoise.common.stopping import Stopped
from counterpoise.lm import PublishedWeights, Publisher, Watcher, loss_lines, watch
from counterpoise.lm.loss_lines import LossFile
from counterpoise.lm.published import WeightsFile
from counterpoise.lm.training.settings import ReweightSettings
from counterpoise.lm.watcher import settings_of

DOMAINS = ["web", "code", "books"]
PD_KL = ReweightSettings(rule="pd-kl", step=0.5, nu=0.1)


@pytest.fixture
def files(tmp_path):
    return tmp_path / "losses.jsonl", tmp_path / "out" / "weights.json"


@pytest.fixture(autouse=True)
def folder(files):
    files[1].parent.mkdir()


def losses(count):
    rng = np.random.default_rng(0)
    return [(10 * (i + 1), dict(zip(DOMAINS, rng.normal(3, 1, 3).round(3), strict=True)))
            for i in range(count)]  # fmt: skip


def write(path, rows, mode="w"):
    with path.open(mode) as file:
        file.writelines(json.dumps({"step": s, "losses": table}) + "\n" for s, table in rows)


def once(files, settings=PD_KL, **options):
    watcher, told = Watcher(*files, settings, **options), []
    watch(watcher, once=True, tell=told.append)
    return told


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.mark.parametrize("settings", [PD_KL, ReweightSettings(), ReweightSettings(rule="doremi")])
def test_weights_are_those_of_a_reweighter(files, settings):
    rows = losses(12)
    write(files[0], rows)
    told = once(files, settings)
    options = {"step": settings.step, "nu": settings.nu} if settings is PD_KL else {}
    reweighter = Reweighter(DOMAINS, settings.rule, **options)
    for (step, table), published in zip(rows, told, strict=True):
        reweighter.update(table, step=step)
        assert published == PublishedWeights.of(reweighter)
    assert PublishedWeights.read(files[1]) == told[-1]
    assert (told[-1].update, told[-1].step, told[-1].from_step) == (12, 120, 121)


def test_references_counts_and_errors_count(files):
    reference = dict(zip(DOMAINS, [1.0, 2.0, 0.5], strict=True))
    row = {
        "step": 5,
        "losses": {"web": 3.0, "code": 2.5, "books": 1.0},
        "counts": {"web": 10, "code": 0, "books": 5},
        "errors": dict.fromkeys(DOMAINS, 0.1),
        "pieces": {"web": 6, "code": 3, "books": 4},
        "total": 15,
    }
    second = {**row, "step": 6, "counts": None, "total": None}
    files[0].write_text("".join(json.dumps(one) + "\n" for one in (row, second)))
    watcher, told = Watcher(*files, PD_KL, references=reference), []
    watch(watcher, once=True, tell=told.append)
    reweighter = Reweighter(DOMAINS, step=0.5, nu=0.1, reference=reference)
    reweighter.update(row["losses"], row["counts"], 5, absent_ok=True)
    assert told[0].weights == reweighter.as_dict()
    reweighter.update(row["losses"], step=6, errors=row["errors"], pieces=row["pieces"])
    assert watcher.reweighter.certificate().as_dict() == reweighter.certificate().as_dict()


def test_an_evaluation_before_the_first_step_counts_as_in_steering(files):
    """For a rule that measures its step, or if it is asked for."""
    write(files[0], [(0, dict.fromkeys(DOMAINS, 1.0)), (10, dict.fromkeys(DOMAINS, 2.0))])
    counted = [
        [p.step for p in once((files[0], files[1].with_name(f"{i}.json")), settings)]
        for i, settings in enumerate(
            (ReweightSettings(), PD_KL, ReweightSettings(rule="pd-kl", update_at_start=True))
        )
    ]
    assert counted == [[0, 10], [10], [0, 10]]


def test_first_weights_are_published_when_domains_are_known(files):
    write(files[0], [])
    assert once(files) == []
    assert not files[1].exists()
    start = {"web": 0.5, "code": 0.25, "books": 0.25}
    once(files, ReweightSettings(rule="pd-kl", start=start))
    assert PublishedWeights.read(files[1]).weights == start
    once(files, domains=DOMAINS)
    assert PublishedWeights.read(files[1]).update == 0


@pytest.mark.parametrize("rounds", [[1] * 12, [5, 0, 7], [11, 1]])
def test_a_restarted_watcher_goes_on_to_the_same_file(files, rounds, tmp_path):
    rows = losses(12)
    whole = (tmp_path / "all.jsonl", tmp_path / "whole.json")
    write(whole[0], rows)
    told = once(whole)
    files[0].touch()
    found = []
    for count in rounds:
        write(files[0], rows[:count], "a")
        rows = rows[count:]
        found += once(files)
    assert found == told
    assert files[1].read_bytes() == whole[1].read_bytes()


def test_a_kill_between_state_and_weights_is_mended(files, monkeypatch):
    """The state is written first; the next watcher publishes what is missing."""
    write(files[0], losses(6))

    class Killed(BaseException):
        pass

    def killed(self, published):
        raise Killed

    once((files[0], files[1].with_name("whole.json")))
    monkeypatch.setattr(Publisher, "publish", killed)
    with pytest.raises(Killed):
        once(files)
    monkeypatch.undo()
    assert not files[1].exists()
    assert once(files) == [], "nothing is counted twice"
    assert files[1].read_bytes() == files[1].with_name("whole.json").read_bytes()


class Interrupted(KeyboardInterrupt):
    """What a second Ctrl-C raises, anywhere."""


def interrupted(owner, name, lost, at):
    """Return a method that is interrupted in its call number ``at``, when some is still undone."""
    method, calls = getattr(owner, name), []

    def called(self, *args, **options):
        calls.append(1)
        before = {key: getattr(self, key) for key in lost}
        found = method(self, *args, **options)
        if len(calls) == at:
            vars(self).update(before)
            raise Interrupted
        return found

    return called


@pytest.mark.parametrize("settings", [PD_KL, ReweightSettings()])
@pytest.mark.parametrize("at", [1, 4, 9])
@pytest.mark.parametrize(
    ("owner", "name", "lost"),
    [
        (Reweighter, "update", ["global_step"]),
        (Reweighter, "update", ["updates", "global_step", "weights"]),
        (Reweighter, "update", []),
        (Reweighter, "state_dict", []),
        (LossFile, "count", ["lines", "crc"]),
        (LossFile, "count", []),
    ],
)
def test_an_interrupted_line_counts_once(files, settings, at, owner, name, lost, monkeypatch):
    """In the update, after it, and when half of its place in the file is noted."""
    write(files[0], losses(9))
    whole = files[1].with_name("whole.json")
    once((files[0], whole), settings)
    watcher = Watcher(*files, settings)
    monkeypatch.setattr(owner, name, interrupted(owner, name, lost, at))
    with pytest.raises(Interrupted):
        watch(watcher, once=True)
    monkeypatch.undo()
    if at == 4:
        watch(watcher, once=True)  # the same watcher continues as another one does
    else:
        once(files, settings)
    assert files[1].read_bytes() == whole.read_bytes()


def test_who_is_told_may_fail(files):
    """As ``head -1`` does: the line counts, once."""
    write(files[0], losses(9))
    once((files[0], files[1].with_name("whole.json")))
    told = []

    def tell(published):
        told.append(published.update)
        if published.update in (1, 5):
            raise BrokenPipeError

    for _ in range(2):
        with pytest.raises(BrokenPipeError):
            watch(Watcher(*files, PD_KL), once=True, tell=tell)
        assert (
            json.loads(files[1].with_suffix(".state.json").read_text())["read"]["lines"]
            == (told[-1])
        )
    told += [published.update for published in once(files)]
    assert told == list(range(1, 10))
    assert files[1].read_bytes() == files[1].with_name("whole.json").read_bytes()


def test_a_backlog_is_published_at_its_end(files, monkeypatch):
    """Also if it is read in many parts, by a watcher that is stopped and started again."""
    monkeypatch.setattr(loss_lines, "CHUNK", 200)
    write(files[0], losses(40))
    seen, real = [], Publisher.publish
    monkeypatch.setattr(
        Publisher, "publish", lambda self, found: (seen.append(found.update), real(self, found))
    )

    def stop(published):
        if published.update in (7, 20):
            signal.raise_signal(signal.SIGTERM)

    for _ in range(2):
        with pytest.raises(Stopped):
            watch(Watcher(*files, PD_KL, domains=DOMAINS), once=True, tell=stop)
    assert not seen
    once(files, domains=DOMAINS)
    assert seen == [40]
    write(files[0], [(410, dict.fromkeys(DOMAINS, 1.0))], "a")
    once(files, domains=DOMAINS)
    assert seen == [40, 41]


def test_readers_do_not_see_a_watcher_read_again(files, monkeypatch):
    """The remedy when the trainer goes back: fewer lines, and no state."""
    write(files[0], losses(5))
    once(files, domains=DOMAINS)
    checkpoint = PublishedWeights.read(files[1])
    write(files[0], losses(8))
    once(files, domains=DOMAINS)
    write(files[0], losses(5))
    files[1].with_suffix(".state.json").unlink()
    reader, real = WeightsFile(files[1], DOMAINS), Publisher.publish

    def publish(self, found):
        real(self, found)
        reader.resume(checkpoint)
        assert reader.newer() is None, "the loader was at the same checkpoint"

    monkeypatch.setattr(Publisher, "publish", publish)
    once(files, domains=DOMAINS)
    assert PublishedWeights.read(files[1]) == checkpoint


def test_later_weights_stay_until_there_are_losses(files, caplog):
    write(files[0], losses(3))
    once(files)
    later = files[1].read_bytes()
    files[1].with_suffix(".state.json").unlink()
    for rows in ([], [(0, dict.fromkeys(DOMAINS, 1.0))]):  # a line of step 0 makes no update
        write(files[0], rows)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "counterpoise"):
            once(files, domains=DOMAINS)
        assert caplog.text.count("holds later weights; they stay until a line of losses") == 1
        assert files[1].read_bytes() == later
    files[1].with_suffix(".state.json").unlink()
    write(files[0], [])
    with files[0].open("a") as file:
        file.write("no losses\n")
    with pytest.raises(ValueError, match="line 1: it is not JSON"):
        once(files, domains=DOMAINS)
    assert files[1].read_bytes() == later
    write(files[0], losses(1))
    once(files, domains=DOMAINS)
    assert PublishedWeights.read(files[1]).update == 1


def test_the_first_line_may_be_corrected(files):
    """A watcher that follows on does not keep the domains of a line that it refused."""
    files[0].write_text('{"step": 1, "losses": {"wbe": 1.0}, "counts": {"web": 1}}\n')
    watcher = Watcher(*files, PD_KL)
    watcher.start()
    with pytest.raises(ValueError, match="line 1"):
        watcher.advance()
    write(files[0], losses(2))
    assert watcher.advance() == 2
    assert PublishedWeights.read(files[1]).domains == tuple(DOMAINS)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"step": 30, "losses": {"web": 1.0, "code": 1.0}}', r"no value for domain\(s\) \['books"),
        (
            '{"step": 30, "losses": {"web": 1, "code": 1, "books": 1, "law": 1}}',
            r"not known: \['law'\]",
        ),
        (
            '{"step": 10, "losses": {"web": 1, "code": 1, "books": 1}}',
            "step 10 comes after step 20",
        ),
        ('{"step": 30, "loses": {}}', "no entry 'loses'"),
        (
            '{"step": 30, "losses": {"web": 1, "code": 1, "books": 1}, "counts": {"web": 1, '
            '"code": 1, "books": 1}, "total": 4}',
            "counts add up to 3",
        ),
    ],
)
def test_a_wrong_line_is_named_and_those_before_it_count(files, bad, message):
    rows = losses(2)
    write(files[0], rows)
    with files[0].open("a") as file:
        file.write(bad + "\n")
    with pytest.raises(ValueError, match=rf"losses.jsonl', line 3: .*{message}"):
        once(files)
    assert PublishedWeights.read(files[1]).step == 20
    write(files[0], rows)  # the line is removed
    write(files[0], [(30, losses(3)[2][1])], "a")
    assert [p.step for p in once(files)] == [30]


def test_a_domain_without_a_loss_is_left_out_with_a_word(files, caplog):
    write(files[0], [(10, {"web": 1.0, "code": None, "books": 3.0})])
    with caplog.at_level(logging.WARNING, "counterpoise"):
        (published,) = once(files)
    assert "line 1: domain(s) ['code'] had a loss that is not a finite number" in caplog.text
    assert published.weights["books"] > published.weights["web"]


def test_a_half_written_line_waits(files):
    write(files[0], losses(1))
    with files[0].open("a") as file:
        file.write('{"step": 20, "losses": {"we')
    assert [p.step for p in once(files)] == [10]
    with files[0].open("a") as file:
        file.write('b": 1.0, "code": 2.0, "books": 3.0}}\n')
    assert [p.step for p in once(files)] == [20]


def test_a_watcher_with_other_options_does_not_go_on(files):
    write(files[0], losses(2))
    once(files)
    for settings, options, message in (
        (ReweightSettings(rule="pd-kl", step=0.25, nu=0.1), {}, "step=0.5, and this one has 0.25"),
        (PD_KL, {"domains": ["web", "code"]}, "give the same, or another file of weights"),
        (PD_KL, {"references": dict.fromkeys(DOMAINS, 1.0)}, "references=None"),
    ):
        with pytest.raises(ValueError, match=message):
            once(files, settings, **options)
    files[0].write_text("")
    with pytest.raises(ValueError, match=r"was cut or replaced.*without its state file"):
        once(files)


def test_a_watcher_keeps_off_the_weights_of_others(files):
    write(files[0], losses(2))
    PublishedWeights({"web": 1.0}, 7).write(files[1])
    with pytest.raises(ValueError, match="belong to another run"):
        once(files)
    with pytest.raises(ValueError, match="belong to another run"):
        once(files, domains=DOMAINS)
    PublishedWeights(dict.fromkeys(DOMAINS, 1 / 3), 7, corpus="x").write(files[1])
    with pytest.raises(ValueError, match="of the corpus 'x', not of 'y'"):
        once((files[0], Publisher(files[1], corpus="y")))


def test_one_watcher_at_a_time(files):
    from counterpoise.storage.files import locked

    write(files[0], losses(1))
    with (
        locked(files[1].parent),
        pytest.raises(RuntimeError, match=r"another process .* is writing to"),
    ):
        once(files)


def test_settings_come_from_a_configuration():
    table = {
        "train": {"tokens": 1e6},
        "reweight": {"rule": "pd-kl", "step": 0.5},
        "references": {"losses": {"web": 1.0}},
    }
    settings, references = settings_of(table, {"nu": 0.2, "step": None, "prior": None})
    assert (settings.rule, settings.step, settings.nu) == ("pd-kl", 0.5, 0.2)
    assert references == {"web": 1.0}
    assert settings_of({}, {"references": {"web": 2.0}}) == (ReweightSettings(), {"web": 2.0})
    with pytest.raises(ValueError, match="did you mean 'rule'"):
        settings_of({"reweight": {"rul": "odm"}}, {})
    with pytest.raises(ValueError, match=r"references\.model is measured by a training run"):
        settings_of({"references": {"model": "train"}}, {})
    with pytest.raises(ValueError, match="needs the tokens of batches"):
        Watcher(
            "losses.jsonl",
            "weights.json",
            ReweightSettings(rule="doremi", losses="batches", reference_model="m"),
        )


RUN = """
import sys
from counterpoise.cli.main import main
sys.exit(main(["lm", "steer", "--losses", sys.argv[1], "--publish", sys.argv[2],
               "--rule", "pd-kl", "--step", "0.5", "--nu", "0.1", "--interval", "0.01"]))
"""


def begin(stack, files, out):
    command = [sys.executable, "-c", RUN, *map(str, files)]
    return start(stack, command, env=environment(), stdout=out, stderr=out)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_watcher_publishes_what_it_would_have(files, tmp_path):
    """Killed for good, twice, right after losses came in; then asked to stop."""
    rows = losses(60)
    whole = (tmp_path / "all.jsonl", tmp_path / "whole.json")
    write(whole[0], rows)
    once(whole)
    files[0].touch()

    def reached(process, step):
        """The watcher has published the weights of a step."""
        assert process.poll() is None
        return files[1].exists() and PublishedWeights.read(files[1]).step >= step

    with contextlib.ExitStack() as stack, (tmp_path / "said").open("w") as out:
        for first in (0, 20, 40):
            process = begin(stack, files, out)
            write(files[0], rows[first : first + 5], "a")
            wait_for(partial(reached, process, rows[first][0]))
            for row in rows[first + 5 : first + 20]:
                write(files[0], [row], "a")
            if first < 40:
                process.send_signal(signal.SIGKILL)
                process.wait()
        wait_for(partial(reached, process, 600))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
    assert files[1].read_bytes() == whole[1].read_bytes()
    said = (tmp_path / "said").read_text()
    assert "step 600, update 60: web 0." in said
    assert "stopped after line 60 of" in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
def test_two_signals_change_no_weights(files, tmp_path):
    """Asked to stop, and to stop at once, while a long file is read."""
    rows = [(i + 1, table) for i, (_, table) in enumerate(losses(3000))]
    write(files[0], rows)
    whole = files[1].with_name("whole.json")
    once((files[0], whole))
    state = files[1].with_suffix(".state.json")
    stopped = 0
    with contextlib.ExitStack() as stack:
        for number in range(4):
            state.unlink(missing_ok=True)
            said = tmp_path / f"said-{number}"
            with said.open("w") as out:
                process = begin(stack, files, out)
                wait_for(partial(_has_said, said, "update"))
                time.sleep(0.02 * number)
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGINT)
                assert process.wait(60) in (75, 130)
            stopped += not files[1].exists() or PublishedWeights.read(files[1]).update < 3000
            once(files)
            assert files[1].read_bytes() == whole.read_bytes()
            files[1].unlink()
    assert stopped > 0


def _has_said(path, word):
    return word in path.read_text()
