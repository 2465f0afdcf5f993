"""Fits that are stopped, for real, go on where they were and end with the same bits."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from paths import environment
from problems import neuron_data
from scipy import sparse

from counterpoise import GroupDRONeuron, Source, solve, solve_path
from counterpoise.activations import Activation, identity, leaky_relu, relu
from counterpoise.rows.engines.journal import (
    MAGIC,
    Journal,
    JournaledEngine,
    digest_question,
    digest_rows,
    digest_rows_1,
)
from counterpoise.rows.engines.memory import MemoryEngine, make_engine
from counterpoise.rows.engines.questions import Evaluate
from counterpoise.rows.groups import GroupedData

OPTIONS = {"nu": 0.05}


class Counting(Source):
    """Counts passes and rows; at the second chunk of a pass it may stop everything."""

    def __init__(self, columns=None, *, stop=None, how=None):
        self.data = rows() if columns is None else columns
        self.stop, self.how, self.passes, self.rows = stop, how, 0, 0

    def __iter__(self):
        self.passes += 1
        edges = [0, 250, 500, len(self.data[1])]
        for i, (lo, hi) in enumerate(pairwise(edges)):
            if i == 1 and self.passes == self.stop:
                self.how()
            self.rows += hi - lo
            yield tuple(c[lo:hi] for c in self.data)


def rows():
    X, y, g = neuron_data(K=3, n=250, d=4, seed=6)
    order = np.random.default_rng(0).permutation(750)
    return X[order], y[order], np.array(["a", "b", "c"])[g[order]]


class Stopped(Exception):
    pass


def stop():
    raise Stopped


def bits(found):
    """All that a fit found, to the last bit."""
    return {
        "coef": found.coef.tobytes(),
        "intercept": found.intercept,
        "losses": found.losses.tobytes(),
        "weights": found.weights.tobytes(),
        "history": {k: v.tobytes() for k, v in found.history.items()},
        "passes": found.n_passes,
        "iterations": found.n_iter,
        "risk": found.risk,
        "certificate": found.certificate,
        "status": found.status,
    }


class Milestones(logging.Handler):
    """Which pass the source was in when something was logged."""

    def __init__(self, source):
        super().__init__()
        self.source, self.at = source, {}

    def emit(self, record):
        self.at[record.getMessage().split(":")[0]] = self.source.passes


@pytest.fixture(scope="module")
def whole():
    """The fit that nothing interrupts: its bits, rows read, and when its polish began."""
    source = Counting()
    handler, logger = Milestones(source), logging.getLogger("counterpoise")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        found = solve(source, **OPTIONS)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert source.passes == found.n_passes
    return {
        "bits": bits(found), "rows": source.rows, "passes": source.passes,
        "surrogate": handler.at["Algorithm 1"], "polish": handler.at["polish"],
    }  # fmt: skip


def interrupted(path, at, columns=None, **options):
    """A journal of a fit that an error stopped in pass ``at``."""
    source = Counting(columns, stop=at, how=stop)
    with pytest.raises(Stopped):
        solve(source, checkpoint=path, **{**OPTIONS, **options})
    assert path.exists(), "an error keeps the file"
    return source


# -- processes that die --------------------------------------------------------------------

DYING = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_journal import OPTIONS, Counting, rows
from counterpoise import solve

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

kind, path, at = sys.argv[2], sys.argv[3], int(sys.argv[4])
if kind == "source":
    solve(Counting(stop=at, how=die), checkpoint=path, **OPTIONS)
else:
    solve(*rows(), checkpoint=path, callback=lambda p: p.iteration == at and die(), **OPTIONS)
"""


def start_dying(kind, path, at):
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", DYING, here, kind, str(path), str(at)],
        stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip


