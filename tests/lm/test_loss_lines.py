"""Lines of losses: what is read, what is refused, and files that change under the reader."""

from __future__ import annotations

import math

import pytest

from counterpoise.lm import loss_lines
from counterpoise.lm.loss_lines import LossFile, parse_losses


def line(step):
    return b'{"step": %d, "losses": {"web": 2.0}}\n' % step


@pytest.fixture
def path(tmp_path):
    return tmp_path / "losses.jsonl"


def read(file):
    found = file.pending()
    for one in found:
        file.count(one)
    return found


def test_a_line_has_losses_and_what_else_is_known():
    found = parse_losses(
        b'{"step": 7, "losses": {"web": 2, "code": null}, "counts": {"web": 3, "code": 0},'
        b' "errors": {"web": 0.1, "code": null}, "pieces": {"web": 9, "code": 0}, "total": 3}\r\n'
    )
    assert (found.step, found.total, found.counts) == (7, 3, {"web": 3.0, "code": 0.0})
    assert found.pieces == {"web": 9.0, "code": 0.0}
    assert found.losses["web"] == 2.0
    assert math.isnan(found.losses["code"])
    assert math.isnan(found.errors["code"])
    assert math.isnan(parse_losses(b'{"step": 0, "losses": {"web": NaN}}').losses["web"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("web 2.0", "it is not JSON"),
        ("\udcff", "it is not JSON"),
        ("[1]", "it is not an object"),
        ("[" * 9999, "it is nested too deeply"),
        ('{"losses": {"web": 1}}', "it has no 'step'"),
        ('{"step": 1}', "it has no 'losses'"),
        ('{"step": 1, "losses": {}}', "it has no losses"),
        ('{"step": 1, "losses": [1]}', "must be an object of numbers by domain"),
        ('{"step": 1.5, "losses": {"web": 1}}', "must be a whole number >= 0; got 1.5"),
        ('{"step": -1, "losses": {"web": 1}}', "must be a whole number >= 0; got -1"),
        ('{"step": true, "losses": {"web": 1}}', "must be a whole number >= 0; got True"),
        ('{"step": 1, "losses": {"web": "2"}}', "domain 'web' has '2'"),
        ('{"step": 1, "losses": {"web": 1, "web": 2}}', "a name comes twice"),
        ('{"step": 1, "losses": {"web": 1}, "error": {}}', "there is no entry 'error'"),
        ('{"step": 1, "losses": {"web": 1}, "total": "3"}', "its total must be a number"),
        (
            '{"step": 1, "losses": {"web": 1%s}}' % ("0" * 400),
            r"its losses for 'web' must be a number below 1\.8e\+308; got 10000000\.\.\., which",
        ),
        (
            '{"step": 1, "losses": {"web": 1}, "total": 1%s}' % ("0" * 400),
            r"its total must be a number below 1\.8e\+308",
        ),
    ],
)
def test_what_is_no_line_of_losses_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_losses(text.encode(errors="surrogateescape"))


def test_a_line_counts_when_its_end_is_there(path):
    file = LossFile(path)
    assert file.pending() == [], "the trainer may not have begun"
    path.write_bytes(line(1) + line(2)[:11])
    assert read(file) == [line(1)]
    assert read(file) == []
    path.write_bytes(line(1) + line(2) + b"\n" + line(3))
    assert read(file) == [line(2), b"\n", line(3)]
    assert file.lines == 4
    assert file.bytes == path.stat().st_size


def test_many_lines_come_in_parts(path, monkeypatch):
    monkeypatch.setattr(loss_lines, "CHUNK", 100)
    lines = [line(10**i) for i in range(20)]
    path.write_bytes(b"".join(lines))
    file, found = LossFile(path), []
    while part := read(file):
        assert len(b"".join(part)) <= 100
        found += part
    assert found == lines
    long = b'{"step": 1, "losses": {"web": 2.0%s}}\n' % (b" " * 500)
    path.write_bytes(b"".join(lines) + long)
    assert read(file) == [long]
    monkeypatch.setattr(loss_lines, "LONGEST", 300)
    path.write_bytes(b"".join(lines) + long + b" " * 400)
    with pytest.raises(ValueError, match="line 22, is longer than 300 bytes"):
        read(file)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (line(1), r"shorter than the 72 bytes"),
        (b"", r"shorter than the 72 bytes"),
        (None, "it is gone"),
        (line(1) + line(3) + line(4), "its line 2 is not the one that was read"),
    ],
)
def test_a_file_that_was_cut_or_replaced_is_refused(path, content, message, restarted):
    path.write_bytes(line(1) + line(2))
    file = LossFile(path)
    read(file)
    if restarted:  # and has read nothing since
        state, file = file.state_dict(), LossFile(path)
        file.resume(state)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"was cut or replaced: .*{message}.* without its state"):
        read(file)


def test_a_state_knows_the_bytes_that_were_read(path):
    path.write_bytes(line(1) + line(2))
    file = LossFile(path)
    read(file)
    path.write_bytes(line(1) + line(2) + line(3))
    again = LossFile(path)
    again.resume(file.state_dict())
    assert read(again) == [line(3)]
    for content in (line(9) + line(2) + line(3), line(1)):  # one that the last line does not tell
        path.write_bytes(content)
        with pytest.raises(ValueError, match="its first 72 bytes are not those that were read"):
            LossFile(path).resume(file.state_dict())


@pytest.mark.parametrize("chunk", [10, 36, 50, 1000])
def test_a_restart_knows_the_end_of_what_was_read(path, monkeypatch, chunk):
    """However the file is read in parts, and although no line has come since."""
    monkeypatch.setattr(loss_lines, "CHUNK", chunk)
    path.write_bytes(line(1) + line(2) + line(3))
    file = LossFile(path)
    while read(file):
        pass
    again = LossFile(path)
    again.resume(file.state_dict())
    path.write_bytes(line(1) + line(2) + line(3) + line(4))
    assert again.pending() == [line(4)]
    path.write_bytes(line(1) + line(2) + line(3)[:-4] + b"9}}\n" + line(4))
    with pytest.raises(ValueError, match="its line 3 is not the one that was read"):
        again.pending()


def test_a_file_says_when_there_is_more_to_read(path, monkeypatch):
    monkeypatch.setattr(loss_lines, "CHUNK", 80)
    path.write_bytes(line(1) + line(2) + line(3) + line(4)[:20])
    file, more = LossFile(path), []
    while read(file):
        more.append(file.behind)
    assert more == [True, False]
    assert not file.behind


def test_a_folder_is_no_file_of_losses(tmp_path):
    with pytest.raises(ValueError, match="is a folder, not a file"):
        LossFile(tmp_path).pending()