def wait_killed(process):
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_process_goes_on_to_the_same_bits(tmp_path, whole):
    first, last = whole["surrogate"], whole["polish"]
    assert 5 < first < last - 3, "there are passes to be killed in, before and in the polish"
    points = [first - 2, (first + last) // 2, last]
    dying = [start_dying("source", tmp_path / f"{at}.journal", at) for at in points]
    for at, process in zip(points, dying, strict=True):
        wait_killed(process)
        path = tmp_path / f"{at}.journal"
        assert path.exists()
        source = Counting()
        assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
        # The first look, and what was not yet known: the fatal pass and those after it.
        assert source.passes == whole["passes"] - (at - 2)
        assert source.rows < whole["rows"]
        assert not path.exists()
        assert list(tmp_path.glob(f"{at}.*")) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_process_killed_again_and_again_gets_there(tmp_path, whole):
    """Three passes of life: the first look, and two answers more each time."""
    path, lives = tmp_path / "j", 2
    sizes = [0]
    for _ in range(lives):
        wait_killed(start_dying("source", path, 4))
        sizes.append(path.stat().st_size)
    assert all(a < b for a, b in pairwise(sizes))
    source = Counting()
    assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
    assert source.passes == whole["passes"] - 2 * lives


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_rows_in_memory_are_journaled_too(tmp_path):
    path = tmp_path / "j"
    wait_killed(start_dying("memory", path, 5))
    assert path.stat().st_size > 1000
    seen = []
    found = solve(*rows(), checkpoint=path, callback=seen.append, **OPTIONS)
    assert bits(found) == bits(solve(*rows(), **OPTIONS))
    assert [p.iteration for p in seen] == list(range(1, found.n_iter + 1))
    assert not path.exists()


# -- errors instead of deaths --------------------------------------------------------------


def test_a_journal_changes_no_bit(tmp_path, whole):
    assert bits(solve(Counting(), checkpoint=tmp_path / "j", **OPTIONS)) == whole["bits"]
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_any_pass_keeps_what_is_known(tmp_path, whole):
    for at in (2, 3, 7, whole["polish"] - 1):
        path = tmp_path / f"{at}"
        interrupted(path, at)
        source = Counting()
        assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
        assert source.passes == whole["passes"] - (at - 2)


def test_nothing_is_kept_of_the_first_look(tmp_path):
    with pytest.raises(Stopped):
        solve(Counting(stop=1, how=stop), checkpoint=tmp_path / "j", **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_callback_keeps_the_file(tmp_path):
    def callback(progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(*rows(), checkpoint=tmp_path / "j", callback=callback, **OPTIONS)
    assert bits(solve(*rows(), checkpoint=tmp_path / "j", **OPTIONS)) == bits(
        solve(*rows(), **OPTIONS)
    )


def test_the_estimator_goes_on_as_well(tmp_path, whole):
    path = tmp_path / "j"
    model = GroupDRONeuron(**OPTIONS, checkpoint=str(path))
    with pytest.raises(Stopped):
        model.fit(Counting(stop=9, how=stop))
    assert path.exists()
    source = Counting()
    model.fit(source)
    assert model.coef_.tobytes() == whole["bits"]["coef"]
    assert model.n_passes_ == whole["passes"]
    assert source.passes == whole["passes"] - 7
    assert not path.exists()


def test_other_options_of_a_fit_are_journaled_too(tmp_path):
    for i, options in enumerate(
        [
            {"activation": "identity", "nu": 0.0},
            {"divergence": "chi2", "nu": 0.3, "truncate": 1.0},
            {"nu": "auto", "fit_intercept": False, "radius": 0.5},
        ]
    ):
        source = Counting()
        expected = bits(solve(source, **options))
        interrupted(tmp_path / f"{i}", source.passes - 1, **options)
        again = Counting()
        assert bits(solve(again, checkpoint=tmp_path / f"{i}", **options)) == expected
        assert again.passes < source.passes


def test_a_path_goes_on_where_it_was(tmp_path):
    nus = [1.0, 0.1, 0.0]
    source = Counting()
    expected = [bits(s) for s in solve_path(source, nus=nus)]
    with pytest.raises(Stopped):
        solve_path(Counting(stop=source.passes - 2, how=stop), nus=nus, checkpoint=tmp_path / "j")
    again = Counting()
    found = solve_path(again, nus=nus, checkpoint=tmp_path / "j")
    assert [bits(s) for s in found] == expected
    assert again.passes == 1 + 3
    assert not (tmp_path / "j").exists()


# -- the file ------------------------------------------------------------------------------


def seal(entry, numbers, crc):
    """The checksum of a line and its numbers, which continues the one before it."""
    words = json.dumps({k: v for k, v in entry.items() if k != "crc"}, sort_keys=True)
    return zlib.crc32(words.encode() + numbers, crc)


def records(data):
    """The journal by its own words: a header line, then JSON lines with raw numbers behind."""
    head, _, rest = data.partition(b"\n")
    crc = seal(json.loads(head), b"", 0)
    assert crc == json.loads(head)["crc"]
    found = []
    while rest:
        line, _, rest = rest.partition(b"\n")
        entry = json.loads(line)
        size = 8 * int(np.prod(entry["shape"], dtype=int))
        numbers, rest = rest[:size], rest[size:]
        assert len(numbers) == size
        crc = seal(entry, numbers, crc)
        assert crc == entry["crc"]
        found.append((entry, np.frombuffer(numbers, "<f8").reshape(entry["shape"])))
    return json.loads(head), found


def test_the_file_is_text_and_numbers_to_its_last_byte(tmp_path):
    """Nothing else, so nothing that could run: no pickle."""
    path = tmp_path / "j"
    interrupted(path, 9)
    head, found = records(path.read_bytes())
    assert head["format"] == MAGIC
    assert len(found) == 7, "passes 2 to 8"
    for entry, answer in found:
        assert set(entry) == {"question", "shape", "passes", "crc"}
        assert entry["passes"] == 1
        assert np.isfinite(answer).all()
    assert b"numpy" not in path.read_bytes()


@pytest.mark.parametrize("lost", [1, 100, "head", "line"])
def test_a_torn_last_record_is_dropped(tmp_path, whole, lost):
    path = tmp_path / "j"
    interrupted(path, 12)
    data = path.read_bytes()
    _, found = records(data)
    entry, answer = found[-1]
    length = answer.nbytes + len(json.dumps(entry)) + 1
    if lost == "head":  # the numbers are gone and the line is cut
        lost = length - 20
    elif lost == "line":  # the line is there, its numbers are not
        lost = answer.nbytes
    path.write_bytes(data[: len(data) - lost])
    source = Counting()
    assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
    assert source.passes == whole["passes"] - (12 - 2) + (1 if lost < length else 2)


def test_what_follows_a_torn_record_is_not_read(tmp_path, whole):
    path = tmp_path / "j"
    interrupted(path, 12)
    data = bytearray(path.read_bytes())
    _, found = records(bytes(data))
    sizes = [a.nbytes + len(json.dumps(e)) + 1 for e, a in found]
    data[len(data) - sum(sizes[-3:]) - 1] ^= 1  # the last number of the fourth from the end
    path.write_bytes(data)
    source = Counting()
    assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
    assert source.passes == whole["passes"] - (12 - 2) + 4


@pytest.mark.parametrize("rubbish", [b"\x00" * 64, b"\xff\xfe", b"[1]\n"])
def test_rubbish_at_the_end_is_dropped(tmp_path, whole, rubbish):
    path = tmp_path / "j"
    interrupted(path, 12)
    with open(path, "ab") as file:
        file.write(rubbish)
    assert bits(solve(Counting(), checkpoint=path, **OPTIONS)) == whole["bits"]


def test_an_empty_file_is_a_new_journal(tmp_path, whole):
    (tmp_path / "j").touch()
    assert bits(solve(Counting(), checkpoint=tmp_path / "j", **OPTIONS)) == whole["bits"]


@pytest.mark.parametrize(
    "content",
    [b"my thesis\n", b"\x80\x04\x95 pickle", b'{"format": "counterpoise journal 0", "rows": ""}\n',
     b'{"format": "counterpoise journal 2"', b"[]\n", b'"counterpoise journal 1"\n',
     b"\x93NUMPY" + bytes(200), b"\n"],
)  # fmt: skip
def test_what_is_no_journal_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "thesis.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"thesis\.txt' is not a checkpoint.*another path"):
        GroupDRONeuron(checkpoint=path).fit(*rows())
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"checkpoint=.*there is no folder .*nowhere"):
        GroupDRONeuron(checkpoint=tmp_path / "nowhere" / "j").fit(*rows())
    with pytest.raises(ValueError, match=r"checkpoint=.* is a folder, not a file; give another"):
        GroupDRONeuron(checkpoint=tmp_path).fit(*rows())


def test_bad_input_leaves_no_file(tmp_path):
    X, y, g = rows()
    for bad in ({"nu": -1.0}, {"prior": [1.0]}, {"radius": 0.0}):
        with pytest.raises(ValueError):
            solve(X, y, g, checkpoint=tmp_path / "j", **bad)
    with pytest.raises(ValueError, match="missing or infinite"):
        solve(Counting((np.where(X > 2, np.nan, X), y, g)), checkpoint=tmp_path / "j")
    assert list(tmp_path.iterdir()) == []


# -- other fits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"nu": 0.2}, {"divergence": "chi2"}, {"activation": "identity"}, {"truncate": 1.0},
     {"radius": 0.1}, {"prior": [0.2, 0.3, 0.5]}, {"precondition": "scale"},
     {"fit_intercept": False}],
    ids=str,
)  # fmt: skip
def test_a_journal_of_other_options_is_refused(tmp_path, whole, other):
    path = tmp_path / "j"
    interrupted(path, whole["passes"])
    kept = path.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint=.*other (options|rows); delete it"):
        solve(Counting(), checkpoint=path, **{**OPTIONS, **other})
    assert path.read_bytes() == kept, "the other fit can still go on"
    if "nu" in other:
        assert bits(solve(Counting(), checkpoint=path, **OPTIONS)) == whole["bits"]


def test_another_activation_of_the_same_name_is_refused(tmp_path):
    def steep(slope):
        return Activation(lambda t: slope * t, lambda t: slope + 0.0 * t, 0.5, 2.0, name="mine")

    path = tmp_path / "j"
    interrupted(path, 9, activation=steep(1.0))
    with pytest.raises(ValueError, match=r"checkpoint=.*other options"):
        solve(Counting(), checkpoint=path, **OPTIONS, activation=steep(1.5))


def last_bit(values, at):
    """The values, with the last bit of one of them changed."""
    out = values.copy()
    np.atleast_1d(out.reshape(-1)[at : at + 1]).view(np.uint64)[...] ^= np.uint64(1)
    return out


CHANGES = {
    "the last bit of a feature": lambda X, y, g: (last_bit(X, 1234), y, g),
    "the last bit of a label": lambda X, y, g: (X, last_bit(y, 321), g),
    "features": lambda X, y, g: (1.001 * X, y, g),
    "one feature value": lambda X, y, g: (X + 5.0 * (np.arange(3000).reshape(X.shape) == 9), y, g),
    "labels": lambda X, y, g: (X, y + 0.5, g),
    "one label": lambda X, y, g: (X, np.where(np.arange(750) == 600, y + 3, y), g),
    "groups": lambda X, y, g: (X, y, np.where(g == "a", "d", g)),
    "one group label": lambda X, y, g: (X, y, np.where(np.arange(750) == 3, "b", g)),
    "one row less": lambda X, y, g: (X[:-1], y[:-1], g[:-1]),
    "one feature less": lambda X, y, g: (X[:, :3], y, g),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("stored", "intercept"), [("source", True), ("source", False), ("memory", False)]
)
def test_a_journal_of_other_rows_is_refused(tmp_path, change, stored, intercept):
    path = tmp_path / "j"
    options = {**OPTIONS, "fit_intercept": intercept, "checkpoint": path}
    before, after = rows(), CHANGES[change](*rows())
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))

    def callback(progress):
        if progress.iteration == 2:
            raise Stopped

    with pytest.raises(Stopped):
        solve(*(before if stored == "memory" else [Counting(before)]), callback=callback, **options)
    kept = path.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint=.*other rows; delete it"):
        solve(*(after if stored == "memory" else [Counting(after)]), **options)
    assert path.read_bytes() == kept


def memory_engine(X, y, g, weights=None):
    return make_engine(GroupedData.build(X, y, g, weights), relu())


def chunked_engine(X, y, g, weights=None):
    from counterpoise.rows.engines.chunked import ChunkedEngine

    columns = [c for c in (X, y, g, weights) if c is not None]
    return ChunkedEngine(Counting(columns), relu())


def dask_engine(X, y, g, weights=None):
    da = pytest.importorskip("dask.array")
    from counterpoise.rows.engines.dask import DaskEngine

    dense = X if isinstance(X, np.ndarray) else X.toarray()
    return DaskEngine(da.from_array(dense, chunks=(250, -1)), y, g, weights, relu())


def torch_engine(X, y, g, weights=None):
    torch = pytest.importorskip("torch")
    from counterpoise.rows.engines.torch import TorchEngine

    dense = X if isinstance(X, np.ndarray) else X.toarray()
    return TorchEngine(torch.tensor(dense), y, g, weights, relu())


@pytest.mark.parametrize("make", [memory_engine, chunked_engine, dask_engine, torch_engine])
@pytest.mark.parametrize("form", ["dense", "float32", "sparse"])
def test_any_bit_of_the_rows_is_seen(make, form):
    """A sum of 750 rows often stays the same if the last bit of an entry changes."""
    X, y, g = rows()
    X = X.astype(np.float32) if form == "float32" else X
    weights = np.random.default_rng(1).uniform(1.0, 2.0, 750)
    bits_of = np.uint32 if form == "float32" else np.uint64

    def changed(i):
        out = X.copy()
        out.reshape(-1).view(bits_of)[i] ^= bits_of(1)
        return out

    def seen(X, y=y, g=g, weights=weights):
        return digest_rows(make(sparse.csr_matrix(X) if form == "sparse" else X, y, g, weights))

    known = seen(X)
    assert known == seen(X.copy())
    places = np.random.default_rng(0).integers(0, 3000, 8)
    assert known not in {seen(changed(i)) for i in places}
    assert known not in {seen(X, y=last_bit(y, i % 750)) for i in places}
    assert known not in {seen(X, weights=last_bit(weights, i % 750)) for i in places}
    swapped = np.array([{"a": "b", "b": "a"}.get(label, label) for label in g])
    assert known != seen(X, g=swapped)


def test_where_sparse_rows_end_is_seen():
    y, g = np.zeros(750), np.repeat(["a", "b", "c"], 250)
    one = sparse.csr_matrix((np.ones(3), ([0, 5, 9], [0, 1, 2])), shape=(750, 4))
    two = sparse.csr_matrix((np.ones(3), ([0, 6, 9], [0, 1, 2])), shape=(750, 4))
    for make in (memory_engine, chunked_engine):
        assert digest_rows(make(one, y, g)) != digest_rows(make(two, y, g))


def test_chunks_and_labels_that_change_places_are_seen():
    X, y = np.ones((750, 2)), np.zeros(750)
    one, two = (np.repeat(list(text), 250) for text in ("abc", "bac"))
    assert digest_rows(chunked_engine(X, y, one)) != digest_rows(chunked_engine(X, y, two))
    X, y, _ = rows()
    order, g = np.r_[250:500, 0:250, 500:750], np.tile(["a", "b"], 375)
    other = (X[order], y[order], g)
    assert digest_rows(chunked_engine(X, y, g)) != digest_rows(chunked_engine(*other))


# -- damage --------------------------------------------------------------------------------


@pytest.mark.slow
def test_damage_of_any_byte_is_refused_or_costs_passes_alone(tmp_path, whole):
    """Lines hold the number of passes and what was asked; numbers follow them."""
    path = tmp_path / "j"
    interrupted(path, 6)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    lines = [i for i in range(len(data)) if 0 < data.find(b"}\n", i) - i < 170]
    refused = 0
    for at in [*rng.choice(lines, 25), *rng.integers(0, len(data), 5)]:
        broken = bytearray(data)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(broken)
        try:
            found = solve(Counting(), checkpoint=path, **OPTIONS)
        except ValueError as error:
            refused += str(error).startswith("checkpoint=")
        else:
            assert bits(found) == whole["bits"], at
            refused += 1
    assert refused == 30


# Records that say more than a file holds, or what no record says.
STRANGE = [
    {"shape": [1 << 62, 8]}, {"shape": [-1, -6]}, {"shape": 3}, {"shape": [3.0]}, {"shape": None},
    {"question": 5}, {"question": "x"}, {"passes": -1}, {"passes": 10**9}, {"passes": "1"},
    {"passes": True}, {"crc": None}, {"extra": 1},
]  # fmt: skip


def as_version_1(path, engine, **fields):
    """Rewrite a journal as release 0.1 wrote it, with other fields in its last record."""
    _, found = records(path.read_bytes())
    head = {"format": "counterpoise journal 1", "rows": digest_rows_1(engine)}
    out = json.dumps(head).encode() + b"\n"
    for i, (entry, answer) in enumerate(found):
        line = {**entry, "crc": zlib.crc32(answer.tobytes())}
        line |= fields if i == len(found) - 1 else {}
        out += json.dumps(line).encode() + b"\n" + answer.tobytes()
    path.write_bytes(out)


def test_a_journal_of_version_1_goes_on(tmp_path, whole):
    path = tmp_path / "j"
    interrupted(path, 12)
    as_version_1(path, chunked_engine(*rows()))
    with pytest.raises(Stopped):  # and what it adds is of version 1 as well
        solve(Counting(stop=4, how=stop), checkpoint=path, **OPTIONS)
    source = Counting()
    assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
    assert source.passes == whole["passes"] - (12 - 2) - 2


@pytest.mark.parametrize("fields", STRANGE, ids=str)
def test_strange_records_of_version_1_are_dropped(tmp_path, whole, fields):
    path = tmp_path / "j"
    interrupted(path, 5)
    as_version_1(path, chunked_engine(*rows()), **fields)
    source = Counting()
    assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
    assert source.passes == whole["passes"] - (5 - 2) + 1


def test_a_journal_of_version_1_of_other_rows_is_refused(tmp_path):
    path = tmp_path / "j"
    interrupted(path, 5)
    as_version_1(path, chunked_engine(*CHANGES["one label"](*rows())))
    with pytest.raises(ValueError, match="other rows"):
        solve(Counting(), checkpoint=path, **OPTIONS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name, kind in (("pipe", "named pipe"), ("null", "device")):
        with pytest.raises(ValueError, match=rf"checkpoint=.*{name}' is a {kind}"):
            solve(*rows(), checkpoint=tmp_path / name, **OPTIONS)


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from test_journal import OPTIONS, Counting
from counterpoise import solve
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    solve(Counting(), checkpoint=sys.argv[2], **OPTIONS)
except OSError as error:
    sys.exit(str(error))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_a_full_disk_keeps_the_answers_before(tmp_path, whole):
    path, here = tmp_path / "j", str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", FULL, here, str(path), "1500"],
        capture_output=True, text=True, env=environment(), timeout=120,
    )  # fmt: skip
    told = f"{str(path)!r} cannot be written (File too large); the answers before it are kept"
    assert told in done.stderr
    known = len(records(path.read_bytes())[1])
    assert known > 0
    source = Counting()
    assert bits(solve(source, checkpoint=path, **OPTIONS)) == whole["bits"]
    assert source.passes == whole["passes"] - known


# -- the engine ----------------------------------------------------------------------------


def test_answers_come_back_as_they_were_and_passes_count(tmp_path):
    X, y, g = rows()
    data = GroupedData.build(X, y, g)
    w = np.linspace(-1, 1, 5)

    def asked(engine):
        other = engine.variant(truncate=0.5)
        return [
            engine.evaluate(w, surrogate=True).grad_KD,
            engine.label_means(),
            other.label_means(),
            engine.curvature(w, None),
            engine.curvature(None, np.full(3, 1 / 3)),
        ]

    plain = make_engine(data, relu())
    expected = asked(plain)
    for round_ in range(2):
        inner = make_engine(data, relu())
        journal = Journal(tmp_path / "j", inner)
        assert journal.replaying == (round_ == 1)
        engine = JournaledEngine(inner, journal)
        for got, known in zip(asked(engine), expected, strict=True):
            assert got.tobytes() == known.tobytes()
        assert engine.passes == plain.passes
        assert inner.passes == (0 if round_ else plain.passes), "nothing is read a second time"
        assert not journal.replaying
        journal.close(finished=False)
    journal = Journal(tmp_path / "j", plain)
    with pytest.raises(ValueError, match="other options"):
        JournaledEngine(make_engine(data, relu()), journal).evaluate(w + 1e-15, surrogate=True)
    journal.close(finished=True)
    assert not (tmp_path / "j").exists()


# What release 0.1 called this question; a journal that it wrote can be continued.
DIGESTS = {
    "a5727e85dd87d08771d7b47df6705f1077537945591b9f1814d4c9e5f47dbc15": relu(),
    "f8a9c2aae16a1b6cf06330cb3a24c4440d2774d4be4239f4ebcdd88b3e473c68": identity(),
    "6641cdb439c6bb1a1d6608cb2bb19503bc238fad665039882ca37e79dff7c59a": leaky_relu(0.25),
    "250254077f73bebc782a0820f569096ddf4a2adb077eeceee67e5104853225a2": relu().rounded(0.5),
}


@pytest.mark.parametrize("digest", DIGESTS, ids=lambda digest: DIGESTS[digest].name)
def test_questions_are_known_as_in_release_0_1(digest):
    assert digest_question(Evaluate(np.array([1.0, -2.0]), DIGESTS[digest], True, None)) == digest


@pytest.mark.parametrize(
    ("activation", "nu", "asked"),
    [
        ("identity", 0.1, ["Gram", "Evaluate", "Labels"]),
        ("identity", "auto", ["Gram", "Evaluate", "Evaluate", "Labels"]),
        ("relu", 0.1, ["Gram", "Labels"]),
        ("relu", "auto", ["Gram", "Evaluate", "Evaluate", "Evaluate", "Evaluate", "Labels"]),
    ],
)
def test_a_fit_asks_what_it_asked_in_0_1(monkeypatch, activation, nu, asked):
    """A journal that 0.1 left can be resumed only while the same questions come first."""
    rng = np.random.default_rng(7)
    X, g = np.round(rng.normal(size=(60, 3)), 3), np.arange(60) % 3
    y = np.round(X @ [1.0, -0.5, 0.25] + 0.3 * (1 + g) * rng.normal(size=60), 3)
    names, ask = [], MemoryEngine.ask

    def listening(self, question):
        names.append(type(question).__name__)
        return ask(self, question)

    monkeypatch.setattr(MemoryEngine, "ask", listening)
    solve(X, y, g, nu=nu, activation=activation)
    assert names[: len(asked)] == asked
    assert set(names[len(asked) :]) <= {"Evaluate", "Gram", "Separation"}
